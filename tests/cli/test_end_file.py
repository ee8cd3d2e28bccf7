"""smdebug's word that a training is over (training_job_end.ts) is said when its job is over, however many attempts that took."""

import pathlib
import signal
import sys

import pytest
from program import processes_marked, until

# Each attempt tells, before its first step, whether readers were told that the training is over.
TRAIN = """
import os, sys, time
sys.path.insert(0, FOLDER)
import ship_run
from tdbg._capture import Run
with open("told", "a") as file: file.write(str(int(os.path.exists("r/smdebug/training_job_end.ts"))))
run = Run.open(directory="", step_base=0, step_base_from="script")
ship_run.record(run, 4)
open("recorded", "w").close()
while os.path.exists("hold"): time.sleep(0.01)
ship_run.record(run, 4)
run.end("completed")
codes = [int(code) for code in sys.argv[1:]]
sys.exit(codes[min(int(os.environ["TDBG_ATTEMPT"]), len(codes) - 1)])
"""


def train(tdbg, *codes):
    (tdbg.directory / "train.py").write_text(TRAIN.replace("FOLDER", repr(str(pathlib.Path(__file__).parent))))
    return [sys.executable, "train.py", *map(str, codes)]


def run(tdbg, *flags_and_command):
    return tdbg("run", "--dir", "r", "--quiet", "--format", "smdebug", *flags_and_command, timeout=60)


def told(tdbg):
    return (tdbg.directory / "told").read_text()


def is_marked(tdbg):
    return (tdbg.directory / "r/smdebug/training_job_end.ts").exists()


@pytest.mark.parametrize("codes, exit_code", [((75, 0), 0), ((75, 75), 75)], ids=["goes on", "used up"])
def test_it_is_not_said_between_two_attempts_and_is_after_the_last(tdbg, codes, exit_code):
    done = run(tdbg, "--max-restarts", 1, "--", *train(tdbg, *codes))
    assert done.returncode == exit_code, done.stderr
    assert told(tdbg) == "00" and is_marked(tdbg)


def test_it_is_taken_back_before_an_ended_job_trains_again(tdbg):
    assert run(tdbg, "--", *train(tdbg, 0)).returncode == 0
    assert is_marked(tdbg)
    tdbg.ok("resume", "r")
    assert told(tdbg) == "00" and is_marked(tdbg)


def test_a_job_that_is_stopped_between_two_attempts_is_over(tdbg):
    job = tdbg.start("run", "--dir", "r", "--quiet", "--format", "smdebug", "--max-restarts", 1000000, "--", *train(tdbg, 75))
    until(lambda: len(told(tdbg)) >= 3 if (tdbg.directory / "told").exists() else False, "attempts that fail at once")
    tdbg.ok("stop", "r")
    job.wait(60)
    assert set(told(tdbg)) == {"0"} and is_marked(tdbg)


def test_a_launcher_that_is_killed_ends_nothing_and_its_successor_writes_the_rest(tdbg):
    (tdbg.directory / "hold").touch()
    job = tdbg.start("run", "--dir", "r", "--quiet", "--format", "smdebug", "--", *train(tdbg, 0))
    until((tdbg.directory / "recorded").exists, "the first steps")
    job.send_signal(signal.SIGKILL)
    job.wait(20)
    exporters = [pid for pid, command in processes_marked(tdbg.mark) if " export " in command]
    until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in exporters), "the end of its export")
    assert not is_marked(tdbg)
    follower = tdbg.start("resume", "r")
    (tdbg.directory / "hold").unlink()
    assert follower.wait(60) == 0
    written = sorted(int(path.name.split("_")[0]) for path in (tdbg.directory / "r/smdebug/index").rglob("*.json"))
    assert written == list(range(8)) and is_marked(tdbg)
