#!/usr/bin/env python3
"""What a bucket costs: sending, opening and reading a run over S3, against boto3, and beside a training.

    python bench/storage.py [upload|open|visible|training|checkpoints ...] [--json FILE] [--quick]     default: all; ratios of one run of this script

The bucket is moto's server on this machine, so boto3 and tdbg-store wait for the same Python process; both sign what
they send. Latency and errors are a proxy's (tests/storage/servers.py).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/storage"), str(ROOT / "tests/cli")]

import servers  # noqa: E402

# As the tests' commands name them; else the package of this Python.
HOME = os.environ.get("TDBG_HOME") or sysconfig.get_path("platlib")
TDBG = os.environ.get("TDBG_BIN") or os.path.join(HOME, "tdbg/bin/tdbg")
STORE = os.path.join(os.path.dirname(TDBG), "tdbg-store")

BOTO = """
import boto3, os, pathlib, sys, time
from boto3.s3.transfer import S3Transfer
client = boto3.client("s3")
transfer = S3Transfer(client)
files = [p for p in pathlib.Path(sys.argv[1]).rglob("*") if p.is_file()]
client.list_objects_v2(Bucket="bucket", MaxKeys=1)
begin = time.perf_counter()
for path in files:
    transfer.upload_file(str(path), "bucket", sys.argv[2] + "/" + str(path.relative_to(sys.argv[1])))
print(time.perf_counter() - begin)
"""

# 1,000 tensors at 1,000 steps, an entry each.
MANY = """
import numpy as np, sys
from tdbg._capture import Run
run = Run.open()
ids = [run.define(f"layer{i}.weight", f"w{i}", "weight", "linear", "float32", [4]) for i in range(1000)]
values = np.arange(4, dtype=np.float32)
for step in range(1000):
    run.begin_step(1)
    for i in ids: run.put_array(i, values)
    run.end_step()
run.end("completed")
"""

OPEN = """
import sys, time
begin = time.perf_counter()
import tdbg
imported = time.perf_counter()
t = tdbg.open(sys.argv[1])
steps = len(t.steps())
opened = time.perf_counter()
values = t.tensor("layer500.weight").series("l2") if hasattr(t.tensor("layer500.weight"), "series") else None
import json
print(json.dumps([opened - imported, time.perf_counter() - opened, steps, 0 if values is None else len(values[0])]))
"""

TRAIN = """
import os, sys, time, numpy as np
from tdbg._capture import Run
run = Run.open()
checkpoints = os.environ.get("TDBG_CHECKPOINT_DIR")
ids = [run.define(f"w{i}", f"w{i}", "weight", "linear", "float32", [256, 256]) for i in range(40)]
data = [np.random.default_rng(i).standard_normal((256, 256)).astype(np.float32) for i in range(40)]
def work():
    x = data[0]
    for i in range(8): x = np.tanh(x @ data[i] * 0.01)
    return x
begin = time.perf_counter()
for step in range(int(sys.argv[1])):
    work()
    run.begin_step(1)
    for i, d in zip(ids, data): run.put_array(i, d)
    run.end_step()
    if checkpoints and step % 100 == 99:      # 10 MB
        np.save(checkpoints + "/weights.tmp.npy", np.stack(data) + step)
        os.replace(checkpoints + "/weights.tmp.npy", checkpoints + "/weights.npy")
print(time.perf_counter() - begin)
run.end("completed")
"""


# Ten steps a second, and when each ended.
STEPS = """
import sys, time, numpy as np
from tdbg._capture import Run
run = Run.open()
loss = run.define("loss", "loss", "loss", "scalar", "float32", [1])
with open("ended", "w") as ended:
    for step in range(int(sys.argv[1])):
        run.begin_step(1)
        run.put_array(loss, np.ones(1, np.float32))
        run.end_step()
        print(time.monotonic(), file=ended, flush=True)
        time.sleep(0.1)
run.end("completed")
"""

SEE = """
import sys, time, tdbg
trial = tdbg.open(sys.argv[1], wait=60)
first = len(trial.steps())  # what was there before it was opened says nothing
seen = first
while seen < int(sys.argv[2]):
    trial.refresh()
    for step in range(seen, len(trial.steps())):
        print(step, time.monotonic())
    seen = len(trial.steps())
    time.sleep(0.02)
"""


def environment(bucket, directory, endpoint=None):
    return {**servers.clean_environment(), **bucket.env(endpoint), "TDBG_HOME": HOME, "HOME": directory,
            "XDG_STATE_HOME": f"{directory}/state", "TDBG_CACHE": f"{directory}/cache-{time.monotonic_ns()}", "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1"}


def run(arguments, env, cwd):
    done = subprocess.run([str(a) for a in arguments], env=env, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def upload(bucket, directory, quick):
    folder = pathlib.Path(directory) / "files"
    folder.mkdir()
    for i in range(8):  # as segments are: some tens of megabytes
        (folder / f"{i}.safetensors").write_bytes(os.urandom(24 << 20))
    (folder / "run.json").write_text(json.dumps({"format": {"major": 1, "minor": 2}, "kind": "run", "id": "0" * 32, "name": "x"}))
    whole = sum(p.stat().st_size for p in folder.iterdir())
    env = {**environment(bucket, directory), "AWS_DEFAULT_REGION": "us-east-1"}
    ours, theirs = [], []
    for i in range(3):
        begin = time.perf_counter()
        run([STORE, "upload", folder, f"s3://bucket/ours{i}"], env, directory)
        ours.append(time.perf_counter() - begin)
        theirs.append(float(run([servers.PYTHON, "-c", BOTO, folder, f"theirs{i}"], env, directory)))
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"upload of {whole >> 20} MiB: tdbg-store {whole / a / 1e6:.0f} MB/s, boto3's transfer manager {whole / b / 1e6:.0f} MB/s, "
          f"ratio {b / a:.2f} (bar 0.8)")
    shutil.rmtree(folder)
    return {"ratio": b / a, "bytes_per_second": whole / a, "boto3_bytes_per_second": whole / b}


def opening(bucket, directory, quick):
    (pathlib.Path(directory) / "many.py").write_text(MANY)
    env = environment(bucket, directory)
    run([TDBG, "run", "--dir", "many", "--upload", "s3://bucket/many", "--quiet", "--", sys.executable, "many.py"],
        {**env, "PYTHONPATH": HOME}, directory)
    figures = {}
    with servers.FaultyProxy(bucket.endpoint, latency=0.05) as proxy:
        for name in ("cold", "again"):
            if name == "cold":
                env = environment(bucket, directory, proxy.endpoint)
            before = proxy.bytes_down, proxy.requests
            opened, series, steps, values = json.loads(run([sys.executable, "-c", OPEN, "s3://bucket/many"],
                                                           {**env, "PYTHONPATH": HOME}, directory))
            print(f"opening {steps * 1000} entries, 50 ms latency, {name}: {opened:.2f} s (bar 2), one series {series:.2f} s (bar 1), "
                  f"{proxy.bytes_down - before[0]} bytes in {proxy.requests - before[1]} requests for {values} values")
            figures[name] = {"open_seconds": opened, "series_seconds": series, "bytes": proxy.bytes_down - before[0],
                             "requests": proxy.requests - before[1], "values": values}
    return figures


def training(bucket, directory, quick):
    (pathlib.Path(directory) / "train.py").write_text(TRAIN)
    env = {**environment(bucket, directory), "PYTHONPATH": HOME}
    local, remote = [], []
    with servers.FaultyProxy(bucket.endpoint, latency=0.05, faults={"503": 0.02}) as proxy:
        slow = {**environment(bucket, directory, proxy.endpoint), "PYTHONPATH": HOME}
        for i in range(2 if quick else 6):
            pair = [("l", env, [], local), ("r", slow, ["--upload", f"s3://bucket/train{i}"], remote)]
            for name, variables, flags, times in pair if i % 2 else reversed(pair):
                times.append(float(run([TDBG, "run", "--dir", f"{name}{i}", "--quiet", *flags, "--", sys.executable, "train.py", "1500"],
                                       variables, directory).split()[-1]))
                shutil.rmtree(pathlib.Path(directory) / f"{name}{i}")
    pairs = sorted(b / a for a, b in zip(local, remote, strict=True))
    print(f"training beside an upload through 50 ms and 2 % errors, against local: {statistics.median(pairs):.3f} "
          f"({pairs[0]:.3f} to {pairs[-1]:.3f}; bar 1.02)")
    return {"ratio": statistics.median(pairs), "least": pairs[0], "most": pairs[-1]}


def visible(bucket, directory, quick):
    (pathlib.Path(directory) / "steps.py").write_text(STEPS)
    steps = 100 if quick else 400
    with servers.FaultyProxy(bucket.endpoint, latency=0.05) as proxy:
        env = {**environment(bucket, directory, proxy.endpoint), "PYTHONPATH": HOME}
        job = subprocess.Popen([TDBG, "run", "--dir", "visible", "--upload", "s3://bucket/visible", "--quiet", "--", sys.executable, "steps.py", str(steps)],
                               env=env, cwd=directory)
        seen = [line.split() for line in run([sys.executable, "-c", SEE, "s3://bucket/visible", str(steps)], env, directory).splitlines()]
        job.wait(60)
    ended = [float(line) for line in (pathlib.Path(directory) / "ended").read_text().split()]
    late = sorted(float(at) - ended[int(step)] for step, at in seen)
    median, most = statistics.median(late), late[len(late) * 95 // 100]
    print(f"a step is visible in the bucket, 50 ms latency, after: {median:.2f} s (bar 2.5), 95 % of {len(late)} within {most:.2f} s")
    return {"median_seconds": median, "p95_seconds": most, "steps": len(late)}


def checkpoints(bucket, directory, quick):
    """Both upload the run and save checkpoints; of one they are sent, too."""
    (pathlib.Path(directory) / "train.py").write_text(TRAIN)
    kept = pathlib.Path(directory) / "kept"
    env = {**environment(bucket, directory), "PYTHONPATH": HOME}
    pairs = []
    for i in range(2 if quick else 6):
        times = {}
        for sends in (False, True) if i % 2 else (True, False):
            kept.mkdir()
            flags = ["--checkpoint-dir", kept] if sends else []
            variables = env if sends else {**env, "TDBG_CHECKPOINT_DIR": str(kept)}
            times[sends] = float(run([TDBG, "run", "--dir", f"c{i}{sends}", "--upload", f"s3://bucket/checkpoints{i}{sends}", "--quiet", *flags,
                                      "--", sys.executable, "train.py", "1500"], variables, directory).split()[-1])
            shutil.rmtree(kept)
        pairs.append(times[True] / times[False])
    pairs.sort()
    print(f"training whose checkpoints of 10 MB are sent, against one whose are not: {statistics.median(pairs):.3f} "
          f"({pairs[0]:.3f} to {pairs[-1]:.3f}; bar 1.02)")
    return {"ratio": statistics.median(pairs), "least": pairs[0], "most": pairs[-1]}


def main():
    parts = {"upload": upload, "open": opening, "visible": visible, "training": training, "checkpoints": checkpoints}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    figures = {}
    with servers.moto() as bucket, tempfile.TemporaryDirectory() as directory:
        for name in given.parts or parts:
            figures[name] = parts[name](bucket, directory, given.quick)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
