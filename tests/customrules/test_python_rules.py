"""Rules in Python: what they find, what they break, what is refused before training."""

import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from judging import BINARY, ROOT, STEPS, Judge

EXAMPLES = ROOT / "examples" / "rules"

NATIVE = '''
import numpy as np
import tdbg

class Grows(tdbg.Rule):
    """A gradient's mean is above a threshold."""
    needs = tdbg.needs("gradients")
    threshold: float = tdbg.parameter(5.0, minimum=0)
    kind: str = tdbg.parameter("mean", choices=("mean", "abs_max"))
    loud: bool = False

    def judge(self, step):
        s = step.statistics("gradients")
        column = getattr(s, self.kind)
        if self.loud:
            print("looking at", step.global_step, step.mode.name, step.mode_step, len(s))
        return [s.finding(i, self.kind, ">", self.threshold) for i in np.flatnonzero(column > self.threshold)]
'''


def test_the_example_for_smdebug_runs_unchanged(judge):
    found = judge.check("--rule-file", f"{EXAMPLES}/custom_gradient_rule.py:CustomGradientRule", "threshold=9.5")
    status = found["CustomGradientRule"]
    # Raw values are kept every 5 steps, so these are the saved ones: 10 is the first above 9.5.
    assert status["RuleEvaluationStatus"] == "IssuesFound"
    assert status["StatusDetails"].startswith("RuleEvaluationConditionMet: Evaluation of the rule CustomGradientRule "
                                              "at step 10 resulted in the condition being met")


def test_the_example_for_tdbg_names_tensor_value_and_threshold(judge):
    found = judge.check("--rule-file", f"{EXAMPLES}/gradient_rule.py:LargeGradient", "threshold=9.5")
    finding, = found["LargeGradient"]["findings"]
    assert (finding["global_step"], finding["tensor"]) == (10, "gradient/a")
    assert (finding["measure"], finding["value"], finding["comparison"], finding["threshold"]) == ("mean_abs", 10, ">", 9.5)


def test_typed_parameters_arrive_typed_and_prints_are_kept(judge):
    file = judge.file("mine.py", NATIVE)
    status = judge.check("--rule-file", f"{file}:Grows", "threshold=3", "kind=abs_max", "loud=True")["Grows"]
    assert status["findings"][0]["value"] == 4 and status["findings"][0]["measure"] == "abs_max"
    status = judge.check("--rule-file", f"{file}:Grows", "threshold=1000")["Grows"]
    assert status["RuleEvaluationStatus"] == "NoIssuesFound" and status["steps_judged"] == STEPS


@pytest.mark.parametrize("words, said", [
    (["threshold=x"], "parameter threshold: 'x' is not a number, at least 0 (declared at {file}:8)"),
    (["threshold=-1"], "parameter threshold: '-1' is not a number, at least 0"),
    (["treshold=1"], "parameter treshold: unknown, did you mean threshold?"),
    (["kind=median"], "parameter kind: 'median' is not one of mean, abs_max (declared at {file}:9)"),
    (["loud=perhaps"], "'perhaps' is not True or False"),
])
def test_malformed_parameters_are_refused_with_the_line_that_declares_them(judge, words, said):
    file = judge.file("mine.py", NATIVE)
    assert said.format(file=file) in judge.refused("--rule-file", f"{file}:Grows", *words)


@pytest.mark.parametrize("text, name, said", [
    (None, "X", "no such file of rules"),
    ("class A:\n  def f(:\n", "A", "mine.py:2: SyntaxError"),
    ("import nothing_of_that_name\n", "A", "mine.py:1: ModuleNotFoundError"),
    ("x = 1\ny = x / 0\n", "A", "mine.py:2: ZeroDivisionError"),
    (NATIVE, "Grow", "holds no class 'Grow'; there is Grows"),
    ("class A:\n  pass\n", "A", "mine.py:1: A is no rule"),
    ("import tdbg\nclass A(tdbg.Rule):\n  x: complex = 1\n", "A", "mine.py:3: parameter x: the type"),
    ("import os\nos._exit(3)\n", "A", "its process exited with code 3 while it started"),
])
def test_files_that_cannot_be_used_are_refused_with_file_and_line(judge, text, name, said):
    file = judge.directory / "mine.py" if text is None else judge.file("mine.py", text)
    assert said in judge.refused("--rule-file", f"{file}:{name}")


def test_a_rule_of_a_file_is_shown_as_its_author_wrote_it(judge):
    file = judge.file("mine.py", NATIVE.replace('threshold."""', 'threshold.\n\n    Raise it for large models.\n    """'))
    text = judge("rules", "show", "--rule-file", f"{file}:Grows").stdout
    for said in ("Grows", "A gradient's mean is above a threshold.", "threshold  float   5.0", "Needs statistics of gradients.",
                 "Raise it for large models."):
        assert said in text, text
    shown = json.loads(judge("rules", "show", f"{file}:Grows", "--json").stdout)
    assert shown["page"] == "Raise it for large models." and shown["needs"]["collections"] == ["gradients"]
    assert [p["name"] for p in shown["parameters"]] == ["threshold", "kind", "loud"]


@pytest.mark.parametrize("words, said", [
    (["show", "mine.py:Nothing"], "holds no class 'Nothing'; there is Grows"),
    (["show", "other.py:Grows"], "no such file of rules"),
    (["show", "mine.py:Grows", "vanishing_gradient"], "one rule at a time"),
    (["show", "vanishing_gradient", "--rule-file", "mine.py:Grows"], "one rule at a time"),
])
def test_what_cannot_be_shown_is_refused(judge, words, said):
    judge.file("mine.py", NATIVE)
    done = judge("rules", *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_word_that_is_no_rule_file_is_refused(judge):
    assert "FILE.py:CLASS" in judge.refused("--rule-file", "mine.py")
    assert "Python source" in judge.refused("--rule-file", "mine.txt:A")


MISBEHAVING = '''
import os, sys, time
import tdbg
from smdebug.rules.rule import Rule

class Base(tdbg.Rule):
    needs = tdbg.needs("gradients")
    def judge(self, step):
        if step.global_step == 3:
            print("about to", type(self).__name__)
            self.fail()
        return False

class Raises(Base):
    def fail(self):
        raise ValueError("on purpose")

class Misnames(Base):
    def fail(self):
        raise ValueError("no such file: " + os.fsdecode(b"gr\\xe4dient"))     # a name that is no UTF-8

class Loops(Base):
    def fail(self):
        while True:
            pass

class Sleeps(Base):
    def fail(self):
        time.sleep(1000)

class Allocates(Base):
    def fail(self):
        kept = []
        while True:
            kept.append(bytearray(1 << 24))

class Leaves(Base):
    def fail(self):
        os._exit(9)

class Exits(Base):
    def fail(self):
        sys.exit("enough")

class Dies(Base):
    def fail(self):
        import ctypes
        ctypes.string_at(0)

class Talks(Base):
    def fail(self):
        os.write(1, b"x" * 1_000_000)
        os.closerange(3, 1000)

class OfTheOld(Rule):
    def __init__(self, base_trial, other_trials=None):
        super().__init__(base_trial, other_trials)
    def invoke_at_step(self, step):
        raise KeyError("of smdebug's kind")
'''


def test_whatever_a_rule_does_is_its_error_and_the_others_end_with_their_verdicts(judge):
    file = judge.file("bad.py", MISBEHAVING)
    words = ["--rule", "exploding_tensor", "--rule-file", f"{judge.file('mine.py', NATIVE)}:Grows"]
    for name in ("Raises", "Misnames", "Loops", "Sleeps", "Allocates", "Leaves", "Exits", "Dies", "Talks"):
        words += ["--rule-file", f"{file}:{name}", "limit_seconds=2", "limit_memory=400MiB"]
    words += ["--rule-file", f"{file}:OfTheOld"]
    found = judge.check(*words)
    for name, said in {
            "Raises": "ValueError: on purpose at step 3\n  File \"%s\", line 11, in judge" % file,
            "Misnames": "ValueError: no such file: gr?dient at step 3",
            "Loops": "it was still busy after 2 s (limit_seconds) at step 3, and was ended",
            "Sleeps": "it was still busy after 2 s (limit_seconds) at step 3, and was ended",
            "Allocates": "MemoryError at step 3",
            "Leaves": "its process exited with code 9 at step 3",
            "Exits": "SystemExit: enough at step 3",
            "Dies": "its process was ended by signal 11 SIGSEGV at step 3",
            "OfTheOld": "KeyError: \"of smdebug's kind\" at step 0",
    }.items():
        assert found[name]["RuleEvaluationStatus"] == "Error", (name, found[name])
        assert found[name]["StatusDetails"].startswith(said), (name, found[name]["StatusDetails"])
    assert found["Talks"]["RuleEvaluationStatus"] == "Error"
    for name, line in {"Loops": "in fail", "Sleeps": "in fail", "Dies": "string_at"}.items():
        assert line in found[name]["StatusDetails"], "a traceback says where"
    assert found["ExplodingTensor"]["RuleEvaluationStatus"] == "NoIssuesFound"
    assert found["Grows"]["RuleEvaluationStatus"] == "IssuesFound"


CAUSAL = '''
import tdbg
from smdebug.rules.rule import Rule
from smdebug.exceptions import StepNotYetAvailable

class Looks(tdbg.Rule):
    """Sees the judged step and nothing behind it, whenever somebody looks."""
    needs = tdbg.needs("gradients")
    def judge(self, step):
        s, t = step.global_step, step.trial
        a = t.tensor("gradient/a")
        assert t.steps() == list(range(s + 1)), t.steps()
        assert list(a.series("mean")[0]) == list(range(s + 1))
        assert not t.loaded_all_steps and t.state == "running" and t.last_complete_step == s
        for ask in (lambda: a.summary(s + 1), lambda: a.value(s + 1), lambda: t.wait_for_steps([s + 1])):
            try:
                ask()
            except StepNotYetAvailable:
                continue
            except Exception as error:
                raise AssertionError(f"another error: {error!r}")
            raise AssertionError("it saw a step behind the judged one")
        assert t.step(s + 1) is None and t.global_step("TRAIN", s + 1) is None
        return False
    def at_end(self, step):
        assert step.trial.loaded_all_steps
        return "the end"

class Values(tdbg.Rule):
    needs = tdbg.needs("gradients", raw=True, every=5)
    def judge(self, step):
        got = {name: float(value[0]) for name, worker, value in step.values("gradients")}
        assert got == ({"gradient/a": step.global_step, "gradient/b": 1} if step.global_step % 5 == 0 else {}), got
        return False

class Requires(Rule):
    def __init__(self, base_trial, threshold="3", **more):
        super().__init__(base_trial)
        assert more == {"extra": "1"}, more
        self.threshold = float(threshold)
    def set_required_tensors(self, step):
        self.req_tensors.add("gradient/a", steps=[step])
    def invoke_at_step(self, step):
        assert step % 5 == 0
        return any(t.value(step).mean() > self.threshold for t in self.req_tensors.get())
'''


def test_a_rule_sees_the_run_up_to_the_judged_step(judge):
    file = judge.file("causal.py", CAUSAL)
    found = judge.check("--rule-file", f"{file}:Looks", "--rule-file", f"{file}:Values",
                        "--rule-file", f"{file}:Requires", "extra=1")
    assert found["Looks"]["RuleEvaluationStatus"] == "IssuesFound", found["Looks"]["StatusDetails"]
    assert found["Looks"]["findings"][0]["text"] == "the end"
    assert found["Values"]["RuleEvaluationStatus"] == "NoIssuesFound", found["Values"]["StatusDetails"]
    assert "at step 5 " in found["Requires"]["StatusDetails"], found["Requires"]["StatusDetails"]


def test_a_rule_that_reads_histograms_gets_one_with_all_statistics(judge, tmp_path):
    file = judge.file("shape.py", "import tdbg\nclass Shape(tdbg.Rule):\n"
                      "  needs = tdbg.needs('gradients', tensor_regex='^act', histograms=True)\n"
                      "  def judge(self, step):\n    return False\n")
    done = judge("plan", "--dir", tmp_path / "laid", "--rule-file", f"{file}:Shape")
    assert done.returncode == 0, done.stderr
    kept = {c["name"]: c for c in json.loads((tmp_path / "laid" / "plan.json").read_text())["collections"]}
    own = kept["rule:Shape:histograms"]
    assert own["kinds"] == ["@gradients"] and own["include_regex"] == ["^act"]
    assert own["summaries_when_saved"] and own["histogram"] and not own["raw_values"]
    assert {mode["interval"] for mode in own["raw"].values()} == {1}


def _writer(run, seconds):
    code = f"import sys; sys.path[:0] = {[str(pathlib.Path(__file__).parent)] + sys.path!r}; import judging; " \
           f"judging.write_run({str(run)!r}, steps=60, seconds={seconds})"
    return subprocess.Popen([sys.executable, "-c", code])


def test_watching_says_what_checking_says(judge, tmp_path):
    file = judge.file("mine.py", NATIVE)
    words = ["--rule-file", f"{file}:Grows", "threshold=30.5",
             "--rule-file", f"{EXAMPLES}/custom_gradient_rule.py:CustomGradientRule", "threshold=22",
             "--rule-file", f"{judge.file('bad.py', MISBEHAVING)}:Raises"]
    live = Judge(tmp_path, tmp_path / "live")
    writer = _writer(live.run, 0.01)
    try:
        done = live("watch", live.run, *words, "--json")
    finally:
        assert writer.wait(60) == 0
    watched = {r["RuleConfigurationName"]: r for r in json.loads(done.stdout)["rules"]}
    checked = live.check(*words)
    assert watched["Grows"]["findings"][0]["global_step"] == 31
    for name, status in watched.items():
        for key in ("RuleEvaluationStatus", "StatusDetails", "findings", "steps_judged"):
            assert status[key] == checked[name][key], (name, key)


def test_a_step_that_waits_is_read_though_it_came_after_the_last_look(tmp_path):
    """Two steps are asked for at once, of which the rule's process has seen one: the other was an empty one."""
    from tdbg import _trial
    from tdbg._capture import Run
    from tdbg.rules import view

    run = Run.open(directory=str(tmp_path / "run"))
    ident = run.define("gradient/a", "gradient/a", "gradient", "", "float32", [4])

    def step(level):
        run.begin_step(1)
        run.put_array(ident, np.full(4, level, np.float32))
        run.end_step()

    step(10)
    trial = _trial.open(str(tmp_path / "run"), -1, 0)
    step(11)
    frames = view.Frames(trial, view.Lost(), trial.refresh)
    frames.due = [0, 1]
    try:
        assert list(frames.at(0, "gradients", None).mean) == [10]
        assert list(frames.at(1, "gradients", None).mean) == [11]
    finally:
        run.end("completed")


def test_a_worker_is_lost_in_one_attempt_of_the_job_by_whichever_name():
    from tdbg.rules import view

    lost = view.Lost()
    assert not lost and not lost.hides("worker_1", 3)
    lost.judged(0, 0)
    lost.add(0, "rank 1", 5)    # it was never seen then, and came later
    lost.add(0, "worker_2", 6)
    lost.judged(6, 0)
    lost.judged(8, 1)
    assert [lost.hides("worker_1", step) for step in (4, 5, 7, 8)] == [False, True, True, False]
    assert [lost.hides("worker_2", step) for step in (5, 6, 9)] == [False, True, False]
    assert lost and not lost.hides("worker_0", 6)


def test_nothing_is_left_running_when_the_watcher_is_killed(judge, tmp_path):
    mark = tmp_path / "pid"
    file = judge.file("busy.py", f"import os, tdbg\nclass Busy(tdbg.Rule):\n  needs = tdbg.needs('gradients')\n"
                                 f"  def judge(self, step):\n    open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
                                 f"    while True: pass\n")
    check = subprocess.Popen([str(BINARY), "check", str(judge.run), "--rule-file", f"{file}:Busy"], env=judge.env,
                             stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not mark.exists() or not mark.read_text():
        assert time.monotonic() < end and check.poll() is None
        time.sleep(0.02)
    check.kill()
    check.wait()
    pid = int(mark.read_text())
    while pathlib.Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, "the rule's process is still there"
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
