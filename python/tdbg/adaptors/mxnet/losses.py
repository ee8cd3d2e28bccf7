"""Losses: what loss blocks returned, and what `backward` was called on.

A loss block returns one value per sample: that vector is recorded, under the block's name. Values are copied when they
appear (the script may write into them) by operators of MXNet's own, and waited for at the step's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..numbering import BACKWARD, Numbering
from ..session import NOT_WANTED
from . import arrays

if TYPE_CHECKING:
    from .session import Session

MAX_PENDING = 4096        # losses without a Trainer's step: a training loop of a kind that we do not know
MAX_ELEMENTS = 1 << 20    # a loss larger than this is not copied


class Losses:
    """Losses of the step being trained and of the evaluation in progress."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.train: list[tuple[str, Any, int]] = []     # (name without its number, copy, micro-step)
        self.eval: list[tuple[str, Any, int]] = []
        self.micro = 0                    # backward calls since the last Trainer's step
        self.passes = 0                   # and since the last TRAIN step: sub-keys of outputs go on counting
        self.numbering = Numbering()
        self._ids: dict[Any, int] = {}
        self._as_tensor: bool | None = None    # backward_loss: a loss of its own, or a series beside others
        self._last: Any = None    # the loss that a block has just returned: what backward is usually called on

    def returned(self, name: str, value: Any, training: bool) -> None:
        """A loss block returned `value`."""
        for array in arrays.flat(value):
            kept = self._keep(
                self.train if training else self.eval, f"{name}_output", array, self.micro if training else 0
            )
            self._last = array if training and kept else None

    def backward(self, heads: Any, wanted: Any) -> None:
        """backward() is about to run on `heads`. Counts a micro-step and keeps the values."""
        self.micro += 1
        self.passes += 1
        last, self._last = self._last, None
        if wanted:
            for array in arrays.flat(heads):
                if last is not array:                  # else it is recorded already, as that block's output
                    self._keep(self.train, BACKWARD, array, self.micro - 1)

    def _keep(self, pending: Any, name: str, array: Any, micro: int) -> bool:
        if len(pending) >= MAX_PENDING or array.size > MAX_ELEMENTS or array.stype != "default":
            self.session.lost("unsupported", 1, f"{name}: " + (
                "losses without a Trainer's step" if len(pending) >= MAX_PENDING else f"{array.shape} is not copied"))
            return False
        if not array.size:
            return False
        pending.append((name, arrays.copy(array), micro))
        return True

    def take_train(self, accumulated: bool, owner: Any = None) -> tuple[Any, dict[str, list[Any]]]:
        """The losses that led to this Trainer's step, named, for `put_train` in the same step: [(name, copy, sub-key)],
        {name: its micro-steps' copies}.

        `owner`: the Trainer's number. `accumulated`: gradients added up over backward calls. Each micro-step's losses
        are then at a sub-key of their own, and for the step itself their mean; of backward_loss the sum, which is what
        the gradients are of.
        """
        pending, micro = self.train, self.micro if accumulated else 1
        self.train, self.micro, self._last = [], 0, None
        if not pending:
            return (), {}
        if self._as_tensor is None:
            self._as_tensor = all(name == BACKWARD for name, _, _ in pending)
        rows: list[tuple[str, Any, int]] = []
        whole: dict[str, list[Any]] = {}
        for full, copy, step in self.numbering.names(pending, by_micro_step=micro > 1, owner=owner):
            rows.append((full, copy, step + 1 if micro > 1 else 0))
            if micro > 1:
                whole.setdefault(full, []).append(copy)
        return rows, whole

    def put_train(self, rows: Any, whole: Any) -> tuple[list[int], list[int], list[Any]]:
        """Records what `take_train` gave; waits for it. Those of one element at the step's own place are returned as
        (ids, addresses, arrays to keep alive) for the batch of its parameters."""
        ids, found, alive = [], [], []
        for full, copy, sub in rows:
            if full.startswith(BACKWARD) and not self._as_tensor:
                self.session.context.series(full, float(arrays.values(copy).sum()), sub)
                continue
            ident = self._id(full, copy)
            if ident == NOT_WANTED:
                continue
            if sub or copy.shape != (1,) or not arrays.is_plain(copy):
                self.session.put_values(ident, arrays.values(copy), sub)
            else:
                ids.append(ident)
                found += arrays.addresses([copy.handle])
                alive.append(copy)
        for full, copies in whole.items():
            self._combine(full, copies)
        return ids, found, alive

    def _combine(self, full: str, copies: Any) -> None:
        """What the micro-steps' values are together, for the step itself."""
        if any(c.shape != copies[0].shape for c in copies):
            return
        stacked = np.stack([arrays.values(c) for c in copies])
        if full.startswith(BACKWARD):
            if self._as_tensor:
                self.session.put_values(self._id(full, copies[0]), stacked.sum(0), 0)
            else:
                self.session.context.series(full, float(stacked.sum()), 0)
        elif (ident := self._id(full, copies[0])) != NOT_WANTED:
            self.session.put_values(ident, stacked.mean(0), 0)

    def flush_eval(self) -> None:
        pending, self.eval = self.eval, []
        for full, copy, _ in Numbering().names(pending):
            ident = self._id(full, copy)
            if ident != NOT_WANTED:
                self.session.put_values(ident, arrays.values(copy), 0)

    def discard(self) -> None:
        """The step is not due."""
        self.train.clear()
        self.micro, self._last = 0, None

    def _id(self, full: str, copy: Any) -> int:
        key = (full, copy.dtype, copy.ndim)
        ident = self._ids.get(key)
        if ident is None:
            collections = ["losses"] if full.startswith(BACKWARD) else []
            ident = self._ids[key] = self.session.run.define(
                full, full, "loss", "", arrays.dtype_name(copy), list(copy.shape), copy.size != 1, -1, [], collections)
        return ident
