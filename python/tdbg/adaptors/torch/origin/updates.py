"""What an optimizer's update can make of finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from .values import FINITE, Budget, state_of, values_of
from .walk import GROWN

#: Their formulas have no difference of two infinities and no 0/0, as long as what they are configured with is finite.
_KNOWN = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def makes_no_nan(optimizer: torch.optim.Optimizer) -> bool:
    """Of finite weights, gradients and states? An infinity it may make, where a step is too large."""
    if type(optimizer) not in _KNOWN:
        return False
    return all(
        math.isfinite(value) for group in optimizer.param_groups for key, value in group.items()
        if isinstance(value, float)
    ) and all(isinstance(group.get("lr"), (int, float)) and group.get("eps", 1.0) > 0
              for group in optimizer.param_groups)


def stays_finite(optimizers: Iterable[torch.optim.Optimizer]) -> float | None:
    """None: one of these may have taken a weight to infinity. Else the largest weight that is finite: all are far from
    the end of their type, and a learning rate below 1 times a finite gradient is no step to there."""
    budget, largest = Budget(), 0.0
    for optimizer in optimizers:
        if not makes_no_nan(optimizer):
            return None
        for group in optimizer.param_groups:
            if group["lr"] >= 1 or group.get("nesterov") or group.get("weight_decay", 0.0) > 1:
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


def rates_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[float]:
    return sorted({float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups
                   if isinstance(group.get("lr"), (int, float))})
