#!/usr/bin/env python3
"""Does one process keep up with 64 workers, and what do processes cost that have nothing to do?

    python bench/workers.py [workers|idle ...] [--json FILE] [--seconds N]     default: both

The run of 64 workers, each with statistics of 300 tensors at every step, is written first, by one process, and judged by
`tdbg check` and the profile: judged steps a second, against the 10 a second at which such a training may step. What is idle is
looked at for N seconds (60): its processor time, as the kernel counts it.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TDBG = os.environ.get("TDBG_BIN", str(ROOT / ".venv" / "bin" / "tdbg"))
WORKERS, TENSORS, STEPS = 64, 300, 100

WRITE = """
import json, subprocess, sys
import numpy as np
from tdbg._capture import Run
directory, workers, tensors, steps = sys.argv[1], *map(int, sys.argv[2:5])
plan = json.loads(open(directory + "/plan.json").read())
plan["journal_bytes"] = 4 << 20
runs = [Run.open(directory=directory, plan_json=json.dumps(plan), rank=r, world_size=workers) for r in range(workers)]
values = np.random.default_rng(1).standard_normal((tensors, 16)).astype(np.float32)
ids = [[run.define(f"gradient/layer{i}", f"gradient/layer{i}", "gradient", "", "float32", [16]) for i in range(tensors)] for run in runs]
for step in range(steps):
    for run, mine in zip(runs, ids):
        run.begin_step(1)
        for i, row in zip(mine, values):
            run.put_array(i, row)
        run.end_step()
for run in runs:
    run.end("completed")
"""

#: A training that has opened its run and waits for something.
WAITS = """
import sys, time
import numpy as np
from tdbg._capture import Run
run = Run.open()
gradient = run.define("gradient/a", "gradient/a", "gradient", "", "float32", [4])
run.begin_step(1); run.put_array(gradient, np.ones(4, np.float32)); run.end_step()
open("waits", "w").close()
time.sleep(float(sys.argv[1]))
run.end("completed")
"""


def environment(directory):
    home = os.environ.get("TDBG_HOME") or subprocess.run(
        [ROOT / ".venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], capture_output=True, text=True,
        check=True).stdout.strip()
    return {**os.environ, "TDBG_HOME": home, "PYTHONPATH": home, "XDG_STATE_HOME": str(directory / "state"), "OMP_NUM_THREADS": "1"}


def workers(directory):
    env, run = environment(directory), directory / "many"
    subprocess.run([TDBG, "plan", "--dir", run], env=env, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", WRITE, run, *map(str, (WORKERS, TENSORS, STEPS))], env=env, check=True, cwd=directory)
    best, judged = None, 0
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run([TDBG, "check", run, "--rule", "profile", "--rule", "vanishing_gradient", "--rule", "exploding_tensor",
                               "--json"], env=env, capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        assert done.returncode in (0, 1, 8), done.stderr
        judged = max(rule["steps_judged"] for rule in json.loads(done.stdout)["rules"])
        best = seconds if best is None else min(best, seconds)
    assert judged == STEPS, judged
    figures = {"workers": WORKERS, "tensors": TENSORS, "steps": STEPS, "seconds": best, "steps_per_second": STEPS / best}
    print(f"{WORKERS} workers, {TENSORS} tensors: one process judges {figures['steps_per_second']:.0f} steps a second (bar: 10)")
    return figures


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(directory, seconds):
    """Who waits beside a training that waits: its launcher, its log's keeper, a watcher from outside, the page's server."""
    env = environment(directory)
    launcher = subprocess.Popen([TDBG, "run", "--quiet", "--dir", "r", "--", sys.executable, "-c", WAITS, str(seconds + 30)], env=env,
                                cwd=directory, stdout=subprocess.PIPE)
    while not (directory / "waits").exists():
        assert launcher.poll() is None, "the training has ended"
        time.sleep(0.1)
    quiet = {"env": env, "cwd": directory, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = {"tdbg run": launcher, "tdbg watch": subprocess.Popen([TDBG, "watch", "r", "--quiet"], **quiet),
               "tdbg view": subprocess.Popen([TDBG, "view", "r", "--no-browser"], **quiet)}
    pids = {name: process.pid for name, process in started.items()}
    for child in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        if "tdbg-log" in pathlib.Path(f"/proc/{child}/cmdline").read_text():
            pids["tdbg-log"] = int(child)
    time.sleep(5)   # what they do at their start
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    used = {name: (cpu_seconds(pid) - before[name]) / seconds for name, pid in pids.items()}
    for name in ("tdbg view", "tdbg watch"):
        started[name].terminate()
    launcher.terminate()
    for process in started.values():
        process.wait(60)
    for name, share in used.items():
        print(f"{name}, idle: {100 * share:.3f} % of a core (bar: 0.1)")
    return {"seconds": seconds, "shares": used}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="workers, idle")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="tdbg-workers-") as name:
        directory = pathlib.Path(name)
        for part in given.parts or ["workers", "idle"]:
            figures[part] = workers(directory) if part == "workers" else idle(directory, given.seconds)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
