"""trainscope on the same trainings: what does it say of faults, and what of runs that are well?

    pip install trainscope==1.8.1
    python bench/verdicts/beside.py --half unseen --out /tmp/beside

It reads no recorded run, and wants to be called in the loop, between backward and the optimizer's step, with the loss; so each
training is repeated with it, its settings at their defaults. It names no causes: what is counted is whether it says anything, a
spike while it trains, a signal in its report, or in its report that the loss exploded. Trainings with a loop of their own (two optimizers) are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import pathlib
import shutil
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from cases import HALVES, KINDS, Case, cases, key_of, make, name_of
from report import cell, count
from shards import Job, run_all
from workloads import Work


def train(work: Work, folder: pathlib.Path) -> list[int]:
    """The steps at which it saw a spike."""
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig
    spikes: list[int] = []
    own_loss, own_optimizer, own_update, last, scope = work.loss, work.make_optimizer, work.update, [0.0], []

    def loss(*given: Any) -> torch.Tensor:
        value = own_loss(*given)
        if torch.is_grad_enabled():
            last[0] = float(value.detach())
        return value

    def make_optimizer() -> Any:
        optimizer = own_optimizer()
        if not scope:
            config = TrainScopeConfig(run_dir=str(folder.parent), run_name=folder.name)
            scope.append(TrainScope(work.model, optimizer, config=config).attach())
        return optimizer

    def update() -> None:
        if scope[0].step(last[0], batch_index=work.step):
            spikes.append(work.step)
        own_update()
    work.loss, work.make_optimizer, work.update = loss, make_optimizer, update
    try:
        work.run()
    finally:
        for each in scope:
            each.detach()
    return spikes


def signature(folder: pathlib.Path) -> dict[str, Any]:
    """What its report says: the signals that fired, and the step at which the loss exploded, if it did."""
    from trainscope.analysis import run_signal_signature
    return asyncio.run(run_signal_signature(folder))


def do(case: Case, out: pathlib.Path) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    work, folder = make(case), out / "runs" / name_of(case)
    if type(work).run is not Work.run or "run" in vars(work):
        return {"left_out": "a loop of its own"}
    shutil.rmtree(folder, ignore_errors=True)
    error, spikes = "", []
    try:
        spikes = train(work, folder)
    except Exception as raised:
        if not case["faulty"]:
            raise
        error = repr(raised)
    said = signature(folder) if folder.exists() else {}
    shutil.rmtree(folder, ignore_errors=True)
    return {"spikes": spikes, "signals": sorted(said.get("fired") or []), "explosion": said.get("explosion_step"), "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", nargs="+", choices=HALVES, default=["unseen"])
    parser.add_argument("--from-draw", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    draws = range(given.from_draw, given.from_draw + 1)
    wanted = [case for half in given.half for case in cases(half, draws)]
    jobs = [Job(name_of(case), key_of(case), functools.partial(do, case, given.out)) for case in wanted]
    found = run_all(jobs, given.out, given.jobs, told=lambda job, result: (f"{job.name} {result}", "crashed" in result))
    for title, faulty in (("faulty runs", True), ("healthy runs", False)):
        some = [found[name_of(c)] for c in wanted if c["faulty"] is faulty and not KINDS.get(c["kind"], KINDS["detach"]).hidden]
        judged = [r for r in some if "spikes" in r]
        def share(seen: Callable[[dict[str, Any]], Any]) -> str:
            return cell(count(sum(bool(seen(r)) for r in judged), len(judged)))
        print(f"{title}: a spike in {share(lambda r: r['spikes'])}, a signal in {share(lambda r: r['signals'])}, an explosion in "
              f"{share(lambda r: r['explosion'] is not None)}; left out {sum('left_out' in r for r in some)}, "
              f"crashed {sum('crashed' in r for r in some)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
