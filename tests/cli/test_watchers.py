"""`tdbg watch` beside a training that somebody else looks after, killed again and again."""

import json
import os
import random
import subprocess
import sys
import time

from program import follows

#: Watchers killed at random instants; 100 where somebody waits for them.
KILLS = int(os.environ.get("TDBG_TEST_KILLS", "8"))

#: A gradient that vanishes at its step 150, and a step every 10 ms; without a framework. The last steps wait for `go`.
TRAINING = """
import os, pathlib, sys, time
import numpy as np
from tdbg._capture import Run
run = Run.open()
gradient = run.define("gradient/a", "gradient/a", "gradient", "", "float32", [4])
steps = int(sys.argv[1])
for step in range(steps):
    while step == steps - 50 and not os.path.exists("go"):
        time.sleep(0.01)
    run.begin_step(1)
    run.put_array(gradient, np.full(4, 1e-12 if step >= 150 else 1, np.float32))
    run.end_step()
    time.sleep(0.01)
run.end("completed")
"""
RULE = ["--rule", "vanishing_gradient", "name=outside", "patience=1", "on_issue=exec:echo acted >> acted.log"]


def until_it_follows(watcher):
    end = time.monotonic() + 60
    while not follows(watcher.pid):
        assert watcher.poll() is None and time.monotonic() < end, "it does not follow the run"
        time.sleep(0.01)


def test_watchers_that_are_killed_at_random_instants_lose_nothing_and_harm_nobody(tdbg):
    chance = random.Random(int(os.environ.get("TDBG_TEST_SEED", "0")))
    (tdbg.directory / "train.py").write_text(TRAINING)
    tdbg.env["PYTHONPATH"] = tdbg.env["TDBG_HOME"]
    steps = 300 + 40 * KILLS
    training = tdbg.start("run", "--quiet", "--dir", "r", "--", sys.executable, "train.py", steps, stderr=subprocess.PIPE)
    tdbg.wait_for("r/0/worker_0/worker.json", 60)
    for _ in range(KILLS):
        watcher = tdbg.start("watch", "r", "--quiet", *RULE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if chance.random() < 0.5:   # else amid its start
            until_it_follows(watcher)
        time.sleep(chance.choice((0.05, 0.2, 0.6)) * chance.random())
        watcher.kill()
        watcher.wait(20)
    assert training.poll() is None, training.stderr.read()
    last = tdbg.start("watch", "r", "--quiet", *RULE, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until_it_follows(last)
    (tdbg.directory / "go").touch()
    verdict, said = last.communicate(timeout=120)
    assert last.returncode == 1, said
    assert training.wait(60) == 0, training.stderr.read()
    training.stderr.close()
    [live] = json.loads(verdict)["rules"]
    [replayed] = tdbg.json("check", "r", *RULE[:4], code=1)["rules"]
    live.pop("LastModifiedTime"), replayed.pop("LastModifiedTime")
    assert live == replayed
    assert live["findings"][0]["global_step"] == 150 and live["steps_judged"] == 151    # the first finding decides
    assert len(tdbg.json("steps", "r")["steps"]) == steps
    # Written down once; one that was killed between doing it and writing that down is followed by one that does it again.
    lines = [json.loads(line) for line in (tdbg.directory / "r/events.jsonl").read_text().splitlines()]
    assert len([line for line in lines if line["kind"] == "action" and line["ok"]]) == 1
    assert 1 <= len((tdbg.directory / "acted.log").read_text().splitlines()) <= 1 + KILLS
