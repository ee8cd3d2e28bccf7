#!/usr/bin/env python3
"""How long from a rule's finding to the call of a handler of the user's, in Python?

Question   from the end of the faulty step in the training process to the first line of the handler, whose file imports boto3
           where there is one (as handlers that were written for Lambda do).
Workload   a job under `tdbg run` with 20 rules; every second a step is faulty, each time for another rule. Warm: the handler's process
           has handled an event before. Cold: it was killed a moment before the step, so that it has to be started and its file imported.
Bar        cold <= 3 s, warm <= 0.5 s, each the slowest.

  .venv/bin/python bench/handlers.py [--findings 20] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

HANDLER = """
import json, os, time
try:
    import boto3
except ImportError:
    boto3 = None
def handler(event, context):
    ours = event["detail"]["tdbg"]
    if ours["change"] == "rule" and ours["status"] == "IssuesFound":
        with open(os.environ["CALLED"], "a") as file:
            file.write(json.dumps({"rule": ours["name"], "time": time.time(), "boto3": boto3 is not None}) + "\\n")
"""

TRAINING = """
import json, os, pathlib, signal, sys, time
import numpy as np
from tdbg._capture import Run
directory, findings = os.environ["TDBG_RUN"], int(sys.argv[1])
run = Run.open(directory=directory, plan_json=next(pathlib.Path(directory).rglob("plan.json")).read_text(), attempt=0)
tensors = [run.define(f"t{i}", f"t{i}", "gradient", "", "float32", [64]) for i in range(findings)]
good, bad = np.ones(64, np.float32), np.full(64, np.nan, np.float32)

def hosts():
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"handlers/host.py" in (entry / "cmdline").read_bytes():
                if ("CALLED=" + os.environ["CALLED"]).encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)
        except OSError:
            pass

for faulty in range(-1, findings):
    for i in range(10):
        run.begin_step(1)
        for number, tensor in enumerate(tensors):
            run.put_array(tensor, bad if i == 9 and number == faulty else good)
        if i == 9 and faulty >= 0:
            cold = faulty % 2 == 0
            for pid in hosts() if cold else ():
                os.kill(pid, signal.SIGKILL)
            run.end_step()
            with open(os.environ["FOUND"], "a") as file:
                file.write(json.dumps({"rule": f"r{faulty}", "time": time.time(), "cold": cold}) + "\\n")
            time.sleep(1.5 if cold else 0.7)
        else:
            run.end_step()
            time.sleep(0.03)
run.end("completed")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--findings", type=int, default=20)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    binary = os.environ.get("TDBG_BIN", str(ROOT / ".venv" / "bin" / "tdbg"))
    with tempfile.TemporaryDirectory(prefix="tdbg-handlers-") as name:
        folder = pathlib.Path(name)
        (folder / "handler.py").write_text(HANDLER)
        (folder / "train.py").write_text(TRAINING)
        (folder / "handlers.yaml").write_text("- python: handler.py:handler\n")
        called, found = folder / "called", folder / "found"
        words = [binary, "run", "--dir", "r", "--quiet", "--no-handlers", "--on-event", "handlers.yaml"]
        for i in range(args.findings):
            words += ["--rule", "exploding_tensor", f"name=r{i}", f"tensor_regex=^t{i}$"]
        done = subprocess.run([*words, "--", sys.executable, "train.py", str(args.findings)], cwd=folder,
                              env={**os.environ, "CALLED": str(called), "FOUND": str(found)}, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"bench: the training failed with {done.returncode}")
        calls = {line["rule"]: line for line in map(json.loads, called.read_text().splitlines())}
        times = {True: [], False: []}
        for line in map(json.loads, found.read_text().splitlines()):
            times[line["cold"]].append(calls[line["rule"]]["time"] - line["time"])
    figures = {"findings": args.findings, "boto3": any(call["boto3"] for call in calls.values())}
    for cold, name in ((True, "cold"), (False, "warm")):
        figures[f"{name}_median_s"] = statistics.median(times[cold])
        figures[f"{name}_slowest_s"] = max(times[cold])
    print(json.dumps(figures, indent=2))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
