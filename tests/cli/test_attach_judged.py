"""tdbg.attach with rules or actions in its configuration: a watcher beside the training judges it, one and never two, and
is gone with it, however it ended."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from program import BINARY, ROOT, processes_marked, until

pytest.importorskip("torch")
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))

#: Trains a step for each line that it is told: "ok", or "nan" for one with a NaN in it; "fork": makes a child that outlives
#: it. Says after each what it did. Ends where nothing more is said.
PROGRAM = """
import json, os, sys, time
import torch
import tdbg

model = torch.nn.Linear(20, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
config = sys.argv[1] if sys.argv[1].endswith(".yaml") else json.loads(sys.argv[1])
attached = tdbg.attach(model, config=config, **({"dir": sys.argv[2]} if len(sys.argv) > 2 else {}))
print("attached", flush=True)
for line in sys.stdin:
    if line == "fork\\n":
        if os.fork() == 0:
            os.close(0), os.close(1), os.close(2)
            time.sleep(30)
            os._exit(0)
    elif line == "close\\n":
        attached.close()
    else:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 20)).pow(2).mean()
        (loss * float("nan") if line == "nan\\n" else loss).backward()
        optimizer.step()
    print("done", line, end="", flush=True)
"""


class Training:
    def __init__(self, tdbg, config, *, before=(), directory="run"):
        env = {**tdbg.env, "TDBG_CLI": str(BINARY), "PYTHONPATH": HOME}
        command = [*before, sys.executable, "-c", PROGRAM, config if isinstance(config, str) else json.dumps(config)]
        self.process = subprocess.Popen([*command, *([directory] if directory else [])], cwd=tdbg.directory, env=env,
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout.readline() == "attached\n", self.process.stderr.read()

    def __call__(self, *words):
        for word in words:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == f"done {word}\n", self.process.stderr.read()

    def train_until_it_ends(self):
        """Steps, until the process is told to stop; returns its exit code."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.process.stdin.write("ok\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                break
            if self.process.stdout.readline() == "":
                break
        return self.process.wait(timeout=60)

    def end(self):
        _, self.stderr = self.process.communicate(timeout=90)
        return self.process.returncode


def watchers(tdbg):
    return [process for process in processes_marked(tdbg.mark) if " watch " in process[1]]


def events(tdbg, kind, run="run"):
    path = tdbg.directory / run / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [event for event in lines if event["kind"] == kind]


def verdicts(tdbg, run="run"):
    return {event["name"]: event["status"] for event in events(tdbg, "rule_status", run)}


GUARD = {"rules": ["exploding_tensor"], "on_issue": ["stop"]}


def test_a_training_that_attaches_itself_is_stopped_by_its_rule(tdbg):
    training = Training(tdbg, GUARD)
    training("ok", "ok", "nan")
    assert training.train_until_it_ends() == -signal.SIGTERM
    training.end()
    until(lambda: not watchers(tdbg), "the end of the watcher")
    assert verdicts(tdbg) == {"ExplodingTensor": "IssuesFound"}
    assert [(a["action"], a["ok"]) for a in events(tdbg, "action")] == [("stop", True)]
    assert "tdbg: ISSUE" in training.stderr and "stopping, as asked" in training.stderr


def test_actions_alone_are_asked_for_by_a_file_too(tdbg):
    """Without rules the profile judges, as under `tdbg run`."""
    (tdbg.directory / "debug.yaml").write_text("on_issue: ['exec:touch found']\n")
    training = Training(tdbg, "debug.yaml")
    training("ok", "nan", "ok")
    tdbg.wait_for("found", 60)
    assert training.end() == 0


def test_a_secret_of_an_action_reaches_it(tdbg):
    """It is not in the run, which anybody may read, and the watcher has it all the same."""
    config = {"rules": ["exploding_tensor"], "on_issue": ["exec:API_TOKEN=swordfish sh -c 'echo $API_TOKEN > said'"]}
    training = Training(tdbg, config)
    training("ok", "nan")
    until(lambda: (tdbg.directory / "said").exists() and (tdbg.directory / "said").read_text() == "swordfish\n", "the action")
    assert training.end() == 0
    assert "swordfish" not in (tdbg.directory / "run" / "rules.json").read_text()


@pytest.mark.parametrize("ending", ["orderly", "killed", pytest.param("closed", marks=pytest.mark.long)])
def test_the_last_step_is_judged_and_the_watcher_gone(tdbg, ending):
    training = Training(tdbg, {"rules": ["exploding_tensor"]})
    training("ok", "ok")
    if ending == "killed":
        training("nan")
        training.process.kill()
        training.end()
    elif ending == "closed":
        training("nan", "close")
        until(lambda: not watchers(tdbg), "the end of the watcher beside a process that goes on")
        assert training.end() == 0
    else:
        training("nan")
        assert training.end() == 0
        assert not watchers(tdbg)     # it was waited for: in a container nothing lives on
    until(lambda: not watchers(tdbg), "the end of the watcher")
    assert verdicts(tdbg) == {"ExplodingTensor": "IssuesFound"}


def test_who_asks_for_no_judgement_has_no_watcher(tdbg):
    training = Training(tdbg, {"collections": {"weights": {"raw": True}}})
    training("ok")
    assert not watchers(tdbg)
    assert training.end() == 0
    assert not events(tdbg, "rule_status")


def test_under_a_launcher_there_is_no_second_watcher(tdbg):
    training = Training(tdbg, GUARD, before=[str(BINARY), "run", "--quiet", "--rule", "loss_not_decreasing", "--dir", "run", "--"], directory=None)
    training("ok", "ok")
    assert not watchers(tdbg)
    training.end()
    assert "`config` is not used" in training.stderr
    assert set(verdicts(tdbg)) == {"LossNotDecreasing"}


@pytest.mark.parametrize("when", [pytest.param("before the first step", marks=pytest.mark.long), "while it trains"])
def test_a_child_that_outlives_the_training_does_not_hold_the_watcher(tdbg, when):
    training = Training(tdbg, {"rules": ["exploding_tensor"]})
    training(*(["fork", "ok"] if when == "before the first step" else ["ok", "fork"]))
    child = [pid for pid, _ in processes_marked(tdbg.mark) if pid != training.process.pid and not any(pid == w[0] for w in watchers(tdbg))]
    training.process.stdin.close()
    training.process.wait(timeout=90)
    until(lambda: not watchers(tdbg), "the end of the watcher")
    assert child and [pid for pid, _ in processes_marked(tdbg.mark)] == child
    for pid in child:
        os.kill(pid, signal.SIGKILL)


def test_the_next_start_is_not_stopped_for_what_the_last_one_did(tdbg):
    first = Training(tdbg, GUARD)
    first("ok", "nan")
    first.train_until_it_ends()
    first.end()
    second = Training(tdbg, GUARD)
    second("ok", "ok", "ok", "ok", "ok")
    assert second.end() == 0
    assert [a["attempt"] for a in events(tdbg, "action")] == [0]


def test_of_two_watchers_of_one_training_one_speaks_and_the_other_takes_its_place(tdbg):
    training = Training(tdbg, {"collections": {"weights": {"raw": True}}})
    training("ok")
    command = [str(BINARY), "watch", "run", "--launched", "0", "--rule", "exploding_tensor"]
    both = []
    for _ in range(2):
        both.append(subprocess.Popen(command, cwd=tdbg.directory, env=tdbg.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        until(lambda: events(tdbg, "rule_status"), "the first one's words")
    training("ok", "ok")
    until(lambda: "step" in json.dumps(events(tdbg, "rule_status")[-1]), "a word")
    assert len([e for e in events(tdbg, "rule_status") if e["status"] == "InProgress"]) == 1
    both[0].kill()
    both[0].wait()
    training("nan")
    until(lambda: verdicts(tdbg) == {"ExplodingTensor": "IssuesFound"}, "the second one's verdict")
    assert training.end() == 0
    for watcher in both:
        watcher.stdin.close()
        watcher.wait(timeout=60)


#: What rule_configs.exploding_tensor() of smdebug_rulesconfig 1.0.1 returns, and with a collection as others have.
PACKAGED = {"DebugRuleConfiguration": {"RuleConfigurationName": "ExplodingTensor", "RuleParameters": {"rule_to_invoke": "ExplodingTensor"}},
            "CollectionConfigurations": [{"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}}]}


def test_rules_of_the_sdks_package_are_taken(tdbg):
    training = Training(tdbg, {"rules": [PACKAGED, {"base_config": PACKAGED, "name": "weights", "rule_parameters": {"collection_names": "weights"}}]})
    training("ok", "nan", "ok")
    assert training.end() == 0
    assert verdicts(tdbg) == {"ExplodingTensor": "IssuesFound", "weights": "IssuesFound"}


@pytest.mark.parametrize(("arguments", "error"), [
    ("rules=[{'rule': 'exploding_tensor', 'parameter': 1}]", 'unknown key "parameter"'),
    ("rules=['exploding_tenser']", "exploding_tensor"),
    ("rules=[], config='debug.yaml'", "`config` is a file, debug.yaml; put the rules there"),
    ("rule=['exploding_tensor']", r"attach(rule=...): unknown; there are model, config, dir, framework, rules"),
])
def test_what_attach_does_not_know_is_refused_before_training(tmp_path, arguments, error):
    code = f"import tdbg, torch\ntdbg.attach(torch.nn.Linear(2, 2), {arguments})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": HOME, "TDBG_CLI": str(BINARY)})
    assert done.returncode == 1 and error in done.stderr, done.stderr


def test_rules_are_an_argument_too(tmp_path):
    code = "import tdbg, torch, json\nrun = tdbg.attach(torch.nn.Linear(2, 2), config={'on_issue': ['stop']}, dir='run', " \
           "rules=[{'rule': 'exploding_tensor'}, 'vanishing_gradient'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": HOME, "TDBG_CLI": str(BINARY)})
    assert done.returncode == 0, done.stderr
    rules = json.loads((tmp_path / "run" / "rules.json").read_text())["rules"]
    assert [(r["rule"], r["on_issue"]) for r in rules] == [("exploding_tensor", ["stop"]), ("vanishing_gradient", ["stop"])]


def test_rules_without_the_program_are_refused_before_training(tmp_path):
    """Nothing could judge: that is said before the first step, and not found out after the last."""
    code = "import os, tdbg, torch\nfrom tdbg.adaptors import plan\nplan.find_cli = lambda: None\n" \
           "tdbg.attach(torch.nn.Linear(2, 2))"
    env = {**os.environ, "PYTHONPATH": HOME, "TDBG_CONFIG": '{"rules": ["exploding_tensor"]}'}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "a configuration needs the command line" in done.stderr


def test_a_script_that_may_die_of_a_pipe_does_not_die_of_a_watcher_that_is_gone(tmp_path):
    script = """
import signal
from tdbg.adaptors.beside import Beside, wait
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
beside = Beside()
beside.start(["true"])
beside._processes[0].wait()
print(wait(beside.let_go()), signal.SIGPIPE in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": HOME})
    assert (done.returncode, done.stdout) == (0, "[] False\n"), done.stderr
