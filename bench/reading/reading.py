#!/usr/bin/env python3
"""What reading costs beside smdebug on the same data: a run of a million (tensor, step) entries, written in both formats.

Every figure is of a fresh process, without its start and its imports (what those take is printed beside); tdbg's and
smdebug's take turns, and the best of the rounds counts. The files are in the page cache for both. Opening ends when the
steps are listed; a cold reader is one that opens the run for its one value. Resident: what opening adds to the process,
mapped files included.

The series: both trials are open and have answered with one raw value, and neither has been asked for a statistic. smdebug's
is a loop over reduction_value, which reads each step's value and computes (its index is in memory: it was what its opening
took so long for); ours is frame(), whose first call maps, verifies and touches every page it needs. "Again" is the same
call a second time, when the columns are verified: for people who ask for the next tensor. Nothing is kept between rounds.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SMDEBUG_PYTHON = ROOT / ".venv-smdebug" / "bin" / "python"
sys.path.insert(0, str(HERE))
READ = 1000  # values read one by one


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def child(kind, path, name, step):
    """Runs in the reader's own Python; prints one JSON line."""
    begin = time.perf_counter()
    if kind == "smdebug":
        os.environ["SMDEBUG_TRAINING_END_DELAY_REFRESH"] = "0"
        import logging

        logging.disable(logging.INFO)
        from smdebug.trials import create_trial as open_trial
    else:
        import tdbg

        open_trial = tdbg.open
    import numpy as np

    before, start = resident(), time.perf_counter()
    imports = start - begin
    trial = open_trial(path)
    steps = trial.steps()
    opened = time.perf_counter()
    after = resident()
    tensor = trial.tensor(name)
    value = tensor.value(step)
    first = time.perf_counter()
    if kind == "smdebug":
        means = [float(tensor.reduction_value(s, "mean")) for s in steps]
    else:
        means = trial.frame(name, ["mean"])["mean"]
    series = time.perf_counter()
    if kind != "smdebug":
        trial.frame(name, ["mean"])["mean"]
    again = time.perf_counter()
    some = steps[:: max(1, len(steps) // READ)][:READ]
    begin = time.perf_counter()
    total = sum(float(tensor.value(s)[0]) for s in some)
    read = time.perf_counter()
    print(json.dumps({"imports": imports, "open": opened - start, "resident": after - before, "value": first - opened,
                      "open_and_value": first - start, "series": series - first, "again": again - series,
                      "read": (read - begin) / len(some), "check": [len(steps), float(value.sum()), float(np.sum(means)), total]}))


def run_child(kind, path, name, step):
    python = SMDEBUG_PYTHON if kind == "smdebug" else sys.executable
    done = subprocess.run([python, __file__, "--child", kind, str(path), name, str(step)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{kind} failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", help="where the runs are, or are to be kept; default: a temporary folder")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.child:
        return child(args.child[0], args.child[1], args.child[2], int(args.child[3]))

    import runs

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(args.runs or scratch)
        for kind, write in (("tdbg", runs.write_tdbg), ("smdebug", runs.write_smdebug)):
            if not (folder / kind).exists():
                write(folder / kind, args.steps, args.tensors)
        name, step = runs.name_of(args.tensors // 3), random.Random(1).randrange(args.steps)
        # The third: smdebug's directory through our trial.
        readers = {"smdebug": folder / "smdebug", "tdbg": folder / "tdbg", "through": folder / "smdebug"}
        best = {}
        for _ in range(args.rounds):
            for reader, path in readers.items():
                figures = run_child(reader, path, name, step)
                old = best.setdefault(reader, figures)
                for i, x in enumerate(figures["check"]):
                    assert abs(x - best["smdebug"]["check"][i]) <= 1e-3 * max(1, abs(x)), (reader, figures["check"])
                best[reader] = {key: old[key] if key == "check" else min(old[key], x) for key, x in figures.items()}
    entries = args.steps * args.tensors
    rows = [
        ("opening, our format", best["tdbg"]["open"] / best["smdebug"]["open"], 1 / 50),
        ("opening, smdebug's directory through our trial", best["through"]["open"] / best["smdebug"]["open"], 1 / 5),
        ("a raw tensor at a random step, reader open", best["tdbg"]["value"] / best["smdebug"]["value"], None),
        ("... of smdebug's directory through our trial", best["through"]["value"] / best["smdebug"]["value"], None),
        ("a raw tensor at a random step by a cold reader", best["tdbg"]["open_and_value"] / best["smdebug"]["open_and_value"], 1 / 20),
        ("one statistic over all steps", best["tdbg"]["series"] / best["smdebug"]["series"], 1 / 500),
        ("... again, columns verified", best["tdbg"]["again"] / best["smdebug"]["series"], None),
        ("values one by one, smdebug's directory", best["through"]["read"] / best["smdebug"]["read"], 1 / 5),
        ("one statistic over all steps, smdebug's directory", best["through"]["series"] / best["smdebug"]["series"], 1 / 5),
    ]
    print(f"{entries:,} entries ({args.steps:,} steps of {args.tensors} tensors); smdebug opens in {best['smdebug']['open']:.1f} s")
    print("imports take " + ", ".join(f"{best[r]['imports']:.2f} s ({r})" for r in ("tdbg", "smdebug")))
    sizes = [(f"resident after opening, {name}", best[reader]["resident"] / entries, 200)
             for reader, name in (("tdbg", "our format"), ("through", "smdebug's directory"))]
    failed = 0
    for text, ratio, bar in rows:
        missed = bar is not None and ratio > bar
        failed += missed
        verdict = "no bar" if bar is None else f"bar 1/{1 / bar:.0f}  {'MISSED' if missed else 'ok'}"
        print(f"  {text:52} 1/{1 / ratio:<8.1f} {verdict}")
    for text, size, bar in sizes:
        failed += size > bar
        print(f"  {text:52} {size:<10.0f} bar {bar} bytes an entry")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"entries": entries, **best, "rows": rows, "bytes": sizes}, indent=1))
    return failed and 1


if __name__ == "__main__":
    sys.exit(main())
