"""What a model is given beside its first input, one number for each row: a time, a class, a condition.

    context/argument/<name>/least, /most    of the whole step's calls, at the steps whose input is looked at (data.py)

Looked at are tensors in host memory with as many elements as the first input has rows, and as many rows: [N] or [N, 1].
Flags, masks, positions and whatever is the first input's length are none of them: of lengths all may be one. Nor are
fractions that are all one number but 0: a scale, a weight, the one level of noise of a method.
<name> is the argument's, or its place where it was given by place ("1").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .params import unreadable

FEWEST = 4              # rows
MOST_ROWS = 1 << 16
MOST = 8                # arguments
#: What a loss is computed of. data.py looks at labels, and that one class is seldom is no fault.
_ANSWERS = ("label", "target", "reward", "return", "weight", "done", "length")
_NUMBERS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64))


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
    return None


def _others(first: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    rows = first.shape[0]
    for name, value in (*((str(place), value) for place, value in enumerate(args)), *kwargs.items()):
        if type(value) is not torch.Tensor or value is first or value.shape not in ((rows,), (rows, 1)):
            continue
        if value.dtype not in _NUMBERS or value.device.type != "cpu" or unreadable(value) is not None:
            continue
        if value.layout is not torch.strided or value.grad_fn is not None or value.is_neg():
            continue
        if not any(word in name for word in _ANSWERS):
            yield name, value


class Arguments:
    """Of one session, at a step whose input is looked at."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, float]] = {}
        self._meant: set[str] = set()       # names of what may well be one number

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A training forward is given these."""
        if len(args) + len(kwargs) < 2:
            return
        first = _first(args, kwargs)
        if first is None or unreadable(first) is not None or first.dim() < 2:
            return
        if not FEWEST <= first.shape[0] <= MOST_ROWS:
            return
        for name, value in _others(first, args, kwargs):
            low, high = (bound.item() for bound in torch.aminmax(value.detach()))
            if low == high and (low in first.shape[1:] or (value.is_floating_point() and low != 0)):
                self._meant.add(name)
            known = self._found.get(name)
            if known is not None:
                self._found[name] = min(low, known[0]), max(high, known[1])
            elif len(self._found) < MOST:
                self._found[name] = low, high

    def take(self) -> list[tuple[str, float]]:
        """The numbers of the training step that ends."""
        if not self._found:
            return []
        found, self._found = self._found, {}
        return [(f"context/argument/{name}/{which}", bound) for name, bounds in found.items()
                if name not in self._meant for which, bound in zip(("least", "most"), bounds)]
