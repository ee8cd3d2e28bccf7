"""10,000 histograms as TensorBoard files: exported from a run's statistics, against SummaryWriter.add_histogram on the
raw values. One process each, in turns; the ratio is of what they took, and both outputs are held against the values.

    python bench/export_histograms.py [--rounds 3] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
if "TDBG_HOME" in os.environ:
    sys.path.insert(0, os.environ["TDBG_HOME"])
PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true}]}"""


def values(tensor, step, elements):
    return np.random.default_rng(tensor * 100_003 + step).standard_normal(elements).astype(np.float32)


def record(directory, tensors, steps, elements):
    """The run: its statistics are computed as it is recorded, by every training anyway."""
    from tdbg._capture import Run

    run = Run.open(directory=str(directory), plan_json=PLAN)
    ids = [run.define(f"w{t}", f"w{t}", "weight", "", "float32", [elements]) for t in range(tensors)]
    for step in range(steps):
        run.begin_step(1)
        for tensor, ident in enumerate(ids):
            run.put_array(ident, values(tensor, step, elements))
        run.end_step()
    run.end("completed")


def write_with_summary_writer(directory, tensors, steps, elements):
    """Prints the seconds that add_histogram and closing took; making the values does not count."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(directory)
    spent = cpu = 0.0
    for step in range(steps):
        arrays = [values(tensor, step, elements) for tensor in range(tensors)]
        start, start_cpu = time.perf_counter(), time.process_time()
        for tensor, array in enumerate(arrays):
            writer.add_histogram(f"w{tensor}", array, step)
        spent += time.perf_counter() - start
        cpu += time.process_time() - start_cpu
    start, start_cpu = time.perf_counter(), time.process_time()
    writer.close()
    print(json.dumps({"wall": spent + time.perf_counter() - start, "cpu": cpu + time.process_time() - start_cpu}))


def export(tdbg, run, directory):
    """The whole command, from starting the program to its end."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([tdbg, "export", run, directory, "--to", "tensorboard", "--json"], check=True, capture_output=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}, json.loads(done.stdout)


def histograms(directory):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found = {}
    for path in pathlib.Path(directory).rglob("*tfevents*"):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.HasField("histo"):
                    found[value.tag.rsplit("/", 1)[-1], event.step] = value.histo
    return found


def check(ours, theirs, tensors, steps, elements):
    """Both hold the same histograms, and ours agree with the values: counts at every edge, sums, extrema."""
    assert set(ours) == set(theirs) == {(f"w{t}", s) for t in range(tensors) for s in range(steps)}
    for (tag, step), histogram in ours.items():
        other = theirs[tag, step]
        assert histogram.num == other.num == elements
        assert (histogram.min, histogram.max) == (other.min, other.max)
        assert abs(histogram.sum - other.sum) < 1e-3 and abs(histogram.sum_squares - other.sum_squares) < 1e-2
        array = np.sort(values(int(tag[1:]), step, elements).astype(float))
        limits, below = np.array(histogram.bucket_limit), np.cumsum(histogram.bucket)
        assert (np.searchsorted(array, limits, "left") <= below).all() and (below <= np.searchsorted(array, limits, "right")).all()
    return len(ours)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--elements", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tdbg", default=os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg")))
    parser.add_argument("--json")
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    shape = (options.tensors, options.steps, options.elements)
    if options.writer:
        return write_with_summary_writer(options.writer, *shape)

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        record(scratch / "run", *shape)
        rows = []
        for _ in range(options.rounds):
            for name in ("ours", "theirs"):
                shutil.rmtree(scratch / name, ignore_errors=True)
            ours, account = export(options.tdbg, scratch / "run", scratch / "ours")
            theirs = json.loads(subprocess.run(
                [sys.executable, __file__, "--writer", scratch / "theirs", "--tensors", str(shape[0]), "--steps",
                 str(shape[1]), "--elements", str(shape[2])], check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            rows.append((ours, theirs))
        checked = check(histograms(scratch / "ours"), histograms(scratch / "theirs"), *shape)
    result = {"histograms": account["histograms"], "bytes": account["bytes"], "checked": checked}
    for unit in ("wall", "cpu"):
        ratios = sorted(theirs[unit] / ours[unit] for ours, theirs in rows)
        result[unit] = {"ours": sorted(o[unit] for o, _ in rows)[len(rows) // 2],
                        "theirs": sorted(t[unit] for _, t in rows)[len(rows) // 2], "ratio": ratios[len(ratios) // 2]}
        print(f"{account['histograms']} histograms of {shape[2]} elements, {unit}: tdbg {result[unit]['ours']:.3f} s, SummaryWriter "
              f"{result[unit]['theirs']:.2f} s, {result[unit]['ratio']:.0f}x (bar: 10x)")
    print(f"checked against the values: {checked} of {account['histograms']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1))
    return None


if __name__ == "__main__":
    sys.exit(main())
