"""The training context of a step: numbers as series `context/...`, structure as JSON written when it changes.

Series: lr/<trainer>/0, wd/<trainer>, optimizer_step/<trainer> (the optimizer's num_update before this step),
gradient_divisor/<trainer> (Trainer.step's batch size), batch_size and batch_fingerprint (of the last root forward's
first input), micro_steps, gradients_absent, grad_norm, loss_scale, skipped. Topics: versions, batch, parameters (in no
trainer, frozen), gradients_absent (names), optimizer/<trainer>. A trainer is called after its optimizer's class: SGD,
Adam, SGD_1.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import mxnet
import numpy as np
from mxnet.ndarray import NDArray

from tdbg import _capture

from ..context import Context as BaseContext
from . import arrays
from .blocks import parameter_kind

if TYPE_CHECKING:
    from .params import TrainerTensors
    from .session import Session

_OPTIONS = (
    "momentum",
    "beta1",
    "beta2",
    "epsilon",
    "clip_gradient",
    "multi_precision",
    "lazy_update",
    "gamma1",
    "gamma2",
    "centered",
    "lamda1",
    "beta",
    "eta",
)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool)) or value is None else str(value)


class Context(BaseContext):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._batch: Any = None

    # Numbers ------------------------------------------------------------------------------------------------

    def series(self, name: str, value: Any, sub: int) -> None:
        """A loss that is kept as a series beside the losses."""
        self.session.run.put_scalars([self.id(name)], [value], sub)

    def discard(self) -> None:
        super().discard()
        self._batch = None

    # What is observed ---------------------------------------------------------------------------------------

    def started(self) -> None:
        self.topic("versions", {"mxnet": mxnet.__version__, "numpy": np.__version__,
                                "python": platform.python_version()})

    def saw_batch(self, args: Any) -> None:
        """Its size and mark are taken when the step is recorded: by then it is there anyway."""
        if self.enabled:
            self._batch = next(arrays.flat(args), None)

    def add_batch(self) -> None:
        array, self._batch = self._batch, None
        if array is None:
            return
        self.add("context/batch_size", array.shape[0] if array.ndim else 1)
        if arrays.is_plain(array):
            place, = arrays.addresses([array.handle])
            self.add("context/batch_fingerprint", _capture.fingerprint(place, arrays.dense_bytes(array)))
        if "batch" not in self._topics:
            self.topic("batch", {"dtype": arrays.dtype_name(array), "shape": list(array.shape)})

    def membership(self, entry: TrainerTensors, trainer: Any) -> None:
        members = {id(p) for p in trainer._params}
        known = {id(p): p for e in list(self.session.trainers.entries.values()) for p in e.params}
        outside = [p for p in self.session.known_parameters() if id(p) not in known and id(p) not in members]
        name = self.session.names.of
        self.topic(
            "parameters",
            {
                "in_no_optimizer": [name(p) for p in outside if p._grad_req != "null"],
                "frozen": [
                    name(p)
                    for p in [*outside, *trainer._params]
                    if p._grad_req == "null" and parameter_kind(p.name) != "buffer"
                ],
            },
        )
        optimizer = trainer._optimizer
        found = {key: getattr(optimizer, key) for key in _OPTIONS if hasattr(optimizer, key)}
        scheduler = getattr(optimizer, "lr_scheduler", None)
        found["lr_scheduler"] = None if scheduler is None else type(scheduler).__name__
        self.topic(
            f"optimizer/{entry.label}",
            {
                "class": type(optimizer).__name__,
                "groups": [
                    {
                        "parameters": [name(p) for p in trainer._params],
                        "options": {k: _plain(v) for k, v in found.items()},
                    }
                ],
                "multipliers": {
                    name(p): [p.lr_mult, p.wd_mult] for p in trainer._params if (p.lr_mult, p.wd_mult) != (1.0, 1.0)
                },
            },
        )

    def trainer_step(self, entry: TrainerTensors, trainer: Any, divisor: float, micro_steps: int,
                     absent: list[str]) -> Any:
        """Everything that is known when a Trainer is about to step. Returns the norm of the gradients where MXNet may
        still be computing it, for `series` once it is there."""
        if not self.enabled:
            return None
        optimizer = trainer._optimizer
        self.add(f"context/lr/{entry.label}/0", optimizer.learning_rate)
        self.add(f"context/wd/{entry.label}", optimizer.wd)
        self.add(f"context/optimizer_step/{entry.label}", optimizer.num_update)
        self.add(f"context/gradient_divisor/{entry.label}", divisor)
        if micro_steps:
            self.add("context/micro_steps", micro_steps)
        self.add_absent(entry.label, absent)
        scaler = getattr(trainer, "_amp_loss_scaler", None)
        if scaler is not None:
            self.add("context/loss_scale", scaler.loss_scale)
        norm, self.norm = self.norm, None
        self.add_batch()
        if isinstance(norm, NDArray):
            return norm
        if norm is not None:
            self.add("context/grad_norm", norm)
        return None
