"""tdbg compact and tdbg keep: a run's steps become coarse rows, and what is dropped says so."""

import fcntl
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from program import GOLDEN, damage

STEPS, TENSORS = 2400, 12
NAN_AT = STEPS // 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of the real writer, a single NaN in it."""
    run = tmp_path_factory.mktemp("compact") / "run"
    program = pathlib.Path(__file__).with_name("page_runs.py")
    subprocess.run([sys.executable, program, run, "big", str(STEPS), str(TENSORS)], check=True, timeout=120)
    return run


@pytest.fixture
def run(tdbg, made):
    shutil.copytree(made, tdbg.directory / "run")
    return tdbg.directory / "run"


def test_without_a_budget_nothing_is_dropped(tdbg, run):
    worker, = tdbg.json("compact", "run")["workers"]
    assert worker["worker"] == "0/worker_0" and worker["covered_until"] == STEPS - 1
    assert worker["groups_written"] == STEPS // 16 + STEPS // 256 and worker["steps_dropped"] == 0
    assert worker["level_bytes"] < 0.2 * (worker["level_bytes"] + worker["segment_bytes"])
    assert not any(step["merged"] for step in tdbg.json("steps", "run")["steps"])
    assert "coarse rows up to step 2399" in tdbg.ok("compact", "run").stdout
    status = tdbg.json("status", "run")
    assert status["coarse_steps"]["all"] == 0 and status["damage"] == []


def test_what_a_budget_drops_says_so_and_what_is_marked_stays(tdbg, run):
    assert "900 to 904" in tdbg.ok("keep", "run", "--steps", "900:905").stderr
    tdbg.ok("compact", "run", "--budget", "own")  # three quarters of the plan's, which the run is far from
    assert not any(step["merged"] for step in tdbg.json("steps", "run")["steps"])
    worker, = tdbg.json("compact", "run", "--budget", "10kB", "--keep", "40")["workers"]
    assert worker["steps_dropped"] > 2000 and worker["bytes_over_budget"] > 0
    merged = {step["global_step"] for step in tdbg.json("steps", "run")["steps"] if step["merged"]}
    assert len(merged) == worker["steps_dropped"] and worker["rows_dropped"] == TENSORS * len(merged)
    assert not merged & ({*range(40)} | {*range(STEPS - 40, STEPS)} | {*range(860, 945)})
    assert {40, 859, 945, NAN_AT} <= merged
    text = tdbg.ok("status", "run").stdout
    assert f"{len(merged)} steps between 40 and {max(merged)} are no longer single" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "merged" in tdbg.ok("steps", "run", "--steps", "100:101").stdout
    assert "dropped to keep the run within its budget" in tdbg.fails(4, "show", "run", "w3", "--steps", "100")
    assert tdbg.ok("show", "run", "w3", "--steps", "901").stdout
    # Nor does who exports it, or compares it, get it for the whole run without a word.
    exported = tdbg.ok("export", "run", "rows.csv", "--to", "csv")
    assert f"of {len(merged)} steps rows were dropped" in " ".join(exported.stderr.split()).replace("tdbg: ", "")
    assert tdbg.json("diff", "run", "run")["coarse_steps"] == len(merged)
    # A rule that is asked about it does not say that all is well.
    judged = tdbg("check", "run", "--rule", "ExplodingTensor")
    assert judged.returncode == 8, (judged.stdout, judged.stderr)
    assert "incomplete" in judged.stdout
    # Nor do the rules that nobody named: they are not set aside as if the run had never had what is gone.
    every = tdbg("check", "run", "--json")
    assert every.returncode != 0, every.stdout
    assert not any("was not to keep" in rule["why"] for rule in json.loads(every.stdout)["not_run"])
    # Marked or not, what is gone does not come back, and nothing more goes.
    again, = tdbg.json("compact", "run", "--budget", "10kB", "--keep", "40")["workers"]
    assert again["steps_dropped"] == 0 and again["files_written"] == 0


def test_steps_around_a_finding_stay(tdbg, run):
    found = tdbg.json("check", "run", "--rule", "ExplodingTensor", code=1)
    assert found["rules"][0]["findings"][0]["global_step"] == NAN_AT
    watched = tdbg("watch", "run", "--rule", "ExplodingTensor")
    assert watched.returncode in (0, 1), watched.stderr
    tdbg.ok("compact", "run", "--budget", "10kB", "--keep", "40")
    merged = {step["global_step"] for step in tdbg.json("steps", "run")["steps"] if step["merged"]}
    assert not merged & {*range(NAN_AT - 40, NAN_AT + 41)} and {NAN_AT - 41, NAN_AT + 41} <= merged


def test_a_second_compactor_is_told_so(tdbg, run):
    levels = run / "0" / "worker_0" / "levels"
    levels.mkdir()
    with (levels / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another" in tdbg.fails(6, "compact", "run")
    tdbg.ok("compact", "run")


def test_a_follower_ends_with_its_job(tdbg, run):
    tdbg.ok("compact", "run", "--follow", "--budget", "own", stdin="")
    assert list((run / "0" / "worker_0" / "levels").glob("2-*.safetensors"))


# Its weight is saved whole at every step: three quarters of 256 MiB, which a job may fill, are full after 3,060 of them. It
# waits for its disk, so that what is left out is left out for the budget alone: that is at four fifths, and 13 MB are a
# margin for what waits in the journal, or is counted twice while it goes from there to a segment.
SAVING_JOB = """
import os, pathlib, sys, time
sys.path.insert(0, os.environ["TDBG_HOME"])
import numpy as np
from tdbg._capture import Run

MB = 1_000_000
run = Run.open()
weight = run.define("w", "w", "weight", "linear", "float32", [128, 128], collections=["weights"])
worker = pathlib.Path(run.directory) / str(run.attempt) / "worker_0"
patience = time.monotonic() + 240

def size(file):
    try:
        return file.stat().st_size
    except FileNotFoundError:   # renamed, or dropped, since it was listed
        return 0

def on_disk(*folders):
    return sum(size(f) for folder in folders for f in (worker / folder).glob("*.safetensors"))

def until(condition):
    while not condition() and time.monotonic() < patience:
        time.sleep(0.02)

done = 0

def train(steps):
    global done
    for _ in range(steps):
        run.begin_step(1)
        run.put_array(weight, np.full((128, 128), done, dtype=np.float32))
        run.end_step()
        done += 1

def sealed():
    last = max((f.name for f in (worker / "segments").glob("0*")), default="0-0")
    return int(last.split("-")[1].partition(".")[0]) // 3  # a step is three records

def go_on(steps):
    for _ in range(0, steps, 25):
        train(25)
        until(lambda: sealed() >= done - 40)

go_on(3100)
for _ in range(24):
    until(lambda: on_disk("segments", "levels") < 201.6 * MB)
    go_on(25)
run.end("completed")
"""


def test_a_job_drops_its_oldest_steps_so_that_its_newest_find_room(tdbg):
    (tdbg.directory / "job.py").write_text(SAVING_JOB)
    (tdbg.directory / "debug.yaml").write_text(
        "budget: 256MiB\njournal: {size: 8MiB}\nrules: []\ncollections: {weights: {raw: true, save_interval: 1}}\n")
    done = tdbg("run", "--config", "debug.yaml", "--dir", "run", "--", sys.executable, "job.py", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "compact" not in done.stderr, done.stderr
    steps = tdbg.json("steps", "run")["steps"]
    merged = [step["global_step"] for step in steps if step["merged"]]
    assert len(steps) == 3700 and len(merged) >= 256 and min(merged) == 500 and max(merged) < 3200, (len(merged), merged[:3])
    assert tdbg.json("status", "run")["dropped"] == []
    raw = {step["global_step"] for step in tdbg.json("steps", "run", "--kind", "raw")["steps"]}
    assert raw == {*range(3700)} - {*merged}


def test_damaged_steps_are_left_out_and_said_to_be(tdbg, run):
    damage(run, "summary/mean")
    done = tdbg("compact", "run")
    assert done.returncode == 5 and "damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_old_run_is_compacted_like_any_other(tdbg):
    shutil.copytree(GOLDEN, tdbg.directory / "old")
    assert "nothing to merge" in tdbg.ok("compact", "old").stdout
    assert tdbg.json("status", "old")["steps"]["all"] == 3


@pytest.mark.parametrize("arguments, said", [
    (("compact", "run", "--budget", "0"), "--budget"),
    (("compact", "run", "--budget", "much"), "8GiB"),
    (("keep", "run", "--steps", "5:3"), "--steps"),
    (("keep", "run", "--steps", "5:"), "1000:2000"),
])
def test_what_makes_no_sense_is_refused(tdbg, run, arguments, said):
    assert said in tdbg.fails(2, *arguments)
    assert not (run / "marks.jsonl").exists()
