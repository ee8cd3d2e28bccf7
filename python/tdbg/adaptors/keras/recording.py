"""From what a function returned for a batch to a step of the run.

A training's step is one update: with accumulated gradients several batches make it, and those are its micro-steps. A
step of an evaluation stays open until the next one begins: Keras says the metrics of the whole when the last batch is
over.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..steps import PREDICT, TRAIN
from ..values import Entry
from . import collect
from .tap import Tap

if TYPE_CHECKING:
    from .session import Session

#: Kinds whose values are those of the whole update, whichever of its batches is under way.
OF_THE_UPDATE = ("gradient", "weight", "bias", "optimizer")


def metric(session: Session, name: str, value: Any, kind: str = "metric") -> list[tuple[Entry, Any]]:
    """One entry of Keras' logs, for `Values.put`: [(Entry, array)]; [] for what is no number, or not wanted."""
    array = session.backend.numpy(value) if session.backend.is_tensor(value) else None
    if array is None:
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            return []
    entry = session.values.entry(name, kind)
    return [(entry, array)] if entry is not None and array.size == 1 and array.dtype.kind in "fiub" else []


def optimizer_options(optimizer: Any) -> dict[str, Any]:
    """Class and configuration; the learning rate is a series of its own."""
    options = {k: v for k, v in optimizer.get_config().items() if k != "learning_rate"}
    return {"class": type(optimizer).__name__, "options": options}


def _accumulated(optimizers: Iterable[Any]) -> int:
    """How many batches make one update."""
    for optimizer in optimizers:
        steps = getattr(getattr(optimizer, "inner_optimizer", optimizer), "gradient_accumulation_steps", None)
        if steps:
            return int(steps)
    return 1


class Batch(enum.Enum):
    """How far the batch under way is."""

    NONE = enum.auto()      # nothing of it was recorded: put() opens its step, where the update has none open yet
    OPENED = enum.auto()    # its step was opened before the function ran (begin_early), for the operations in it
    PUT = enum.auto()       # its step is open and has tensors; more of them may come before finish()


class Recording:
    """Of one model and mode.

        NONE --begin_early--> OPENED --put--> PUT --finish--> NONE
        NONE --put--> PUT
        OPENED --take_back--> NONE

    :param was_put: called in the open step with the outputs that were put there, where anything was due and there is no
        tap
    """

    def __init__(self, session: Session, mode: int, was_put: Callable[[dict[str, Any]], None]) -> None:
        self._session, self._mode, self._was_put = session, mode, was_put
        self._batch = Batch.NONE
        #: Of a training, what records tensors while the function runs; None: everything is an output.
        self.tap: Tap | None = None
        # Of the step that was opened last.
        self.due = False
        self._skipped = False               # its update changed nothing: a gradient was not finite
        self._micro, self._micro_steps = 0, 1
        self._losses: list[float] = []    # of the micro-steps
        # Of the function, known when it has been traced.
        self._absent: list[str] | None = None
        self._optimizers: list[Any] = []
        # Keras' logs have the epoch's mean under that name, which is not wanted then
        self._returns_loss = False
        # What is recorded with the first step in which anything is due.
        self._began = False
        self._options: dict[str, Any] = {}
        self._untrained: list[Any] = []    # what was found of frozen weights and buffers for this step
        self._batch_kind: tuple[str, list[int]] | None = None  # dtype and shape of the last one

    # Before the function runs ---------------------------------------------------------------------------------------

    def before_first(self, model: Any, arguments: tuple[Any, ...]) -> None:
        """Options as they are before the first step. `arguments`: of the function that is about to be made."""
        optimizer = getattr(model, "optimizer", None)
        if self._began or self._mode != TRAIN or optimizer is None:
            return
        if self._session.backend.name != "jax":
            self._options[optimizer.name] = optimizer_options(optimizer)
            return
        from keras.src import backend
        with backend.StatelessScope(state_mapping=list(zip(optimizer.variables, arguments[0][2], strict=False))):
            self._options[optimizer.name] = optimizer_options(optimizer)

    def look(self, model: Any, arguments: tuple[Any, ...]) -> None:
        """Frozen weights and buffers as they are before the function runs, which may change them."""
        session = self._session
        raw_due = session.forecast.raw_due(self._mode, session.next_step(self._mode))
        self._untrained = session.untrained.look(model, arguments[0], raw_due)

    def begin_early(self) -> None:
        """Opens the step for what is recorded while the function runs."""
        assert self.tap is not None
        self.due, self._batch = self._session.begin(self._mode), Batch.OPENED
        if self.due:
            self.tap.begin()

    def take_back(self) -> None:
        """The function had no batch, or failed: what `begin_early` did is undone. What was recorded before a failure is
        kept, as a step: it may be what led to it."""
        if self._batch is Batch.OPENED:
            assert self.tap is not None
            self._batch = Batch.NONE
            self.tap.end()
            self._session.cancel_step()

    def traced(self, collector: collect.Collector) -> None:
        """`collector` has seen the step function from its begin to its end."""
        self._absent, self._optimizers = collector.absent, collector.optimizers
        if collector.apart:
            self._session.say_once(
                f"{collector.replicas} replicas: tensors without the batch's axis have no whole to be recorded: "
                f"{_some_of(collector.apart)}"
            )
        if collector.unseen:
            self._session.say_once("layers called inside a loop or a branch of a graph have no outputs to be recorded: "
                                   f"{_some_of(collector.unseen)}")

    # What it returned -----------------------------------------------------------------------------------------------

    def record(self, model: Any, extras: dict[str, Any], logs: Any) -> None:
        """The function has run: all that it returned of one batch."""
        batch = None if self.tap is None else self.tap.end()
        self.put(model, extras, logs, batch)
        self.finish()

    def put(self, model: Any, extras: dict[str, Any], logs: Any = None, batch: Any = None) -> None:
        """Opens the step (of an update whose gradients are accumulated: at its first batch) and puts the tensors, and
        with those of its last batch Keras' logs.

        :param extras: what `Collector.outputs` or `take` gave
        :param batch: see Tap.end
        """
        session, mode = self._session, self._mode
        numpy = session.backend.numpy
        if self._batch is not Batch.PUT:
            self._open_step(extras.pop(collect.ITERATION, None))
        finite = extras.pop(collect.FINITE, None)
        if finite is not None and not bool(numpy(finite)):
            self._skipped = True
        self._returns_loss = self._returns_loss or "loss" in extras or self.tap is not None and "loss" in self.tap
        if not self.due:
            return
        if not self._began and mode == TRAIN:
            self._began = True
            self._first_step(model)
        if self._untrained and not self._micro:
            session.untrained.put(self._untrained)
        self._untrained = []
        if batch is not None:
            self._describe_batch(*batch)
        found: dict[int, list[tuple[Entry, Any]]] = {}      # by sub-key
        for key, tensor in extras.items():
            if key.startswith("context/"):
                self._context(key, numpy(tensor))
                continue
            name, _, repeated = key.partition(collect.AGAIN)
            entry = session.values.known(name)
            sub = self._sub(entry.kind, int(repeated) + 1 if repeated else 0)
            if sub is None:
                continue
            array = numpy(tensor)
            if entry.kind == "loss" and self._micro_steps > 1:
                self._losses.append(float(array))
            found.setdefault(sub, []).append((entry, array))
        if self._is_last and mode != PREDICT and isinstance(logs, dict):
            for name, value in logs.items():
                if (name != "loss" or not self._returns_loss) and not (self.tap is not None and name in self.tap):
                    found.setdefault(0, []).extend(metric(session, name, value, "loss" if name == "loss" else "metric"))
        for sub, arrays in found.items():
            session.values.put(arrays, sub)
        if self.tap is None:
            self._was_put(extras)

    def finish(self) -> None:
        """Everything of the batch was put; with the last one of an update its step is over."""
        session = self._session
        if self._batch is Batch.NONE:
            session.begin(self._mode)
        if self._batch is not Batch.PUT:
            self.due = False
        self._batch = Batch.NONE
        if not self._is_last:
            return
        if self.due:
            self._last_of_step()
        self._losses.clear()
        if self._mode == TRAIN:         # an evaluation's last step takes the metrics of the whole, too
            session.close_step(self._skipped)

    @property
    def _is_last(self) -> bool:
        """Is this the last batch of its step?"""
        return self._micro + 1 == self._micro_steps

    def _open_step(self, iteration: Any) -> None:
        """The first tensors of a batch are there. `iteration`: which it is of its update, where several make one."""
        session, mode = self._session, self._mode
        self._micro_steps = _accumulated(self._optimizers) if mode == TRAIN else 1
        several = iteration is not None and self._micro_steps > 1
        self._micro = int(session.backend.numpy(iteration)) % self._micro_steps if several else 0
        if self._batch is Batch.NONE and (self._micro == 0 or session.open_mode != TRAIN):
            self.due = session.begin(mode)
        self._batch, self._skipped = Batch.PUT, False

    def _sub(self, kind: str, repeated: int) -> int | None:
        """Under which sub-key a tensor of this batch goes; None: the step has it from another of its batches.

        :param repeated: which of several tensors of one name it is
        """
        if self._micro_steps == 1:
            return repeated
        if kind == "gradient":
            return repeated if self._is_last else None
        if kind in OF_THE_UPDATE:
            return None if self._micro else repeated
        return self._micro + 1 if kind == "loss" or self._micro else 0

    def _last_of_step(self) -> None:
        session = self._session
        if self._losses:
            session.values.put([(session.values.known("loss"), np.float32(np.mean(self._losses)).reshape(()))])
            session.context.add("context/micro_steps", self._micro_steps)
        if self._mode == TRAIN and self._absent is not None:
            session.context.add("context/gradients_absent", len(self._absent))
            if self._absent:
                session.context.topic("gradients_absent", {"names": self._absent})
        if self._skipped:
            session.context.add("context/skipped", 1)

    # The training context -------------------------------------------------------------------------------------------

    def _context(self, key: str, array: Any) -> None:
        if key != collect.BATCH:
            self._session.context.add(key, array)
            return
        mark = None
        if array.flags.c_contiguous and array.size:
            from tdbg import _capture
            mark = _capture.fingerprint(array.__array_interface__["data"][0], array.nbytes)
        self._describe_batch(mark, array.dtype.name, list(array.shape))

    def _describe_batch(self, mark: int | None, dtype: str, shape: list[int]) -> None:
        """`mark`: its fingerprint."""
        context = self._session.context
        context.add("context/batch_size", shape[0] if shape else 1)
        if mark is not None:
            context.add("context/batch_fingerprint", mark)
        if (dtype, shape) != self._batch_kind:
            self._batch_kind = dtype, shape
            context.topic("batch", {"dtype": dtype, "shape": shape})

    def _first_step(self, model: Any) -> None:
        """What does not change: which weights are frozen, the optimizers' options."""
        session = self._session
        session.trained(model)
        session.context.topic(
            "parameters", {"frozen": [entry.name for entry, _, _ in self._untrained], "in_no_optimizer": []}
        )
        for optimizer in self._optimizers:
            if optimizer is not getattr(model, "optimizer", None) and session.backend.name != "jax":
                self._options[optimizer.name] = optimizer_options(optimizer)
        for name, options in self._options.items():
            session.context.topic(f"optimizer/{name}", options)


def _some_of(names: Iterable[str]) -> str:
    names = sorted(set(names))
    return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
