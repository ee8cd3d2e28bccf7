"""`tdbg mute`: an incident that is known is no issue, in its run and in its script's next ones, and hides nothing else."""

import json
import shutil
import subprocess
import sys

import pytest

from program import BINARY, until

# Nothing behind the cut has a gradient. With "later" it waits once that is found, and goes on when it is let.
SCRIPT = """
import os, sys, time, torch
import torch.nn.functional as F
torch.manual_seed(3)
torch.set_num_threads(1)
body, head = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01)
x, y = torch.randn(64, 16), torch.arange(64) % 4
for step in range(30):
    chosen = torch.randperm(64)[:16]
    loss = F.cross_entropy(head(torch.relu(body(x[chosen])).detach()), y[chosen])
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    while "later" in sys.argv and step == 20 and not os.path.exists("go"):
        time.sleep(0.05)
"""
BECAUSE = "its body is \x1b[31mfrozen"
ACT = "exec:printf '%s\\n' \"$TDBG_INCIDENT\" \"$TDBG_ADVICE\" > acted"


@pytest.fixture
def run(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT)

    def start(name, *flags, script="train.py", cwd=None, words=()):
        return tdbg("run", "--dir", str(tdbg.directory / name), *flags, "--", sys.executable, script, *words, timeout=600, cwd=cwd)

    return start


def said(done):
    return " ".join((done.stdout + done.stderr).split())


def test_a_muted_incident_is_no_issue_here_and_in_the_next_runs_of_the_script(tdbg, run):
    first = run("first", "--on-issue", ACT)
    assert first.returncode == 0 and "parameters get no gradient, at" in first.stderr, first
    incident = tdbg.json("status", "first")["incidents"][0]
    sentence, advice = (tdbg.directory / "acted").read_text().splitlines()
    assert sentence == incident["sentence"] and advice == incident["advice"] and not incident["muted"]
    (tdbg.directory / "acted").unlink()
    assert tdbg("check", "first", "--own").returncode == 1 and tdbg("explain", "first").returncode == 1

    done = tdbg.ok("mute", "first", "1", "--because", BECAUSE)
    assert str(tdbg.directory / "train.py") in said(done) and "\x1b" not in done.stderr
    for command in (["status", "first", "--exit-code"], ["check", "first", "--own"], ["explain", "first"]):
        told = tdbg.ok(*command)
        assert "parameters get no gradient" in told.stdout and "frozen" in told.stdout, told
        assert "\x1b" not in told.stdout and "\nincident" not in "\n" + told.stdout, told
    assert "none, 1 muted" in tdbg("ls", ".").stdout
    (told,), (again,) = tdbg.json("status", "first")["incidents"], tdbg.json("check", "first", "--own")["incidents"]
    assert told == again and told["muted"] and told["because"] == BECAUSE and told["evidence"] == incident["evidence"]
    (rule,) = tdbg.json("status", "first")["rules"]
    assert rule["RuleEvaluationStatus"] == "NoIssuesFound" and rule["findings"] and "frozen" in rule["StatusDetails"]
    tdbg.ok("report", "first", "--output", "page.html")
    assert "1 incident is muted" in (tdbg.directory / "page.html").read_text()

    # Whatever its arguments and the directory that it is started from.
    (tdbg.directory / "elsewhere").mkdir()
    (tdbg.directory / "handlers.yaml").write_text("handlers: [{log: heard.jsonl}]\n")
    second = run("second", "--on-issue", ACT, "--on-event", "../handlers.yaml", script="../train.py",
                 cwd=tdbg.directory / "elsewhere", words=["--lr", "1"])
    assert second.returncode == 0 and said(second).count("1 incident is muted for this script: parameters get no gradient") == 1
    assert "no issue found, 1 incident is muted" in said(second) and "ISSUE" not in second.stderr, second
    assert not list(tdbg.directory.rglob("acted"))
    heard = (tdbg.directory / "heard.jsonl").read_text()
    assert '"NoIssuesFound"' in heard and '"IssuesFound"' not in heard
    assert tdbg("check", "second", "--own").returncode == 0
    assert "found here at" in said(tdbg.ok("mute", "second"))

    import tdbg as package

    (read,) = package.open(str(tdbg.directory / "second")).incidents()
    assert read.muted and read.because == BECAUSE and "muted" in package.open(str(tdbg.directory / "second")).incidents()._repr_html_()

    shutil.copy(tdbg.directory / "train.py", tdbg.directory / "other.py")
    other = run("other", script="other.py")
    assert "parameters get no gradient, at" in other.stderr and "muted" not in said(other)

    tdbg.ok("mute", "second", "no_gradient", "--undo")
    assert tdbg("check", "second", "--own").returncode == 1 and tdbg("check", "first", "--own").returncode == 0
    third = run("third", "--on-issue", ACT)
    assert "parameters get no gradient, at" in third.stderr and "muted" not in said(third)
    assert (tdbg.directory / "acted").read_text().startswith(sentence)


def test_what_a_run_brings_with_it_mutes_nothing_of_mine(tdbg, run):
    run("mine")
    tdbg.ok("mute", "mine", "no_gradient", "--because", "its body is frozen")
    shutil.copytree(tdbg.directory / "mine", tdbg.directory / "received")
    me = {"XDG_STATE_HOME": str(tdbg.directory / "me")}
    assert "muted" in tdbg("status", "received", env=me).stdout
    again = tdbg.ok("mute", "received", "no_gradient", "--because", "I have looked at it", env=me)
    assert "in this one alone" in said(again)
    assert "I have looked at it" in said(tdbg("explain", "received", env=me))
    fresh = tdbg("run", "--dir", "fresh", "--", sys.executable, "train.py", env=me, timeout=600)
    assert "parameters get no gradient, at" in fresh.stderr and "muted" not in said(fresh)

    # A list that others may write to is not the user's own.
    users = tdbg.directory / ".state" / "tdbg" / "muted.json"
    assert users.stat().st_mode & 0o777 == 0o600
    users.chmod(0o666)
    open_to_all = run("open")
    assert "parameters get no gradient, at" in open_to_all.stderr and "others may write to it" in said(open_to_all)


@pytest.mark.parametrize("damage", ["[", "{}", '{"version": 2, "muted": []}', '{"version": 1, "muted": [{"because": "x"}]}',
                                    '{"version": 1, "muted": [{"because": 1, "what": [{"detector": "no_gradient", "place": "Linear"}]}]}',
                                    "[" * 100000, "directory"])
def test_a_damaged_list_mutes_nothing_and_is_said(tdbg, run, damage):
    if not (tdbg.directory / "r").exists():
        run("r")
    path = tdbg.directory / "r" / "muted.json"
    path.mkdir() if damage == "directory" else path.write_text(damage)
    for command in (["status", "r", "--exit-code"], ["check", "r", "--own"], ["explain", "r"]):
        done = tdbg(*command)
        assert done.returncode == 1 and "muted.json" in done.stderr and "nothing is muted" in done.stderr, done
    import tdbg as package

    assert [i.muted for i in package.open(str(tdbg.directory / "r")).incidents()] == [False]
    assert tdbg("mute", "r", "1", "--because", "x").returncode in (5, 7)


TENSORS = ["Net_l1.weight", "gradient/Net_l1.weight", "gradient/Net.l1.weight", "context/lr.0", "context/lr/SGD/0", "CrossEntropyLoss_output_0",
           "", "a", ".", "/", "a/", "/a.b", "a.b/c", "a.b/.c", "..", "a..b", "gradient/context/x.y", "contextual/a.b", "Net_\u00e4.w",
           "l\u00f6ss/x.\u2028y", "a b.c", "context/", "context", "x" * 300 + ".w", "gradient/gradient/a.b.c.d"]


def test_python_takes_for_muted_what_the_program_does(tdbg):
    """Whatever tensors are called: every second one is muted, by the program, and both read it back."""
    findings, incidents = [], []
    for number, tensor in enumerate(TENSORS):
        worker = f"worker_{number % 3}"
        findings.append({"global_step": number, "tensor": tensor, "worker": worker, "measure": "", "value": 0, "comparison": "",
                         "threshold": 0, "text": f"number {number}", "detector": "rank_died"})
        incidents.append({"id": f"rank_died-{number}", "detector": "rank_died", "title": "a rank died", "sentence": f"number {number}",
                          "first_step": number, "tensor": tensor, "worker": worker})
    run = tdbg.directory / "r"
    tdbg.ok("run", "--quiet", "--dir", "r", "--", "true")

    def record(of):
        status = {"kind": "rule_status", "wall_nanos": 1, "name": "Profile", "rule": "Profile", "status": "IssuesFound", "global_step": 99,
                  "findings": [findings[at] for at in of], "incidents": [incidents[at] for at in of]}
        with open(run / "events.jsonl", "a") as events:
            events.write(json.dumps(status) + "\n")

    import tdbg as package

    for number in range(0, len(TENSORS), 2):
        record([number])
        tdbg.ok("mute", "r", "1", "--because", "it is meant")
    seen = set()
    for number, tensor in enumerate(TENSORS):
        record([number])
        (theirs,), (ours,) = tdbg.json("status", "r")["incidents"], package.open(str(run)).incidents()
        assert (theirs["tensor"], theirs["muted"]) == (ours.tensor, ours.muted), tensor
        assert ours.muted or number % 2, tensor
        seen.add(ours.muted)
    assert seen == {False, True}


def test_what_cannot_be_muted_says_why(tdbg, run):
    run("r", "--rule", "profile", "--rule", "vanishing_gradient")
    for words, code, text in [(["r", "9", "--because", "x"], 4, "no_gradient"), (["r", "no_gradient"], 2, "--because"),
                              (["r", "no_such", "--because", "x"], 4, "no incident 'no_such'"), (["r", "--undo"], 2, "which incident"),
                              (["r", "1", "--because", "x" * 500], 2, "500 bytes"), (["r", "no_gradient", "--undo"], 4, "nothing is muted"),
                              (["s3://bucket/r", "1", "--because", "x"], 7, "bucket")]:
        done = tdbg("mute", *words)
        assert done.returncode == code and text in done.stderr, (words, done)
    assert "nothing is muted" in tdbg.ok("mute", "r").stderr and tdbg.json("mute", "r")["muted"] == []


def test_an_incident_that_is_muted_while_the_job_runs_is_none_at_its_end(tdbg, run):
    job = subprocess.Popen([BINARY, "run", "--dir", "r", "--", sys.executable, "train.py", "later"], cwd=tdbg.directory,
                           env=tdbg.env, stderr=subprocess.PIPE, text=True)
    try:
        events = tdbg.directory / "r" / "events.jsonl"
        until(lambda: events.exists() and '"no_gradient"' in events.read_text(), "the incident")
        tdbg.ok("mute", "r", "no_gradient", "--because", "its body is frozen")
        until(lambda: '"muted":true' in events.read_text(), "the watcher has heard of it")
        assert tdbg.json("status", "r")["rules"][0]["RuleEvaluationStatus"] == "InProgress"
    finally:
        (tdbg.directory / "go").touch()
        told = job.communicate(timeout=600)[1]
    assert job.returncode == 0 and "no issue found, 1 incident is muted" in " ".join(told.split()), told
    assert json.loads(tdbg("status", "r", "--json").stdout)["rules"][0]["RuleEvaluationStatus"] == "NoIssuesFound"


# Each evaluation is NaN. With "worse" its training is, too, from step 40 on; with "later" it waits before that.
VALIDATES = """
import os, sys, time, torch
import torch.nn.functional as F
torch.manual_seed(3)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
x, y = torch.randn(64, 16), torch.arange(64) % 4
for step in range(60):
    chosen = torch.randperm(64)[:16]
    loss = F.cross_entropy(net(x[chosen]), y[chosen])
    if "worse" in sys.argv and step == 40:
        loss = loss * torch.log(torch.zeros(()))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step % 10 == 9:
        net.eval()
        with torch.no_grad():
            F.cross_entropy(net(x) * float("nan"), y)
        net.train()
    while "later" in sys.argv and step == 30 and not os.path.exists("go"):
        time.sleep(0.05)
"""


def check_that_the_training_is_told_and_the_evaluation_muted(tdbg, name):
    told = tdbg.json("status", name)
    heard, *muted = told["incidents"]
    assert (heard["detector"], heard["first_step"], heard["muted"]) == ("nonfinite", 44, False)
    assert heard["sentence"] == told["nan_origins"][0]["sentence"] and told["nan_origins"][0]["global_step"] == 44
    assert all(one["detector"] == "nonfinite" and one["muted"] for one in muted) and muted[0]["first_step"] == 10
    assert "if the training itself stays finite" in muted[0]["advice"] and muted[0]["sentence"].endswith("is NaN")
    (rule,) = told["rules"]
    assert rule["RuleEvaluationStatus"] == "IssuesFound"
    for command in (["status", name, "--exit-code"], ["check", name, "--own"], ["explain", name]):
        assert tdbg(*command).returncode == 1, command
    return heard


def found_lines(tdbg, name):
    events = [json.loads(line) for line in (tdbg.directory / name / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == "found"]


def test_a_muted_nan_of_evaluations_hides_none_of_the_training(tdbg, run):
    (tdbg.directory / "train.py").write_text(VALIDATES)
    run("first")
    (incident,) = tdbg.json("status", "first")["incidents"]
    assert incident["first_step"] == 10 and tdbg("status", "first", "--exit-code").returncode == 1
    tdbg.ok("mute", "first", "nonfinite", "--because", "its last batch is empty")
    well = run("well")
    assert "no issue found, 1 incident is muted" in said(well) and not found_lines(tdbg, "well"), well
    for command in (["status", "well", "--exit-code"], ["check", "well", "--own"], ["explain", "well"]):
        tdbg.ok(*command)

    worse = run("worse", words=["worse"])
    heard = check_that_the_training_is_told_and_the_evaluation_muted(tdbg, "worse")
    (line,) = found_lines(tdbg, "worse")
    assert line["global_step"] == 44 and heard["sentence"] in line["text"]
    assert line["text"].split(": ", 1)[1][:40] in said(worse), "and says so on the terminal"


def test_a_nan_that_is_muted_while_the_job_runs_hides_no_later_one(tdbg, run):
    (tdbg.directory / "train.py").write_text(VALIDATES)
    job = tdbg.start("run", "--dir", "r", "--", sys.executable, "train.py", "worse", "later", stderr=subprocess.PIPE)
    try:
        events = tdbg.directory / "r" / "events.jsonl"
        until(lambda: events.exists() and found_lines(tdbg, "r"), "the evaluation's NaN")
        tdbg.ok("mute", "r", "nonfinite", "--because", "its last batch is empty")
        until(lambda: '"muted":true' in events.read_text(), "the watcher has heard of it")
    finally:
        (tdbg.directory / "go").touch()
        told = job.communicate(timeout=600)[1]
    assert job.returncode == 0, told
    check_that_the_training_is_told_and_the_evaluation_muted(tdbg, "r")
    assert [line["global_step"] for line in found_lines(tdbg, "r")] == [10, 44], told


def test_an_explanation_draws_what_the_finding_kept(tdbg):
    (tdbg.directory / "jump.py").write_text("""
import torch, torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x, y = torch.randn(64, 16), torch.arange(64) % 4
for step in range(45):
    loss = F.cross_entropy(model(x), y) * (1000 if step == 40 else 1)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""")
    tdbg.ok("run", "--dir", "r", "--", sys.executable, "jump.py", timeout=600)
    (incident,) = tdbg.json("status", "r")["incidents"]
    finding = incident["evidence"][0]
    assert finding["expected"] == {"least": None, "most": finding["threshold"]} and finding["value"] > finding["threshold"]
    history = finding["history"]
    assert history["of"] == "l2" and history["steps"] == list(range(29, 41)) and max(history["values"]) == history["values"][-1]
    assert tdbg.json("check", "r", "--own", code=1)["incidents"] == [incident], "judged again it is what was said live"
    told = tdbg("explain", "r").stdout
    assert "▁▁▁█ l2 of gradient/Linear_weight, steps 29 to 40" in told and "expected at most" in told, told
    assert len(told.splitlines()) <= 20 and max(map(len, told.splitlines())) <= 100
