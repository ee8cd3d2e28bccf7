"""What a rule may see: the run up to the judged step, never beyond.

A verdict must not depend on when somebody looked. So a rule reads the run through `UpTo`, which stands where the
extension's trial stands in tdbg.Trial and answers as if the judged step were the newest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import NotFoundError
from ..exceptions import StepNotYetAvailable
from ..modes import ModeKeys
from ..steps import KINDS, LAST, StepState, step_filter
from ..tensor import Summary
from ..trial import Trial
from .rule import Finding

_GLOBAL = ModeKeys.GLOBAL.value
_COLUMNS = (*Summary.FIELDS, "mean_abs", "std", "nonfinite_count", "value")
_CHUNK_STEPS = 256  # read at once where a rule lags behind


class UpTo:
    """The extension's trial, seen from one of its steps."""

    def __init__(self, raw):
        self._whole = raw
        self.shown = -1
        self.ended = False
        self.lost = {}  # worker -> the first global step without it
        self._newest = -1

    def __getattr__(self, name):
        return getattr(self._whole, name)

    def refresh(self):
        news = self._whole.refresh()
        steps = self._whole.steps(step_filter("GLOBAL", "any", True))
        self._newest = steps[-1] if steps else -1
        return news

    def _cut(self, chosen):
        mode, kind, incomplete, begin, end = chosen
        # A lost worker's steps never become complete; those that are shown were judged all the same.
        return (mode, kind, True, begin, min(end, self.shown + 1))

    def _allow(self, step):
        if step > self.shown:
            raise StepNotYetAvailable(step, ModeKeys.GLOBAL)
        return step

    # Time: nothing here may tell a run that goes on from one that has ended.
    def loaded_all_steps(self):
        return self.ended

    def state(self):
        return self._whole.state() if self.ended else "running"

    def last_seen_step(self):
        return self.shown

    def last_complete_step(self):
        return self.shown

    def bytes_on_disk(self):
        return self._whole.bytes_on_disk() if self.ended else 0

    def wait_for_change(self, millis):
        return False

    def cursor(self):
        raise NotImplementedError("a rule is told of each step; it has no cursor")

    # Steps
    def steps(self, chosen):
        return self._whole.steps(self._cut(chosen))

    def step(self, step):
        return self._whole.step(step) if step <= self.shown else None

    def global_step(self, mode, step):
        found = self._whole.global_step(mode, step)
        return found if found is not None and found <= self.shown else None

    def step_state(self, step, chosen):
        if chosen[0] == _GLOBAL and step > self.shown:
            return (StepState.UNAVAILABLE if self.ended else StepState.NOT_YET_AVAILABLE).value
        state = self._whole.step_state(step, self._cut(chosen))
        if state == StepState.NOT_YET_AVAILABLE.value and chosen[0] == _GLOBAL:
            return StepState.UNAVAILABLE.value  # a later step would have said so
        if state == StepState.UNAVAILABLE.value and chosen[0] != _GLOBAL and not self.ended:
            newest = self._whole.steps(self._cut((chosen[0], KINDS["any"], True, chosen[3], LAST)))
            if not newest or step > newest[-1]:
                return StepState.NOT_YET_AVAILABLE.value
        return state

    def missing_workers(self, step):
        return self._whole.missing_workers(self._allow(step))

    # Tensors
    def tensor_names(self, regex, collection, at, chosen):
        if at is not None:
            self._allow(at)
        if self.shown >= self._newest:
            return self._whole.tensor_names(regex, collection, at, chosen)
        return self._whole.tensor_names(regex, collection, at, self._cut(chosen))

    def tensor_steps(self, name, chosen, worker):
        return self._whole.tensor_steps(name, self._cut(chosen), worker)

    def tensor_workers(self, name, step, kind):
        workers = self._whole.tensor_workers(name, self._allow(step), kind)
        return [w for w in workers if step < self.lost.get(w, LAST)]

    def is_kept(self, name, step, kind, worker):
        return step <= self.shown and self._whole.is_kept(name, step, kind, worker)

    def frame(self, regex, collection, names, chosen, fields, worker):
        return self._whole.frame(regex, collection, names, self._cut(chosen), fields, worker)

    def series(self, name, field, worker):
        steps, values = self._whole.series(name, field, worker)
        end = np.searchsorted(steps, self.shown, "right")
        return steps[:end], values[:end]

    def context(self, topic, step):
        return self._whole.context(topic, min(step, self.shown))

    def final_value(self, name, worker):
        self._only_at_the_end()
        return self._whole.final_value(name, worker)

    def final_summary(self, name, worker):
        self._only_at_the_end()
        return self._whole.final_summary(name, worker)

    def _only_at_the_end(self):
        if not self.ended:
            raise NotFoundError("what is recorded when the run ends is there in at_end() only")


def _guarded(call):
    def of_a_step(self, name, step, *rest):
        return getattr(self._whole, call)(name, self._allow(step), *rest)
    return of_a_step


for _call in ("value", "slice", "shape", "summary", "histogram", "quantile", "scalar", "reduction", "saved_reductions"):
    setattr(UpTo, _call, _guarded(_call))


class JudgedTrial(Trial):
    """The run as a rule sees it: a tdbg.Trial that ends at the judged step."""

    def __init__(self, raw, kind):
        # A range, so that no call takes the short way around the filter; dynamic_refresh off: the host looks.
        super().__init__(UpTo(raw), kind=kind, dynamic_refresh=False, range_steps=(0, LAST))

    def refresh(self):
        """Nothing: a rule's view does not move under it."""
        return False

    def maybe_refresh(self, name=None):
        pass

    def _look(self):
        pass

    def wait_for_steps(self, required_steps, mode=ModeKeys.GLOBAL, timeout=None):
        for step in required_steps:
            if self.has_passed_step(step, mode) == StepState.NOT_YET_AVAILABLE:
                raise StepNotYetAvailable(step, mode)
        super().wait_for_steps(required_steps, mode, timeout)


class Statistics:
    """Statistics of one step as columns: one row per tensor, worker and micro-step. Read-only NumPy arrays.

    `tensor` and `worker` are names; every field of tdbg's Summary is a column (`mean`, `abs_max`, `nan_count`, ...),
    and `mean_abs`, `std`, `nonfinite_count`, `value` (of one-element tensors and numbers). Moments cover finite
    elements; NaN where there are none.
    """

    def __init__(self, tensor, worker, columns):
        self.tensor, self.worker = tensor, worker
        self._columns = columns

    def __getattr__(self, name):
        try:
            return self.__dict__["_columns"][name]
        except KeyError:
            raise AttributeError(f"no column '{name}': {', '.join(_COLUMNS)}") from None

    def __len__(self):
        return len(self.tensor)

    def finding(self, row, measure, comparison, threshold, text=""):
        """A Finding about one row: its tensor, worker, and the value of the column `measure`."""
        return Finding(tensor=self.tensor[row], worker=self.worker[row], measure=measure, comparison=comparison,
                       value=float(self._columns[measure][row]), threshold=threshold, text=text)


class _Chunk(NamedTuple):
    first: int
    last: int
    step: np.ndarray  # ascending
    tensor: np.ndarray
    worker: np.ndarray
    columns: dict


class Frames:
    """Statistics of many steps read at once: a rule that lags, or judges afterwards, pays for a call per chunk.

    :param whole: the trial
    :param refresh: brings it up to date
    """

    def __init__(self, whole, lost, refresh):
        self._whole, self._lost, self._refresh = whole, lost, refresh
        self._chunks = {}
        self.due = []  # steps that wait to be judged, the judged one first: all of them are complete, if not here yet

    def at(self, step, collection, regex):
        chunk = self._chunks.get((collection, regex))
        if chunk is None or not chunk.first <= step <= chunk.last:
            chunk = self._chunks[collection, regex] = self._read(step, collection, regex)
        begin, end = np.searchsorted(chunk.step, (step, step + 1))
        rows = slice(begin, end)
        worker = chunk.worker[rows]
        columns = {name: column[rows] for name, column in chunk.columns.items()}
        kept = [i for i, w in enumerate(worker) if step < self._lost.get(w, LAST)] if self._lost else None
        if kept is not None and len(kept) < len(worker):
            return Statistics(chunk.tensor[rows][kept], worker[kept], {n: c[kept] for n, c in columns.items()})
        return Statistics(chunk.tensor[rows], worker, columns)

    def _read(self, step, collection, regex):
        due = [s for s in self.due[:_CHUNK_STEPS] if s >= step]
        # One that came in since we last looked would be an empty step of the chunk.
        if not all((info := self._whole.step(s)) is not None and info.complete for s in due):
            self._refresh()
        last = due[-1] if due else step
        chosen = step_filter("GLOBAL", "summary", True, step, last + 1)
        names, workers, tensor, worker, steps, _, _, values = self._whole.frame(regex or "", collection or "", [],
                                                                                chosen, list(_COLUMNS), "*")
        order = np.argsort(steps, kind="stable")
        names, workers = np.array(names, dtype=object), np.array(workers, dtype=object)
        columns = {}
        for name, column in zip(_COLUMNS, values):
            columns[name] = column[order]
            columns[name].flags.writeable = False
        return _Chunk(step, last, steps[order], names[tensor[order]], workers[worker[order]], columns)


class Step:
    """The step that is judged."""

    def __init__(self, trial, frames, message):
        self.trial = trial  #: tdbg.Trial up to this step, for whoever wants earlier ones
        self._frames = frames
        self.global_step = message["step"]
        self.mode = ModeKeys(message["mode"])
        self.mode_step = message["mode_step"]
        self.skipped = message["skipped"]  #: the optimizer's update was skipped (AMP)
        self.incomplete = message["incomplete"]  #: statistics that were due here were shed or are damaged

    def statistics(self, collection: str | None = None, regex: str | None = None) -> Statistics:
        """Of a collection's tensors, of those whose name `regex` is found in, of both (either will not do), or all."""
        return self._frames.at(self.global_step, collection, regex)

    def value(self, tensor: str, worker: str | None = None) -> np.ndarray:
        """Raw value. :raises TensorUnavailableForStep: none is kept here"""
        return self.trial.tensor(tensor).value(self.global_step, worker=worker)

    def values(self, collection: str | None = None, regex: str | None = None):
        """(tensor, worker, array) of each raw value that is kept at this step."""
        raw = self.trial._raw
        chosen = step_filter("GLOBAL", "raw", True, self.global_step, self.global_step + 1)
        for name in raw.tensor_names(regex or "", collection or "", self.global_step, chosen):
            tensor = self.trial.tensor(name)
            for worker in raw.tensor_workers(name, self.global_step, KINDS["raw"]):
                yield name, worker, tensor.value(self.global_step, worker=worker)

    def scalar(self, name: str, worker: str | None = None) -> float:
        """A number of the script's or of the training context, or a one-element tensor's value."""
        return self.trial._raw.scalar(name, self.global_step, worker or "")
