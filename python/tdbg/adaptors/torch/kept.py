"""Gradients that are never reset, where several optimizers train.

    context/gradients_kept/<optimizer>   1: its gradients were not reset since that optimizer's step before

The backward of one may give gradients to what another one has (a judge's, from its generator's loss), so that what is
left of a step says nothing yet: gradients are kept if they were there at the beginning of every backward since, the
first of them as the step had left them, and if one of these backwards adds to them, which its graph says. That is asked
for only once all else has said so for some steps in a row. Where one optimizer trains it is simpler (context.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch

from .graph import gives
from .params import local

SUSPECT = 2         # steps in a row before a graph is looked at
LOOKS = 64          # steps of an optimizer: whose gradients were reset at each of them is looked at no more


class _Left:
    """What the last step of an optimizer left, of one parameter."""

    __slots__ = ("parameter", "place", "version", "mark", "begun", "kept", "added", "streak")

    def __init__(self, parameter: torch.Tensor, gradient: torch.Tensor, mark: int, streak: int) -> None:
        self.parameter = weakref.ref(parameter)
        self.place, self.version, self.mark = gradient.data_ptr(), gradient._version, mark
        self.begun = self.kept = self.added = False     # backwards: any so far, with it at each, one that adds to it
        self.streak = streak        # steps in a row with `kept`


class KeptGradients:
    """:param mark: of a gradient's first number; 0 where that is zero"""

    def __init__(self, mark: Callable[[torch.Tensor], int]) -> None:
        self._mark = mark
        self._left: dict[int, _Left] = {}       # by an optimizer's serial
        self._reset: dict[int, int] = {}        # and how many of its steps in a row found its gradients reset

    def forget(self) -> None:
        """One optimizer trains."""
        if self._left:
            self._left.clear()

    def stepped(self, serial: int, parameters: Sequence[torch.Tensor]) -> None:
        """An optimizer has updated these."""
        if self._reset.get(serial, 0) >= LOOKS:
            self._left.pop(serial, None)
            return
        before = self._left.pop(serial, None)
        gradient = local(parameters[-1].grad) if parameters and parameters[-1].grad is not None else None
        if gradient is not None and gradient.layout is torch.strided and (mark := self._mark(gradient)):
            self._left[serial] = _Left(parameters[-1], gradient, mark, before.streak if before is not None else 0)

    def before_backward(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        for left in self._left.values():
            if left.begun and not left.kept:
                continue
            parameter = left.parameter()
            gradient = None if parameter is None or parameter.grad is None else local(parameter.grad)
            left.begun, left.kept = True, gradient is not None and self._is_there(left, gradient)
            if left.kept and not left.added and left.streak >= SUSPECT and parameter is not None:
                left.added = gives(tensors, parameter)

    def _is_there(self, left: _Left, gradient: torch.Tensor) -> bool:
        if gradient.layout is not torch.strided:
            return False
        unwritten: bool = gradient._version == left.version
        if gradient.device.type != "cpu":       # which is not waited for: zeros cannot be told from numbers
            return unwritten
        mark = self._mark(gradient)
        return mark != 0 and (left.begun or (unwritten and mark == left.mark))

    def take(self, serial: int) -> bool:
        """An optimizer is about to step: are its gradients those of its step before, and more?"""
        if self._reset.get(serial, 0) >= LOOKS:
            return False
        left = self._left.get(serial)
        parameter = None if left is None else left.parameter()
        if left is None or parameter is None or parameter.grad is None:
            return False
        gradient = local(parameter.grad)
        same = left.kept and gradient.data_ptr() == left.place and gradient._version > left.version
        left.streak = left.streak + 1 if same else 0
        self._reset[serial] = 0 if same else self._reset.get(serial, 0) + 1
        return same and left.added
