"""Where a NaN was born in one step that is executed by itself (`tdbg replay`): nothing is recorded, and the line of
each operation is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from . import backward as _backward
from . import lines
from .birth import INPUT, LABEL, Outside
from .graph import TooLarge
from .said import inputs_of, record_of
from .values import FINITE, NAN, Budget, state_of
from .walk import Walk


class Once:
    """Keeps the losses of the last backward until the optimizer steps."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}                 # by id() of a parameter, its name in the model
        self.record: dict[str, Any] | None = None       # as a run has it (docs/format.md, "Where a NaN began")
        self._holder = _backward.Holder(self._layer_of, on_devices=True)
        self._losses: list[torch.Tensor] = []
        self._outside: list[Outside] = []

    def before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is called with these. torch keeps the lines from here on."""
        self._outside = [Outside(INPUT, name, tensor) for name, tensor in inputs_of(args, kwargs)]
        if not torch.is_anomaly_enabled():
            torch.autograd.set_detect_anomaly(True, check_nan=False)

    def compared_with(self, target: Any) -> None:
        """A loss function is given this to compare with."""
        if type(target) is torch.Tensor:
            self._outside.append(Outside(LABEL, "the labels", target))

    def before_backward(self, losses: Sequence[torch.Tensor]) -> None:
        if self.record is not None:
            return
        with torch.no_grad():
            states = {state_of(loss, Budget()) for loss in losses}
            if states <= {FINITE, None}:
                self._losses = list(losses)
                for loss in losses[:1]:
                    self._holder.before_backward(loss)
                return
            try:
                birth = Walk(losses, lambda p: self.names.get(id(p)), self._layer_of, self._outside).find()
            except TooLarge:
                return
        noun = "NaN" if NAN in states else "infinite"
        self.record = record_of(birth, "forward", noun, lines.of_caller(lines.BACKWARD))

    def before_step(self, parameters: Iterable[torch.Tensor]) -> None:
        """Gradients are final."""
        if self.record is not None:
            return
        with torch.no_grad():
            found = _backward.states_of(parameters, lambda p: p.grad, Budget())
            if found.bad:
                birth = _backward.find(found, self._holder.held, self._losses, self._layer_of)
                noun = "NaN" if NAN in found.bad.values() else "infinite"
                self.record = record_of(birth, "backward", noun)
        self._losses = []

    def _layer_of(self, parameter: torch.Tensor) -> str:
        name = self.names.get(id(parameter), "")
        return name.rpartition(".")[0] or name
