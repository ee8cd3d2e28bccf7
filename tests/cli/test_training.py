"""One real training under `tdbg run`: found, stopped, judged again alike, and every suggested command works."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

from program import BINARY  # noqa: E402

SCRIPT = """
import sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    x = torch.randn(32, 20)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    if step == int(sys.argv[2]):
        loss = loss * 0
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
print("trained to the end")
"""


@pytest.fixture
def script(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT)
    probe = tdbg("doctor", "--python", sys.executable, "--json")
    capture = next((f for f in json.loads(probe.stdout) if f["what"] == "tdbg._capture"), {"answer": "no Python"})
    if capture.get("verdict") != "good":
        pytest.skip(f"the extension does not load here: {capture['answer']}")
    return "train.py"


def test_a_fault_is_caught_stopped_explained_and_judged_alike_again(tdbg, script):
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "patience=1", "--rule", "loss_not_decreasing",
                "--on-issue", "stop", "--collect", "biases:5", "--", sys.executable, script, "2000", "30", timeout=120)
    assert done.returncode == 3, done.stderr
    assert "trained to the end" not in done.stdout
    assert "VanishingGradient found an issue at step 30 and stopped the training" in done.stderr
    report = tdbg.json("status", "r")
    vanishing, loss = report["rules"]
    assert vanishing["RuleEvaluationStatus"] == "IssuesFound" and loss["RuleEvaluationStatus"] == "NoIssuesFound"
    assert "TRAIN values are fewer than the 1000" in loss["StatusDetails"], "it says that it judged what there was"
    assert vanishing["findings"][0]["global_step"] == 30
    assert report["dropped"] == [] and report["damage"] == []

    again = tdbg("check", "r", "--own", "--json")
    assert again.returncode == 1
    for live, replayed in zip(report["rules"], json.loads(again.stdout)["rules"], strict=True):
        live.pop("LastModifiedTime"), replayed.pop("LastModifiedTime")
        assert live == replayed

    suggested = re.findall(r"^  (?:next)? +(tdbg .*)", done.stderr, re.MULTILINE)
    assert [line.split()[1] for line in suggested] == ["explain", "show", "rules", "report"], "four at most, the most useful first"
    assert "tdbg rules show vanishing_gradient" in suggested
    for line in suggested:
        pasted = subprocess.run([BINARY, *shlex.split(line)[1:]], cwd=tdbg.directory, env=tdbg.env, capture_output=True)
        assert pasted.returncode == (1 if "explain" in line else 0), (line, pasted.stderr)       # 1: there is something to explain
    assert tdbg.json("show", "r", "2.bias", "--raw", "--steps", "10")["values"][0]["shape"] == [10]


THREE_STEPS = """
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""


def _package(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "__main__.py").write_text(THREE_STEPS)
    return [sys.executable, "-m", "mine"]


def _console_script(folder):
    (folder / "train").write_text(f"#!{sys.executable}\n{THREE_STEPS}")
    (folder / "train").chmod(0o755)
    return ["sh", "-c", "./train"]


def _notebook(folder):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(THREE_STEPS)])
    nbformat.write(notebook, folder / "train.ipynb")
    return [sys.executable, "-c", "from nbclient.cli import main; main()", "train.ipynb"]     # what `jupyter execute` is


@pytest.mark.parametrize("command, read", [
    (_package, ""), (lambda _: [sys.executable, "-c", THREE_STEPS], ""), (lambda _: [sys.executable, "-"], THREE_STEPS),
    pytest.param(_console_script, "", marks=pytest.mark.long), (_notebook, "")], ids=["module", "command", "stdin", "console_script", "notebook"])
def test_a_training_is_watched_however_it_is_started(tdbg, script, command, read):
    done = tdbg("run", "--dir", "r", "--journal", "1MiB", "--", *command(tdbg.directory), stdin=read, timeout=120)
    assert done.returncode == 0, done.stderr
    assert tdbg.json("status", "r")["steps"]["TRAIN"] == 3, done.stderr


@pytest.mark.parametrize("how, code, words", [
    ("raise ValueError('the data is bad\\nand here is all of it')", 1, "ValueError: the data is bad"),
    ("os.kill(os.getpid(), 9)", 137, "gone without a goodbye, as a killed process is")], ids=["raised", "killed"])
def test_a_run_says_after_which_step_its_training_ended_and_how(tdbg, script, how, code, words):
    text = SCRIPT.replace("    optimizer.step()\n", f"    optimizer.step()\n    if step == 7:\n        {how}\n")
    assert text != SCRIPT
    (tdbg.directory / script).write_text("import os\n" + text)
    done = tdbg("run", "--dir", "r", "--", sys.executable, script, "20", "-1", timeout=120)
    assert done.returncode == code, done.stderr
    assert f"worker_0     after step 7: {words}\n" in done.stderr
    assert f"worker_0  after step 7: {words}\n" in tdbg.ok("status", "r").stdout
    failure, = tdbg.json("status", "r")["failures"]
    assert (failure["worker"], failure["last_step"], failure["reason"]) == ("worker_0", 7, "exception" if code == 1 else None)


@pytest.mark.long
def test_what_every_crashed_start_of_a_job_left_is_sealed(tdbg, script):
    text = SCRIPT.replace("    optimizer.step()\n", "    optimizer.step()\n    if step == 7:\n        os.kill(os.getpid(), 9)\n")
    (tdbg.directory / "dies.py").write_text("import os\n" + text)
    start = shlex.join([sys.executable, "dies.py", "20", "-1"])
    done = tdbg("run", "--dir", "r", "--journal", "4MiB", "--", "sh", "-c", f"{start}; {start}; {start}; exit 0", timeout=240)
    assert done.returncode == 0, done.stderr
    workers = [tdbg.directory / "r" / attempt / "worker_0" for attempt in "012"]
    assert [len(list(w.glob("segments/*.safetensors"))) for w in workers] == [1, 1, 1]
    assert all((w / "journal").stat().st_blocks * 512 < 1 << 20 for w in workers)


def test_a_healthy_training_is_left_alone(tdbg, script):
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "patience=1", "--rule", "loss_not_decreasing",
                "--on-issue", "stop", "--", sys.executable, script, "40", "-1", timeout=120)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 100, "its own directory has a short name"
    assert "trained to the end" in done.stdout and "tdbg: no issue found (completed)" in done.stderr
    # A short run is judged at its end by what there was.
    words = ("LossNotDecreasing NoIssuesFound, 1 step judged the loss's 40 TRAIN values are fewer than the 1000 that intervals of "
             "500 need, so the second half was compared with the first")
    assert words in " ".join(done.stderr.split()), done.stderr
    assert "tdbg check r\n" in done.stderr  # what did not watch may still see something
    assert tdbg.json("status", "r")["rules"][0]["steps_judged"] == 40


def test_a_watcher_from_outside_stops_a_training(tdbg, script):
    job = tdbg.start("run", "--quiet", "--dir", "r", "--", sys.executable, script, "2000", "50")
    tdbg.wait_for("r/0/worker_0/worker.json", seconds=60)
    watched = tdbg("watch", "r", "--rule", "vanishing_gradient", "patience=1", "name=outside", "--on-issue", "stop", timeout=120)
    assert watched.returncode == 1, watched.stderr
    assert job.wait(60) == 3
    assert tdbg.json("status", "r")["job"]["stopped_by"] == "outside"


BORN = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.head, self.steps = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1), 0
    def forward(self, x):
        self.steps += 1
        h = torch.relu(self.l1(x))
        return self.head(h * torch.log(h) if self.steps == 3 else h)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_a_nan_is_told_with_its_origin(tdbg, script):
    (tdbg.directory / "born.py").write_text(BORN)
    done = tdbg("run", "--dir", "born", "--", sys.executable, "born.py", timeout=120)
    assert done.returncode == 0
    assert "tdbg: the loss became NaN in log, between l1 and head, at step 2" in done.stderr
    words = " ".join(done.stderr.split())
    assert "values that it was given are 0; the infinity became NaN in mul, between l1 and head" in words
    (incident,) = tdbg.json("status", "born")["incidents"]
    assert incident["detector"] == "nonfinite" and incident["first_step"] == 2 and incident["evidence"]

    (origin,) = tdbg.json("status", "born")["nan_origins"]
    assert (origin["operation"], origin["after"], origin["before"], origin["global_step"]) == ("log", "l1", "head", 2)
    assert origin["numbers"]["zeros"] > 0 and origin["worker"] == "worker_0"
    events = [json.loads(line) for line in (tdbg.directory / "born" / "events.jsonl").read_text().splitlines()]
    (event,) = [event for event in events if event["kind"] == "nan_origin"]
    assert (origin["mode"], origin["mode_step"]) == ("TRAIN", 2)
    assert {key: event[key] for key in origin if not key.startswith("mode")} == {
        key: value for key, value in origin.items() if not key.startswith("mode")}
    again = tdbg("check", "born", "--json")
    assert again.returncode == 1 and json.loads(again.stdout)["nan_origins"] == [origin]
    assert "the loss became NaN in log" in tdbg("status", "born").stdout and "the loss became NaN in log" in tdbg("check", "born").stdout

    import tdbg as package

    (read,) = package.open(str(tdbg.directory / "born")).nan_origins()
    assert (read.operation, read.after, read.before, read.global_step) == ("log", "l1", "head", 2) and read.sentence in str(read)

    # One incident in one set of words, wherever it is asked for.
    assert "clamp what log is given from below" in origin["advice"] == read.advice and read.advice in words
    windows = [incident, *tdbg.json("check", "born", code=1)["incidents"], *tdbg.json("explain", "born", code=1)["incidents"]]
    windows += [last["incidents"][0] for last in [[e for e in events if e["kind"] == "rule_status"][-1]]]
    windows += [dataclasses.asdict(one) for one in package.open(str(tdbg.directory / "born")).incidents()]
    windows = [window for window in windows if window["id"] == "nonfinite"]    # `check` has other rules, too
    assert len(windows) == 5
    assert {(w["title"], w["sentence"], w["advice"]) for w in windows} == {(read.title, read.sentence, read.advice)}
    assert f"{read.title} at step 2" in tdbg.ok("ls", ".").stdout

def test_a_page_about_boosted_trees_is_none_about_another_librarys_training(tdbg, script):
    """Which has metrics and labels, too. Not named, the rule is one of those that had nothing to judge."""
    done = tdbg("run", "--dir", "r", "--rule", "create_xgboost_report", "--collect", "labels", "--", sys.executable, script, "12", "-1",
                timeout=120)
    words = " ".join(done.stderr.split())
    assert "it needs a training of XGBoost or LightGBM: its page is about boosted trees, and this is one of torch" in words
    assert not (tdbg.directory / "r" / "rule-output").exists()
    (rule,) = tdbg.json("status", "r")["rules"]
    assert rule["RuleEvaluationStatus"] == "Error" and "one of torch" in rule["StatusDetails"]

    assert tdbg("run", "--dir", "unnamed", "--collect", "labels", "--", sys.executable, script, "12", "-1", timeout=120).returncode == 0
    not_run = json.loads(tdbg("check", "unnamed", "--json").stdout)["not_run"]
    assert [rule["why"].endswith("this is one of torch") for rule in not_run if rule["rule"] == "CreateXgboostReport"] == [True]
    assert not (tdbg.directory / "unnamed" / "rule-output").exists()
