"""What evaluations are fed, to be compared with what the training was: a transform that one of the two leaves out.

    context/evaluated_input/mean, /std      of the model's first input at an EVAL step, where it is like the training's:
                                            of the same type, number of axes and number of channels

Looked at are the first LOOKS forwards of an evaluation (what lies between two steps of the training), of each of the
first EVALUATIONS and of every EVERY-th after them: exact numbers, of as many rows as LARGEST bytes have. Of a device's
tensors they come late, and nothing waits for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..structure import first
from .params import unreadable

LOOKS = 4
EVALUATIONS = 5
EVERY = 8
LARGEST = 16 << 20
_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))

Numbers = list[tuple[str, Any]]


def _kind(tensor: torch.Tensor) -> tuple[torch.dtype, int, int]:
    axis = 2 if tensor.dim() == 3 else 1
    return tensor.dtype, tensor.dim(), tensor.shape[axis] if tensor.dim() > axis else 0


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    tensor = args[0] if args and type(args[0]) is torch.Tensor else first(torch.Tensor, args, kwargs.values())
    if type(tensor) is not torch.Tensor or tensor.dtype not in _FLOATS or tensor.grad_fn is not None:
        return None
    if unreadable(tensor) is not None or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return None
    return tensor


class HeldOut:
    """Of one session."""

    def __init__(self) -> None:
        self._kind: tuple[torch.dtype, int, int] | None = None      # of what the training is fed
        self._off = False
        self._evaluations = self._looks = 0         # looks: of the evaluation at hand
        self._between = True                        # no forward of it yet

    def give_up(self) -> None:
        self._off = True

    def trained_on(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A training forward whose input is looked at is given these."""
        tensor = _first(args, kwargs)
        self._kind = None if tensor is None else _kind(tensor)

    def step_ends(self) -> None:
        """An optimizer is about to step: the next evaluation is another one."""
        self._between = True

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Numbers | None:
        """A forward in evaluation mode is given these: numbers for its step, a device's as tensors."""
        if self._off or self._kind is None:
            return None
        if self._between:
            self._between = False
            self._looks = 0
            self._evaluations += 1
        due = self._evaluations <= EVALUATIONS or self._evaluations % EVERY == 0
        if not due or self._looks >= LOOKS:
            return None
        tensor = _first(args, kwargs)
        if tensor is None or _kind(tensor) != self._kind:
            return None
        if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        self._looks += 1
        with torch.no_grad():
            rows = max(1, LARGEST * len(tensor) // (tensor.numel() * tensor.element_size())) if tensor.dim() else 1
            values = (tensor[:rows] if tensor.dim() else tensor).detach().reshape(-1).float()
            mean = values.mean()
            apart = values - mean
            deviation = (torch.dot(apart, apart) / values.numel()).sqrt()
        if tensor.device.type != "cpu":
            return [("mean", mean), ("std", deviation)]
        numbers: Numbers = [("mean", mean.item()), ("std", deviation.item())]
        return numbers if all(math.isfinite(number) for _, number in numbers) else None
