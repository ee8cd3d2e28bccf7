"""Trains faults, their healthy twins and healthy trainings, each attached to, judges each, and says what was found.

    python bench/verdicts/run.py --out /tmp/verdicts
    python bench/verdicts/run.py --half fourth --draws 2 --out /tmp/fourth --keep

Each training is a process of its own that calls `tdbg.attach` and knows nothing else of tdbg; `tdbg check` then judges what was
recorded, with the profile and with every other built-in rule at its defaults. The processes are forked from one that has imported
torch, which is most of what a small training costs. A go that was cut off is gone on with by the same command: what is there, of the
same code, the same tdbg, is not done again.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
import warnings
from typing import Any

import torch
from cases import HALVES, HEALTHY, KINDS, Case, cases, key_of, make, name_of
from report import good, report, right, table
from shards import Job, run_all, write
from workloads import FAULT_AT, Work


@functools.cache
def digest(path: pathlib.Path) -> str:
    """Of a file, or of all that is in a package."""
    files = sorted(p for p in path.rglob("*") if p.suffix in (".py", ".so")) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:20]


def package() -> pathlib.Path:
    """The tdbg that is attached."""
    spec = importlib.util.find_spec("tdbg")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("tdbg is not installed for this Python: make install")
    return pathlib.Path(next(iter(spec.submodule_search_locations)))


def judged_by(tdbg: str) -> str:
    """Of the program, and of the one in the package, which the first may only call."""
    inside = package() / "bin" / "tdbg"
    return digest(pathlib.Path(tdbg).resolve()) + (digest(inside) if inside.exists() else "")


# What wants more than is recorded by default, and can be judged without parameters.
WANT_MORE = ["DeadRelu", "SaturatedActivation", "CheckInputImages", "NLPSequenceRatio", "WeightUpdateRatio"]


def train(work: Any, run: pathlib.Path, rules: list[str]) -> str:
    """Returns what the training raised, if anything."""
    shutil.rmtree(run, ignore_errors=True)
    torch.set_num_threads(1)
    import tdbg
    watch, raised = tdbg.attach(dir=str(run), rules=rules or None, **getattr(work, "attached", {})), ""
    try:
        work.run()
    except Exception:
        raised = traceback.format_exc()
    watch.close()
    return raised


def judge(run: pathlib.Path, tdbg: str) -> dict[str, Any]:
    told = subprocess.run([tdbg, "check", str(run), "--json"], capture_output=True, text=True, check=False)
    try:
        answer = json.loads(told.stdout)
    except ValueError:
        raise RuntimeError(f"{run} could not be judged: {told.stderr or told.stdout}") from None
    of_profile = [i for i in answer["incidents"] if i["detector"]]
    return {"detectors": [i["detector"] for i in of_profile],
            "incidents": [(i["id"], i["first_step"], i["sentence"]) for i in of_profile],
            "rules": [i["rule"] for i in answer["incidents"] if not i["detector"]],
            "judged": [r["rule"] for r in answer["rules"]
                       if r["rule"] != "Profile" and r["RuleEvaluationStatus"] in ("NoIssuesFound", "IssuesFound")]}


def do(case: Case, given: argparse.Namespace, tdbg: str, key: str) -> dict[str, Any]:
    """In a process of its own."""
    warnings.simplefilter("ignore")
    run, work = given.out / name_of(case), make(case)
    trained = run.with_suffix(".trained")
    begins = 0
    if case["faulty"] and KINDS[case["kind"]].late:       # an evaluation is a step, too
        begins = FAULT_AT + (FAULT_AT // work.every if work.every and type(work).run is Work.run else 0)
    result = {**case, "what": str(work), "begins": begins}
    if left_out := getattr(work, "left_out", ""):
        return {**result, "left_out": left_out}
    if given.judge_only:
        error = json.loads(trained.read_text())["error"] if trained.exists() else ""
    elif not given.fresh and trained.exists() and json.loads(trained.read_text())["key"] == key and run.is_dir():
        error = json.loads(trained.read_text())["error"]
    else:
        trained.unlink(missing_ok=True)
        error = train(work, run, WANT_MORE if given.rules else [])
        write(trained, {"key": key, "error": error})
    if error and not case["faulty"]:
        raise RuntimeError(f"a healthy training raised:\n{error}")
    result["error"] = error[-300:]
    if not given.train_only:
        result |= judge(run, tdbg)
        if not given.keep and not given.judge_only:
            shutil.rmtree(run)
            trained.unlink()
    return result


def line(case: Case, result: dict[str, Any]) -> tuple[str, bool]:
    name = name_of(case)
    if "crashed" in result:
        return f"CRASHED {name}: {result['crashed']}", True
    if "left_out" in result:
        return f"left out {name}: it needs {result['left_out']}", False
    if "detectors" not in result:
        return f"trained {name}", False
    return f"{'ok   ' if good(result) else 'WRONG'} {name} ({result['what']}) {result['incidents']}", not good(result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", nargs="+", choices=HALVES, default=HALVES, help="which parts (default: all)")
    parser.add_argument("--draws", type=int, default=1, help="of each kind")
    parser.add_argument("--from-draw", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="kinds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes side by side (default: processors)")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever is there")
    parser.add_argument("--keep", action="store_true", help="keep runs after they are judged (a megabyte each)")
    parser.add_argument("--train-only", action="store_true", help="judge later; runs are kept")
    parser.add_argument("--judge-only", action="store_true", help="runs are there: judge them, by whatever they were recorded; they are kept")
    parser.add_argument("--rules", action="store_true", help="record what the rules want that see outputs, inputs and raw weights, too")
    parser.add_argument("--healthy", action="store_true", help="only the trainings that are well, without the twins")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a case may take")
    parser.add_argument("--json", type=pathlib.Path, help="write the table, and every case, into this file")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder of runs and results")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    tdbg = os.environ.get("TDBG_BIN") or shutil.which("tdbg")
    if not tdbg:
        raise SystemExit("there is no tdbg on the PATH: make install, or set TDBG_BIN")
    draws, recorded_by = range(given.from_draw, given.from_draw + given.draws), digest(package()) + " rules" * given.rules
    wanted = [c for half in given.half for c in cases(half, draws)
              if (not given.only or c["kind"] in given.only) and (not given.healthy or c["kind"] in HEALTHY)]
    judge_key, jobs = "trained" if given.train_only else judged_by(tdbg), []
    for case in wanted:
        key = f"{key_of(case)} {recorded_by}"
        jobs.append(Job(name_of(case), f"{key} {judge_key}", functools.partial(do, case, given, tdbg, key)))
    by_name = {name_of(case): case for case in wanted}
    found = run_all(jobs, given.out, given.jobs, given.fresh, given.limit, lambda job, result: line(by_name[job.name], result))
    results = [{**case, **found[name_of(case)]} for case in wanted]
    for case, result in zip(wanted, results):
        if "crashed" in result:
            print(line(case, result)[0])
    if not given.train_only:
        results = [r for r in results if "left_out" not in r]
        for result in results:
            if "crashed" not in result:
                result["right"], result["good"] = right(result), good(result)
        parts = {half: report([r for r in results if r["half"] == half]) for half in given.half}
        parts |= {"all": report(results)} if len(parts) > 1 else {}
        print(table(parts))
        if given.json:
            write(given.json, {"parts": parts, "cases": results})
    return 3 if any("crashed" in r for r in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ncut off; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
