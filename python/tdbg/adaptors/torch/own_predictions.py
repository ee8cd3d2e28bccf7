"""What a difference is of, in a loss that a script computes by itself: predictions and targets.

The graph keeps the difference of predictions and targets, and neither of them. What a model gave is noted at the node
that made it, as the part of it that a look takes (predictions.part, a copy), and is gone with that node. Targets are
predictions less the difference: exact but for its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import torch

from ..structure import every
from .data import plain
from .graph import is_captured, name_of, shape_of, signed
from .origin.graph import kept_as
from .own_losses import SHAPES, Difference, picked_by
from .predictions import ROWS, evenly, part

MOST = 4                # tensors that a model gives
DEEP = 8                # nodes between what it gave and the difference
_GAVE = "tdbg.gave"     # among a node's notes: {number of its result: Given}

#: Nodes that keep what they gave.
_KEEP = frozenset(("Sigmoid", "Tanh", "Relu", "Softmax", "LogSoftmax", "Exp"))


def _without_ones(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


class Given(NamedTuple):
    """What a model gave."""

    shape: tuple[int, ...]      # without axes of one
    values: torch.Tensor        # the part of it that is looked at

    @staticmethod
    def of(tensor: Any) -> Given | None:
        if not isinstance(tensor, torch.Tensor) or not plain(tensor) or not tensor.is_floating_point():
            return None
        if is_captured(tensor):
            return None
        values = part(tensor.detach())
        return None if values is None else Given(_without_ones(tensor.shape), values)

    def has_all_columns(self) -> bool:
        columns: int = self.values.numel() // len(self.values)
        return columns == math.prod(self.shape[1:])


def remember(output: Any, is_due: Callable[[torch.Tensor], bool]) -> None:
    """A model returned `output`, in training. `is_due`: is such a tensor looked at?"""
    for tensor in (output,) if type(output) is torch.Tensor else islice(every(torch.Tensor, output), MOST):
        if type(tensor) is not torch.Tensor or tensor.grad_fn is None or not is_due(tensor):
            continue
        given, notes = Given.of(tensor), getattr(tensor.grad_fn, "metadata", None)
        if isinstance(notes, dict) and given is not None:
            notes.setdefault(_GAVE, {})[tensor.output_nr] = Given(given.shape, given.values.clone())


def _picked(given: Given, node: Any) -> Given | None:
    """One column of it: of each row the same (a Select), or its own (a Gather, an Index)."""
    shape = shape_of(*node.next_functions[0])
    if _without_ones(shape) != given.shape:
        return None
    whole = len(shape) == 2 and shape == given.shape and given.has_all_columns()
    values = given.values.reshape(len(given.values), -1)
    if name_of(node) == "Select":
        axis = signed(node._saved_dim)
        if shape[axis] == 1:
            return given
        return Given(shape[:1], values[:, signed(node._saved_index)]) if whole and axis in (1, -1) else None
    which = picked_by(node) if whole else None
    if which is None:
        return None
    return Given(shape[:1], values.gather(1, which[:: evenly(shape[0], ROWS), None] % shape[1])[:, 0])


def given_by(node: Any, number: int) -> Given | None:
    """The `number`-th result of a node, where a model gave it, or it is what one gave in another shape."""
    picks = []
    for _ in range(DEEP):
        if node is None:
            return None
        notes, name = getattr(node, "metadata", None), name_of(node)
        given = notes.get(_GAVE, {}).get(number) if isinstance(notes, dict) else None
        if given is None and name in _KEEP:
            given = Given.of(kept_as(node, "result"))
        if given is not None:
            break
        if name in ("Select", "Gather", "Index"):
            picks.append(node)
        elif name not in SHAPES:
            return None
        node, number = node.next_functions[0]
    else:
        return None
    for node in reversed(picks):
        given = None if given is None else _picked(given, node)
    return given


class Compared(NamedTuple):
    predicted: torch.Tensor
    target: torch.Tensor
    spread: float = 0.0         # of all targets, and
    rounding: float = 0.0       # how near they are known; of host memory alone


def compared(difference: Difference, is_due: Callable[[torch.Tensor], bool]) -> Compared | None:
    """Parts of both sides of it, of the same rows; None where what the model gave is not known."""
    apart = difference.values()
    if apart is None or not plain(apart) or not apart.is_floating_point() or not is_due(apart):
        return None
    given = given_by(*difference.predicted)
    if given is None:
        return None
    rest, predicted = part(apart), given.values
    if _without_ones(apart.shape) != given.shape or rest is None or rest.numel() != predicted.numel():
        return None
    if rest.dtype != predicted.dtype or rest.dtype not in (torch.float32, torch.float64):
        kind = torch.float64 if torch.float64 in (rest.dtype, predicted.dtype) else torch.float32
        rest, predicted = rest.to(kind), predicted.to(kind)
    predicted = predicted.reshape(rest.shape)
    target = predicted - rest if difference.side == 0 else predicted + rest
    return _settled(predicted, target, rest, 2 * torch.finfo(apart.dtype).eps)


def _settled_late(target: torch.Tensor, apart: torch.Tensor, near: float) -> torch.Tensor:
    """As `_settled`, of a device, which is not waited for."""
    least, most = torch.aminmax(target, dim=0)
    return torch.where(most - least <= near * apart.abs().amax(), target[:1], target)


def _settled(predicted: torch.Tensor, target: torch.Tensor, apart: torch.Tensor, near: float) -> Compared:
    """Columns of targets that are all the same have to be that, or guessing them has a loss that is not 0. `near`: how
    near targets are known, of the largest difference."""
    if target.device.type != "cpu":
        return Compared(predicted, _settled_late(target, apart, near))
    low, high = torch.aminmax(apart)
    rounding = near * max(-low.item(), high.item())
    low, high = torch.aminmax(target)
    spread = high.item() - low.item()
    if spread <= rounding:
        target = target[:1].expand_as(target)
    elif target.numel() > len(target):
        least, most = torch.aminmax(target, dim=0)
        same = most - least <= rounding
        if bool(same.any()):
            target = torch.where(same, target[:1], target)
    return Compared(predicted, target, spread, rounding)
