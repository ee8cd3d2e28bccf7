"""What was dropped is in the run in words, for readers who have no log of the job."""

import os
import signal
import subprocess
import sys

import numpy as np
import tdbg
from tdbg._capture import Run


def steps(run, n, drops=()):
    loss = run.define("loss", "loss", "loss", "", "float32", [1], False, -1, [], ["losses"])
    for step in range(n):
        run.begin_step(1)
        run.put_array(loss, np.ones(1, np.float32))
        for cause, detail in drops if step == 1 else ():
            run.count_dropped(cause, 1, detail)
        run.end_step(False)


def test_the_sentence_names_what_it_was(tmp_path):
    with_log = Run.open(directory=str(tmp_path / "run"))
    steps(with_log, 3, [("unsupported", "trees/Tree: no trees"), ("unsupported", "trees/Tree: no trees"),
                        ("unsupported", "layout sparse_bsr"), ("adaptor_error", "a hook: ValueError: --token=abcdef")])
    live = [(d["cause"], d["count"], d["text"]) for d in with_log.dropped()]
    with_log.end("completed", "")
    trial = tdbg.open(tmp_path / "run")
    assert [(d.cause, d.count, d.text) for d in trial.dropped()] == live == [
        ("unsupported", 3, "What tdbg cannot record: trees/Tree: no trees (and 1 other cause)."),
        ("adaptor_error", 1, "An exception in the framework's adaptor: a hook: ValueError: --token=[redacted].")]
    assert trial.steps() == [0, 1, 2]


def test_what_was_dropped_is_told_once_a_process(tmp_path):
    # In a process of its own: another test of this one may have dropped something before.
    program = ("import sys; from tdbg._capture import Run; import test_dropped\n"
               "for name in sys.argv[1:]:\n"
               "    run = Run.open(directory=name)\n"
               "    test_dropped.steps(run, 3, [('unsupported', 'trees/Tree: no trees')])\n"
               "    run.end('completed', '')\n")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "one"), str(tmp_path / "two")], text=True, capture_output=True,
                          cwd=os.path.dirname(__file__), timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trees/Tree") == 1


def test_words_survive_a_kill_and_make_no_step_of_their_own(tmp_path):
    child = os.fork()
    if child == 0:
        run = Run.open(directory=str(tmp_path / "run"))
        steps(run, 3, [("unsupported", "layout sparse_bsr")])
        run.count_dropped("unsupported", 1, "said after the last step that was kept")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    trial = tdbg.open(tmp_path / "run")
    assert [(d.cause, d.text) for d in trial.dropped()] == [
        ("unsupported", "What tdbg cannot record: layout sparse_bsr.")]
    assert trial.steps() == [0, 1, 2]


def test_said_between_the_last_step_and_the_end(tmp_path):
    run = Run.open(directory=str(tmp_path / "run"))
    steps(run, 2)
    run.count_dropped("unsupported", 1, "layout sparse_bsr")
    run.end("completed", "")
    trial = tdbg.open(tmp_path / "run")
    assert [d.text for d in trial.dropped()] == ["What tdbg cannot record: layout sparse_bsr."]
    assert trial.steps() == [0, 1]
