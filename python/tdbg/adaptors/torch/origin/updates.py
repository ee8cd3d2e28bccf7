"""What an optimizer's update can make of finite numbers, and who made a parameter what it is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from . import evidence
from .values import FINITE, Budget, readable, state_of, values_of
from .walk import GROWN

#: Their formulas have no difference of two infinities and no 0/0, as long as what they are configured with is finite.
_KNOWN = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
#: What an optimizer divides by, with its `eps` added: the mean of squared gradients.
_SQUARES = ("exp_avg_sq", "square_avg", "sum")


class Update(NamedTuple):
    """The last update of a parameter. `rates`: the learning rates that it was made with."""

    optimizer: torch.optim.Optimizer
    rates: list[float]


def made_by(parameter: torch.Tensor | None, updates: list[Update], is_nan: bool) -> dict[str, Any]:
    """Who made a parameter NaN or infinite that was finite in the step before, as its gradient was: the record's
    `update`."""
    before = "in the step before it was finite and its gradient was, too"
    rates = sorted({rate for update in updates for rate in update.rates})
    odd = [rate for rate in rates if not math.isfinite(rate)]
    with_rate = f" with a learning rate of {' and '.join(f'{r:g}' for r in rates)}" if rates else ""
    known = {"learning_rates": rates}
    if odd:
        return {**known, "by": "update", "found": "rate", "text": f"{before}: the update{with_rate} made it so"}
    for update in updates if parameter is not None else []:
        assert parameter is not None
        if because := _divided_by_nothing(update.optimizer, parameter):
            return {**known, "by": "update", "found": "eps", "text": f"{before}: the update made it so; {because}"}
        if because := _took_over(update.optimizer, parameter):
            return {**known, "by": "update", "found": "state", "text": f"{before}: the update made it so; {because}"}
    if is_nan and updates and all(makes_no_nan(update.optimizer) for update in updates):
        return {"by": "script",
                "text": f"{before}, and of finite numbers an update of {type(updates[0].optimizer).__name__} makes no "
                        "NaN: the script wrote to it since, or loaded it"}
    if not is_nan and updates and (others := stays_finite(updates)) is not None:
        return {**known, "by": "script",
                "text": f"{before}, and{with_rate} no finite gradient takes a weight of its size (the others are "
                        f"{evidence.number(others)} at most) to infinity: the script wrote to it since, or loaded it"}
    return {**known, "by": "update",
            "text": f"{before}: the update{with_rate} made it so, unless the script wrote to it since"}


def _groups_of(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> list[dict[str, Any]]:
    return [group for group in optimizer.param_groups if any(p is parameter for p in group["params"])]


def _is_nothing(eps: Any, dtype: torch.dtype) -> bool:
    """An `eps` that is 0 in the parameter's own type: 1e-8 in float16 is."""
    return isinstance(eps, (int, float)) and dtype.is_floating_point and float(torch.tensor(eps, dtype=dtype)) == 0


def _divided_by_nothing(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> str:
    """Of each element that is not finite the mean of squares is 0, and nothing was added to it."""
    state = optimizer.state.get(parameter, {})
    squares = next((s for name in _SQUARES if isinstance(s := state.get(name), torch.Tensor)), None)
    eps = next((g["eps"] for g in _groups_of(optimizer, parameter) if "eps" in g), None)
    plain = readable(parameter)
    if squares is None or plain is None or plain.shape != squares.shape or not _is_nothing(eps, squares.dtype):
        return ""
    bad = ~torch.isfinite(plain)
    if not bool(bad.any()) or bool((squares[bad] != 0).any()):
        return ""
    given = f"its eps of {eps:g} is 0 in {evidence.name_of(squares.dtype)}" if eps else "its eps is 0"
    return (f"{type(optimizer).__name__} divides by the root of the mean of squared gradients, which is 0 for each of "
            f"these elements, and {given}")


def _took_over(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> str:
    """Each element that is not finite has a state that is not."""
    plain = readable(parameter)
    for name, state in optimizer.state.get(parameter, {}).items():
        if plain is None or not isinstance(state, torch.Tensor) or state.shape != plain.shape:
            continue
        bad = ~torch.isfinite(state)
        if bool(bad.any()) and not bool((~torch.isfinite(plain) & ~bad).any()):
            n = int(bad.sum())
            return (f"what {type(optimizer).__name__} keeps of it, {name}, is not finite in {n:,} of its "
                    f"{evidence.counted(bad.numel(), 'element')}")
    return ""


def makes_no_nan(optimizer: torch.optim.Optimizer) -> bool:
    """Of finite weights, gradients and states? An infinity it may make, where a step is too large."""
    if type(optimizer) not in _KNOWN:
        return False
    return all(
        math.isfinite(value) for group in optimizer.param_groups for key, value in group.items()
        if isinstance(value, float)
    ) and all(isinstance(group.get("lr"), (int, float)) and not any(
        _is_nothing(group.get("eps", 1.0), dtype) for dtype in {p.dtype for p in group["params"]})
              for group in optimizer.param_groups)


def stays_finite(updates: Iterable[Update]) -> float | None:
    """None: one of these may have taken a weight to infinity. Else the largest weight that is finite: all are far from
    the end of their type, and a learning rate below 1 times a finite gradient is no step to there."""
    budget, largest = Budget(), 0.0
    for optimizer, rates in updates:
        if not makes_no_nan(optimizer) or any(rate >= 1 for rate in rates):
            return None
        for group in optimizer.param_groups:
            if group.get("nesterov") or group.get("weight_decay", 0.0) > 1:
                return None
            for parameter in group["params"]:
                values = values_of(parameter, budget)
                if values is None or values.largest > min(GROWN, 1e-3 * torch.finfo(parameter.dtype).max):
                    return None
                largest = max(largest, values.largest)
                states = [s for s in optimizer.state.get(parameter, {}).values() if isinstance(s, torch.Tensor)]
                if any(state_of(state, budget) != FINITE for state in states):
                    return None
    return largest


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(rate) for group in optimizer.param_groups if isinstance(rate := group.get("lr"), (int, float))]
