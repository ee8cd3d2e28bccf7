#!/usr/bin/env python3
"""How long after the end of a faulty step can somebody read the rule's verdict?

Question   from the moment end_step() returned in the training process to the moment the event's line can be read
           in events.jsonl, by a third party that polls the file every 0.2 ms.
Workload   one run, one watcher (`tdbg watch`), 100 rules; every 20 to 60 ms a step is written, now and then one
           whose tensor holds a NaN, each time another rule's. So each verdict is the first of its rule.
Bar        median <= 20 ms, 99th percentile <= 100 ms.

  .venv/bin/python bench/latency.py [--verdicts 100] [--json FILE]
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from tdbg import _capture

ROOT = pathlib.Path(__file__).resolve().parents[1]


def tdbg():
    return os.environ.get("TDBG_BIN", str(ROOT / ".venv" / "bin" / "tdbg"))


def wait_for_line(path, offset, text, deadline):
    """Polls `path` from `offset` until a line holding `text` can be read; returns when that was."""
    while time.perf_counter() < deadline:
        try:
            with open(path, "rb") as f:
                f.seek(offset)
                if text in f.read():
                    return time.perf_counter()
        except FileNotFoundError:
            pass
        time.sleep(0.0002)
    sys.exit(f"bench: no event with {text!r} within 10 s; events so far: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=100)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    dice = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="tdbg-latency-") as folder:
        directory = os.path.join(folder, "run")
        events = os.path.join(directory, "events.jsonl")
        subprocess.run([tdbg(), "plan", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
        run = _capture.Run.open(directory)
        values = np.ones((args.verdicts, 1024), np.float32)
        ids = [
            run.define(f"gradient/t{i}", f"t{i}", "gradient", "", "float32", [1024]) for i in range(args.verdicts)
        ]
        pointers = [values[i].ctypes.data_as(ctypes.c_void_p).value for i in range(args.verdicts)]

        def step():
            run.begin_step(1)
            run.put_many(ids, pointers)
            run.end_step()

        step()
        rules = []
        for i in range(args.verdicts):
            rules += ["--rule", "exploding_tensor", f"name=rule{i}", f"tensor_regex=^gradient/t{i}$"]
        watcher = subprocess.Popen([tdbg(), "watch", directory, *rules], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        latencies = []
        for i in range(args.verdicts):
            for _ in range(dice.randrange(1, 4)):
                time.sleep(dice.uniform(0.02, 0.06))
                step()
            values[i, 7] = np.nan
            offset = os.path.getsize(events) if os.path.exists(events) else 0
            time.sleep(dice.uniform(0.02, 0.06))
            step()
            done = time.perf_counter()
            seen = wait_for_line(events, offset, f'"rule{i}"'.encode(), done + 10)
            latencies.append((seen - done) * 1e3)
        run.end("completed")
        watcher.wait(timeout=60)
    latencies.sort()
    median, p99 = statistics.median(latencies), latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
    print(f"end of the faulty step -> event readable: {args.verdicts} verdicts, median {median:.2f} ms, "
          f"99th percentile {p99:.2f} ms, worst {latencies[-1]:.2f} ms")
    print(f"bars: median <= 20 ms {'met' if median <= 20 else 'MISSED'}, p99 <= 100 ms {'met' if p99 <= 100 else 'MISSED'}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"median_ms": median, "p99_ms": p99, "all_ms": latencies}))


if __name__ == "__main__":
    main()
