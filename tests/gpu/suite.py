"""What the cases of this suite are made of: a training that runs bare and watched, and what its run must hold then.

A case that needs nothing of CUDA's own is carried out on the CPU where there is no GPU, so that the suite itself is known to
be right before it meets one.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tdbg

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
#: Moments of a device's rows against float64's (docs/statistics.md); the host's are nearer.
RELATIVE = 2e-5


@dataclasses.dataclass
class Program:
    """A training: `step(n)` makes its n-th step."""

    model: torch.nn.Module
    optimizers: list[torch.optim.Optimizer]
    step: Callable[[int], Any]
    #: steps of the run for each call of `step`; None: the case counts itself
    a_step_each: bool = True


def parameters(model):
    label = type(model).__name__
    return [(f"{label}_{name}", p) for name, p in model.named_parameters()]


class Truth:
    """Clones of what each update began with, on the device, by hooks of the test's own. Nothing of it is waited for."""

    def __init__(self, program):
        self.rows = []
        self._program, self._open = program, {}
        self._handles = [o.register_step_pre_hook(self._before) for o in program.optimizers]

    def _before(self, optimizer, args, kwargs):
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, p in parameters(self._program.model):
            if id(p) in mine:
                self._open[name] = p.detach().clone()
                if p.grad is not None:
                    self._open["gradient/" + name] = p.grad.detach().clone()

    def step_is_over(self):
        self.rows.append(self._open)
        self._open = {}

    def remove(self):
        for handle in self._handles:
            handle.remove()


def numbers(tensor):
    """count, nan, +inf, -inf, zero, min, max, mean, l2 of a tensor, by torch in float64."""
    x = tensor.detach().cpu()
    x = x.to_dense() if x.layout is not torch.strided else x
    x = x.to(torch.complex128).abs() if x.is_complex() else x.to(torch.float64)
    x = x.reshape(-1)
    ok = x[torch.isfinite(x)]
    counts = [x.numel(), int(x.isnan().sum()), int((x == np.inf).sum()), int((x == -np.inf).sum()), int((x == 0).sum())]
    if not ok.numel():
        return counts, [np.nan] * 4
    return counts, [float(ok.min()), float(ok.max()), float(ok.mean()), float((ok * ok).sum().sqrt())]


def same(summary, tensor, name=""):
    """Is a row what the tensor says?"""
    counts, moments = numbers(tensor)
    got = [summary.count, summary.nan_count, summary.pos_inf_count, summary.neg_inf_count, summary.zero_count]
    assert got == counts, f"{name}: counts {got}, not {counts}"
    assert np.array_equal([summary.min, summary.max], moments[:2], equal_nan=True), f"{name}: {summary.min}, {summary.max}, not {moments[:2]}"
    scale = max(abs(m) for m in moments[:2]) if counts[0] > counts[1] + counts[2] + counts[3] else 0
    assert np.isclose(summary.mean, moments[2], rtol=RELATIVE, atol=RELATIVE * scale, equal_nan=True), f"{name}: mean {summary.mean}, not {moments[2]}"
    assert np.isclose(summary.l2, moments[3], rtol=RELATIVE, equal_nan=True), f"{name}: l2 {summary.l2}, not {moments[3]}"


def synchronize():
    """What streams of the script's own still do is over."""
    if GPU:
        torch.cuda.synchronize()


def bits(model):
    synchronize()
    return [t.detach().cpu().clone() for t in model.state_dict().values()]


def equal_bits(a, b):
    return all(x.shape == y.shape and x.reshape(-1).view(torch.uint8).equal(y.reshape(-1).view(torch.uint8)) for x, y in zip(a, b, strict=True))


def differences(model, a, b):
    """Which of the model's tensors two answers of `bits` differ in, and how far."""
    rows = [(name, x.double() - y.double()) for name, x, y in zip(model.state_dict(), a, b, strict=True) if not x.equal(y)]
    return [f"{name}: {int((d != 0).sum())} of {d.numel()} elements, by {float(d.abs().max()):.3g} at most" for name, d in rows]


def settings(**more):
    return {"record_end": False, "rules": [], "journal": {"size": "16MiB"}, "summaries": {"histograms": True}, **more}


def watched(program, directory, steps, config=None, truth=True):
    """Runs it watched. (trial, Truth or None)"""
    session = tdbg.attach(program.model, dir=str(directory), config=settings(**(config or {})))
    kept = Truth(program) if truth else None
    try:
        for n in range(steps):
            program.step(n)
            if kept is not None:
                kept.step_is_over()
    finally:
        if kept is not None:
            kept.remove()
        session.close()
    return tdbg.open(str(directory)), kept


def lost(trial):
    return [str(loss) for loss in trial.dropped()]


def compare(trial, truth, mode=tdbg.ModeKeys.TRAIN):
    """Every row of every step against what the update began with. How many there were."""
    synchronize()
    assert not lost(trial), lost(trial)
    steps = trial.steps(mode=mode)
    assert len(steps) == len(truth.rows), f"{len(steps)} steps, not {len(truth.rows)}"
    known, compared = set(trial.tensor_names()), 0
    for step, row in zip(steps, truth.rows, strict=True):
        for name, tensor in row.items():
            assert name in known, f"{name} is not among {sorted(known)[:8]}"
            same(trial.tensor(name).summary(step, mode=mode), tensor, f"{name} at {step}")
            compared += 1
    assert compared
    return compared


def check(directory: pathlib.Path, make, steps=4, config=None, same_bits=True):
    """`make()` gives the Program, twice the same one: bare and watched must end with the same bits, and the run must hold each
    step's weights and gradients."""
    torch.manual_seed(0)
    bare = make()
    for n in range(steps):
        bare.step(n)
    expected = bits(bare.model)
    torch.manual_seed(0)
    program = make()
    trial, truth = watched(program, directory, steps, config)
    ended = bits(program.model)
    assert not same_bits or equal_bits(expected, ended), (
        f"the training is another one than without us: {differences(program.model, expected, ended)}")
    if program.a_step_each:
        compare(trial, truth)
    return trial, truth
