"""Trains faults, their healthy twins and healthy trainings, each attached to, judges each, and says what was found.

    python bench/verdicts/run.py --half tuned --out /tmp/verdicts

Each training is a process of its own that calls `tdbg.attach` and knows nothing else of tdbg; `tdbg check` then judges what was
recorded, with the profile and with every other built-in rule at its defaults. The processes are forked from one that has imported
torch, which is most of what a small training costs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import traceback
import warnings
from typing import Any

import boosting  # noqa: F401  adds to the two lists
import fourth  # noqa: F401  does so, too
import fourth_healthy  # noqa: F401  does so, too
import long  # noqa: F401  does so, too
import modes  # noqa: F401  does so, too
import third  # noqa: F401  does so, too
import torch
import turns  # noqa: F401  does so, too
from faults import KINDS, work_of
from healthy import HEALTHY
from workloads import FAULT_AT, Work

HERE = pathlib.Path(__file__).resolve().parent


def make(case: dict[str, Any]) -> Work:
    if case["kind"] in HEALTHY:
        return HEALTHY[case["kind"]](f"{case['kind']}/{case['draw']}")
    return work_of(case["kind"], case["draw"], case["faulty"])


def train(case: dict[str, Any], run: pathlib.Path) -> str:
    """In a child of this process. Returns what the training raised, if anything."""
    shutil.rmtree(run, ignore_errors=True)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        said = run.with_suffix(".error")
        return said.read_text() if said.exists() else ""
    try:
        run.with_suffix(".error").unlink(missing_ok=True)
        torch.set_num_threads(1)
        import tdbg
        work = make(case)
        watch = tdbg.attach(dir=str(run), **getattr(work, "attached", {}))
        try:
            work.run()
        except Exception:
            run.with_suffix(".error").write_text(traceback.format_exc())
        watch.close()
    except BaseException:
        run.with_suffix(".error").write_text("NOT TRAINED\n" + traceback.format_exc())
    os._exit(0)


def judge(case: dict[str, Any], run: pathlib.Path, tdbg: str) -> dict[str, Any]:
    told = subprocess.run([tdbg, "check", str(run), "--json"], capture_output=True, text=True, check=False)
    try:
        answer = json.loads(told.stdout)
    except ValueError:
        raise SystemExit(f"{run}: {told.stderr or told.stdout}") from None
    of_profile = [i for i in answer["incidents"] if i["detector"]]
    rules = [i["rule"] for i in answer["incidents"] if not i["detector"]]
    return {"detectors": [i["detector"] for i in of_profile], "rules": rules,
            "incidents": [(i["id"], i["first_step"], i["sentence"]) for i in of_profile]}


def interval(found: int, of: int) -> list[float]:
    """Wilson's, 95 %."""
    if not of:
        return [0.0, 1.0]
    z, share = 1.96, found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return [round(100 * max(0.0, middle - half), 1), round(100 * min(1.0, middle + half), 1)]


def share(found: int, of: int) -> str:
    low, high = interval(found, of)
    return f"{found} of {of} ({100 * found / max(of, 1):.0f} %; {low:.0f} to {high:.0f})"


def report(results: list[dict[str, Any]]) -> dict[str, Any]:
    faulty = [r for r in results if r["faulty"]]
    well = [r for r in results if not r["faulty"]]
    twins = {(r["kind"], r["draw"]): r for r in well if r["kind"] in KINDS}
    right = [r for r in faulty if r["right"]]
    delays = []
    for r in right:
        begins = FAULT_AT + FAULT_AT // 20 if KINDS[r["kind"]].make is Work else FAULT_AT     # evaluations are steps, too
        step = next(i[1] for i, d in zip(r["incidents"], r["detectors"]) if d in KINDS[r["kind"]].detectors)
        delays.append(step - (begins if KINDS[r["kind"]].late else 0))
    pairs = [(r, twins[r["kind"], r["draw"]]) for r in faulty if (r["kind"], r["draw"]) in twins]
    said = [r for r in faulty if r["detectors"]]
    return {
        "recall, right cause": share(len(right), len(faulty)),
        "twins told apart": share(sum(r["right"] and not t["detectors"] for r, t in pairs), len(pairs)),
        "healthy runs alarmed": share(sum(bool(r["detectors"]) for r in well), len(well)),
        "first incident the right one": share(sum(r["detectors"][0] in KINDS[r["kind"]].detectors for r in said), len(said)),
        "incidents in a faulty run, median": statistics.median(len(r["detectors"]) for r in faulty) if faulty else None,
        "steps to the incident, median": statistics.median(delays) if delays else None,
        "built-in rules at their defaults: faulty runs with any finding": share(sum(bool(r["rules"]) for r in faulty), len(faulty)),
        "built-in rules at their defaults: healthy runs alarmed": share(sum(bool(r["rules"]) for r in well), len(well)),
        "by class": {g: share(sum(r["right"] for r in faulty if KINDS[r["kind"]].group == g),
                              sum(KINDS[r["kind"]].group == g for r in faulty))
                     for g in sorted({KINDS[r["kind"]].group for r in faulty})},
    }


def cases(half: str, draws: range) -> list[dict[str, Any]]:
    split = json.loads((HERE / "split.json").read_text())
    found = [{"kind": kind, "draw": draw, "faulty": faulty} for kind in split[half] for draw in draws for faulty in (True, False)]
    return found + [{"kind": kind, "draw": draw, "faulty": False} for kind in split[f"{half} healthy"] for draw in draws]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["tuned", "unseen", "third", "fourth", "long", "turns", "modes", "boosting"], default="tuned")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--from-draw", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="kinds")
    parser.add_argument("--train-only", action="store_true", help="judge later")
    parser.add_argument("--judge-only", action="store_true", help="runs are there: judge them again")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    tdbg = os.environ.get("TDBG_BIN") or shutil.which("tdbg") or "tdbg"
    results, began = [], time.time()
    for case in cases(given.half, range(given.from_draw, given.from_draw + given.draws)):
        if given.only and case["kind"] not in given.only:
            continue
        run = given.out / f"{case['kind']}-{case['draw']}-{'faulty' if case['faulty'] else 'healthy'}"
        error = "" if given.judge_only else train(case, run)
        if error.startswith("NOT TRAINED") or (error and not case["faulty"]):
            print(error, file=sys.stderr)
        if given.train_only:
            continue
        result = {**case, "what": str(make(case)), "error": error[-300:], **judge(case, run, tdbg)}
        result["right"] = case["faulty"] and bool(set(result["detectors"]) & KINDS[case["kind"]].detectors)
        results.append(result)
        good = result["right"] if case["faulty"] else not result["detectors"]
        print("ok   " if good else "WRONG", case["kind"], case["draw"], "faulty" if case["faulty"] else "healthy", result["what"],
              result["incidents"], flush=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=1))
    if not given.train_only:
        print(json.dumps({**report(results), "seconds": round(time.time() - began)}, indent=1))


if __name__ == "__main__":
    main()
