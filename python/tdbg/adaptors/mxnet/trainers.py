"""Trainers: the clock of a training, and the place where its tensors are final.

`Trainer.step` (or `update`, after `allreduce_grads` and clipping) is entered with gradients computed and weights as the
gradients were computed with: everything of a step is taken there, in one go.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..steps import TRAIN
from . import arrays
from .params import TrainerTensors

if TYPE_CHECKING:
    from .session import Session

KEEP_AFTER_DEATH = 64 << 20   # bytes of a dead Trainer's parameters that may wait for the end of the run
BEFORE_CLIP = 2


class Trainers:
    """Every Trainer that was made or has stepped, and what happens around their steps."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # id(trainer) -> TrainerTensors. Gone through as a list: a Trainer may die at any collection of garbage.
        self.entries: dict[int, TrainerTensors] = {}
        self.generation = 0            # counts changes of who trains what
        self._departed: list[TrainerTensors] = []    # of Trainers that died since the last one was made, if small
        self._labels: dict[str, int] = {}
        self._serial = 0

    def made(self, trainer: Any) -> TrainerTensors:
        entry = self.entries.get(id(trainer))
        if entry is not None and entry.ref() is trainer:
            return entry
        base = type(trainer._optimizer).__name__
        used = self._labels.get(base, 0)
        self._labels[base] = used + 1
        self._serial += 1
        entry = TrainerTensors(self.session, self._serial, base if used == 0 else f"{base}_{used}")
        entry.params = trainer._params
        entry.ignored = not self.session.follows(trainer)
        key = id(trainer)
        entry.ref = weakref.ref(trainer, lambda _: self._died(key))
        self.entries[key] = entry
        self._departed = []
        self.generation += 1
        if not entry.ignored:
            self.session.clock.knows(entry.serial)
        return entry

    def _died(self, key: int) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.session.clock.gone(entry.serial)
            self.session.losses.numbering.forget(entry.serial)
        if entry is not None and entry.total_bytes and entry.total_bytes <= KEEP_AFTER_DEATH:
            self._departed.append(entry)

    def with_tensors(self) -> list[TrainerTensors]:
        """What there is to record when the run ends."""
        return [e for e in [*self.entries.values(), *self._departed] if e.total_bytes and not e.ignored]

    def trained(self) -> set[int]:
        """id()s of the parameters that some Trainer followed here has."""
        return {id(p) for e in list(self.entries.values()) if not e.ignored for p in e.params}

    @property
    def accumulate(self) -> bool:
        return any(e.accumulates for e in list(self.entries.values()))

    def pre(self, trainer: Any, divisor: float, only_fresh: bool, reduced: bool) -> None:
        """A Trainer is about to step."""
        entry = self.made(trainer)
        if entry.ignored or not self.session.ensure_open():
            return
        entry.nested += 1
        if entry.nested > 1:
            return
        session = self.session
        session.close_evaluation()
        due = session.clock.about_to_step(entry.serial) if session.by_optimizer else session.clock.due
        session.evaluations_between()
        session.raise_late()
        if not due:
            session.losses.discard()
            session.context.discard()
            return
        entry.refresh(trainer)
        if entry.copies is not None and entry.copies.taken:
            session.settle()
        micro = session.losses.micro
        losses = session.losses.take_train(entry.accumulates, entry.serial)
        absent, copied = entry.capture(reduced, only_fresh)
        norm = session.context.trainer_step(
            entry, trainer, divisor, micro if entry.accumulates else min(micro, 1), absent
        )
        session.context.flush()
        if copied is None or entry.copies is None:
            self._put(losses, copied, norm)
        else:
            session.later(entry.copies.ready, self._put, losses, copied, norm)

    def _put(self, losses: Any, copied: Any, norm: Any) -> None:
        """What MXNet may still have been computing when the step was recorded."""
        session = self.session
        ids, found, alive = session.losses.put_train(*losses)
        if copied is not None:
            copied_ids, places = copied()
            ids, found = ids + copied_ids, found + places
        if ids:
            session.run.put_many(ids, found, 0, 0)      # `alive` holds the losses' memory
        del alive
        if norm is not None:
            session.context.series("context/grad_norm", arrays.values(norm).item(), 0)

    def post(self, trainer: Any, updates: bool) -> None:
        """The Trainer has stepped. `updates`: the optimizer's count before the step."""
        entry = self.entries.get(id(trainer))
        if entry is None or entry.ignored or not entry.nested:
            return
        entry.nested -= 1
        session = self.session
        if entry.nested or session.clock.mode != TRAIN or not session.by_optimizer:
            return
        skipped = getattr(trainer, "_amp_loss_scaler", None) is not None and trainer._optimizer.num_update == updates
        alone = session.clock.is_first and self._nobody_left(entry)
        if not session.clock.has_stepped(entry.serial, skipped, alone):
            session.losses.numbering.next_optimizer(entry.serial)
        session.settle_if_there()

    def left(self, trainer: Any) -> None:
        """The Trainer's step raised."""
        entry = self.entries.get(id(trainer))
        if entry is not None and entry.nested:
            entry.nested -= 1

    def _nobody_left(self, entry: TrainerTensors) -> bool:
        """Before the first step has closed: has every trainable parameter we know of been stepped?"""
        serials = self.session.clock.stepped | {entry.serial}
        stepped = {id(p) for e in list(self.entries.values()) if e.serial in serials for p in e.params}
        known = [p for e in list(self.entries.values()) if not e.ignored and e.ref() is not None for p in e.params]
        return not any(p._grad_req != "null" and id(p) not in stepped
                       for p in [*known, *self.session.known_parameters()])

    def before_clipping(self) -> None:
        """Gradients before clipping, of every Trainer that has not stepped yet."""
        session = self.session
        for entry in list(self.entries.values()):
            trainer = entry.ref()
            if trainer is None or entry.ignored or entry.serial in session.clock.stepped or not session.ensure_open():
                continue
            if session.clip_wanted and session.by_optimizer and session.clock.train():
                entry.refresh(trainer)
                entry.capture_gradients(BEFORE_CLIP)
