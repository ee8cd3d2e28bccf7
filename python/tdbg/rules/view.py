"""What a rule may see: the run up to the judged step, never beyond.

A verdict must not depend on when somebody looked. So a rule reads the run through `UpTo`, which stands where the
extension's trial stands in tdbg.Trial and answers as if the judged step were the newest.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from .. import _trial
from ..compat import trial as compat
from ..errors import NotFoundError
from ..modes import ModeKeys
from ..reading.arrays import Array
from ..reading.raises import OWN, Raises
from ..reading.steps import EVERY_STEP, KINDS, LAST, Mode, StepFilter, StepState, mode_of, step_filter
from ..reading.summary import Summary
from ..reading.trial import Trial
from .rule import Finding

_GLOBAL = ModeKeys.GLOBAL.value
_COLUMNS = (*Summary.FIELDS, "mean_abs", "std", "nonfinite_count", "value")
_CHUNK_STEPS = 256  # read at once where a rule lags behind


class Lost:
    """Workers that were declared lost, each in one attempt of the job, from a step on."""

    def __init__(self) -> None:
        self._from: dict[tuple[int, str], int] = {}  # (attempt, worker) -> the first global step without it
        self._begins: list[tuple[int, int]] = []  # (the first judged step of it, attempt); attempts never go back

    def __bool__(self) -> bool:
        return bool(self._from)

    def add(self, attempt: int, worker: str, from_step: int) -> None:
        """One that was never seen is called "rank 3"."""
        self._from[attempt, worker] = from_step

    def judged(self, step: int, attempt: int) -> None:
        """The step is judged next."""
        if not self._begins or self._begins[-1][1] != attempt:
            self._begins.append((step, attempt))

    def hides(self, worker: str, step: int) -> bool:
        """Is what it recorded of the step not to be judged?"""
        at = bisect.bisect_right([begin for begin, _ in self._begins], step)
        attempt = self._begins[max(at - 1, 0)][1] if self._begins else 0
        names = (worker, "rank " + worker.removeprefix("worker_"))
        return any(step >= self._from.get((attempt, name), LAST) for name in names)


class UpTo:
    """The extension's trial, seen from one of its steps.

    :param raises: the exception for a step beyond it
    """

    def __init__(self, raw: _trial.Trial, raises: Raises = OWN) -> None:
        self._whole = raw
        self._raises = raises
        self.shown = -1
        self.ended = False
        self.lost = Lost()
        self._newest = -1
        self._attempt = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def refresh(self) -> bool:
        news = self._whole.refresh()
        steps = self._whole.steps(step_filter("GLOBAL", "any", True))
        self._newest = steps[-1] if steps else -1
        return news

    def show_attempt(self, attempt: int) -> None:
        """A step of this attempt is judged: what later ones have made of the run is not to be seen yet."""
        if attempt == self._attempt:
            return
        self._attempt = attempt
        self._whole.show_up_to(attempt)
        self.refresh()

    def _cut(self, chosen: StepFilter) -> StepFilter:
        mode, kind, _, begin, end = chosen
        # A lost worker's steps never become complete; those that are shown were judged all the same.
        return (mode, kind, True, begin, min(end, self.shown + 1))

    def _allow(self, step: int) -> int:
        if step > self.shown:
            raise self._raises.step_not_yet(step, ModeKeys.GLOBAL)
        return step

    # Time: nothing here may tell a run that goes on from one that has ended.
    def loaded_all_steps(self) -> bool:
        return self.ended

    def state(self) -> str:
        return self._whole.state() if self.ended else "running"

    def last_seen_step(self) -> int:
        return self.shown

    def last_complete_step(self) -> int:
        return self.shown

    def bytes_on_disk(self) -> int:
        return self._whole.bytes_on_disk() if self.ended else 0

    def wait_for_change(self, millis: int) -> bool:
        return False

    def cursor(self) -> _trial.Cursor:
        raise NotImplementedError("a rule is told of each step; it has no cursor")

    # Steps
    def steps(self, chosen: StepFilter) -> list[int]:
        return self._whole.steps(self._cut(chosen))

    def step(self, step: int) -> _trial.StepInfo | None:
        return self._whole.step(step) if step <= self.shown else None

    def global_step(self, mode: int, step: int) -> int | None:
        found = self._whole.global_step(mode, step)
        return found if found is not None and found <= self.shown else None

    def step_state(self, step: int, chosen: StepFilter) -> int:
        if chosen[0] == _GLOBAL and step > self.shown:
            return int((StepState.UNAVAILABLE if self.ended else StepState.NOT_YET_AVAILABLE).value)
        state = self._whole.step_state(step, self._cut(chosen))
        if state == StepState.NOT_YET_AVAILABLE.value and chosen[0] == _GLOBAL:
            return int(StepState.UNAVAILABLE.value)  # a later step would have said so
        if state == StepState.UNAVAILABLE.value and chosen[0] != _GLOBAL and not self.ended:
            newest = self._whole.steps(self._cut((chosen[0], KINDS["any"], True, chosen[3], LAST)))
            if not newest or step > newest[-1]:
                return int(StepState.NOT_YET_AVAILABLE.value)
        return state

    def step_workers(self, step: int) -> list[str]:
        return self._whole.step_workers(self._allow(step))

    def missing_workers(self, step: int) -> list[str]:
        return self._whole.missing_workers(self._allow(step))

    # Tensors
    def tensor_names(self, regex: str, collection: str, at: int | None, chosen: StepFilter) -> list[str]:
        if at is not None:
            self._allow(at)
        if self.shown >= self._newest:
            return self._whole.tensor_names(regex, collection, at, chosen)
        return self._whole.tensor_names(regex, collection, at, self._cut(chosen))

    def tensor_steps(self, name: str, chosen: StepFilter, worker: str) -> list[int]:
        return self._whole.tensor_steps(name, self._cut(chosen), worker)

    def tensor_workers(self, name: str, step: int, kind: int) -> list[str]:
        workers = self._whole.tensor_workers(name, self._allow(step), kind)
        return [w for w in workers if not self.lost.hides(w, step)]

    def is_kept(self, name: str, step: int, kind: int, worker: str) -> bool:
        return step <= self.shown and self._whole.is_kept(name, step, kind, worker)

    def frame(self, regex: str, collection: str, names: Sequence[str], chosen: StepFilter, fields: Sequence[str],
              worker: str) -> tuple[Any, ...]:
        return self._whole.frame(regex, collection, names, self._cut(chosen), fields, worker)

    def series(self, name: str, field: str, worker: str) -> tuple[Array, Array]:
        steps, values = self._whole.series(name, field, worker)
        end = np.searchsorted(steps, self.shown, "right")
        return steps[:end], values[:end]

    def context(self, topic: str, step: int) -> str | None:
        return self._whole.context(topic, min(step, self.shown))

    def final_value(self, name: str, worker: str) -> tuple[Array, str]:
        self._only_at_the_end()
        return self._whole.final_value(name, worker)

    def final_summary(self, name: str, worker: str) -> _trial.Summary:
        self._only_at_the_end()
        return self._whole.final_summary(name, worker)

    def _only_at_the_end(self) -> None:
        if not self.ended:
            raise NotFoundError("what is recorded when the run ends is there in at_end() only")


def _guarded(call: str) -> Callable[..., Any]:
    def of_a_step(self: UpTo, name: str, step: int, chosen: StepFilter, *rest: Any) -> Any:
        return getattr(self._whole, call)(name, step, self._cut(chosen), *rest)
    return of_a_step


OF_A_STEP = ("value", "mapped", "shape", "summary", "histogram", "quantile", "scalar", "statistic", "reduction",
             "saved_reductions")
for _call in OF_A_STEP:
    setattr(UpTo, _call, _guarded(_call))


class JudgedTrial(Trial):
    """The run as a rule sees it: a tdbg.Trial that ends at the judged step."""

    # Rules of either kind may lie in one file and catch either's exceptions; smdebug's are tdbg.errors', too.
    _raises: ClassVar[Raises] = compat.RAISES
    _kind_of_steps = "any"

    def __init__(self, raw: _trial.Trial) -> None:
        self.up_to = UpTo(raw, self._raises)
        # A range, so that no call takes the short way around the filter; dynamic_refresh off: the host looks.
        super().__init__(cast(_trial.Trial, self.up_to), kind=self._kind_of_steps, dynamic_refresh=False,
                         range_steps=(0, LAST))

    def refresh(self) -> bool:
        """Nothing: a rule's view does not move under it."""
        return False

    def maybe_refresh(self, name: str | None = None) -> None:
        """Nothing, as refresh()."""

    def _look(self) -> None:
        pass

    def wait_for_steps(self, required_steps: Iterable[int], mode: Mode = ModeKeys.GLOBAL,
                       timeout: float | None = None) -> None:
        """As a trial's, and never waits: the run ends at the judged step.

        :raises StepNotYetAvailable: a step beyond it
        """
        required_steps = list(required_steps)
        for step in required_steps:
            if self.has_passed_step(step, mode) == StepState.NOT_YET_AVAILABLE:
                raise self._raises.step_not_yet(step, mode_of(mode))
        super().wait_for_steps(required_steps, mode, timeout)


class SmdebugJudgedTrial(JudgedTrial, compat.Trial):
    """The same for a rule written for smdebug: it sees the steps that a SaveConfig made due."""

    _kind_of_steps = "saved"


class Statistics:
    """Statistics of one step as columns: one row per tensor, worker and micro-step. Read-only NumPy arrays.

    `tensor` and `worker` are names; every field of tdbg's Summary is a column (`mean`, `abs_max`, `nan_count`, ...),
    and `mean_abs`, `std`, `nonfinite_count`, `value` (of one-element tensors and numbers). Moments cover finite
    elements; NaN where there are none.
    """

    tensor: Array
    worker: Array
    count: Array
    nan_count: Array
    pos_inf_count: Array
    neg_inf_count: Array
    zero_count: Array
    min: Array
    max: Array
    mean: Array
    variance: Array
    m3: Array
    m4: Array
    l1: Array
    l2: Array
    abs_min: Array
    abs_max: Array
    mean_abs: Array
    std: Array
    nonfinite_count: Array
    value: Array

    def __init__(self, tensor: Array, worker: Array, columns: dict[str, Array]) -> None:
        self.tensor, self.worker = tensor, worker
        self._columns = columns

    if not TYPE_CHECKING:   # which is to see that a column is misspelled

        def __getattr__(self, name):
            try:
                return self.__dict__["_columns"][name]
            except KeyError:
                raise AttributeError(f"no column '{name}': {', '.join(_COLUMNS)}") from None

    def __len__(self) -> int:
        return len(self.tensor)

    def finding(self, row: int, measure: str, comparison: str, threshold: float, text: str = "") -> Finding:
        """A Finding about one row: its tensor, worker, and the value of the column `measure`."""
        return Finding(tensor=self.tensor[row], worker=self.worker[row], measure=measure, comparison=comparison,
                       value=float(self._columns[measure][row]), threshold=threshold, text=text)


class _Chunk(NamedTuple):
    first: int
    last: int
    step: Array  # ascending
    tensor: Array
    worker: Array
    columns: dict[str, Array]


class Frames:
    """Statistics of many steps read at once: a rule that lags, or judges afterwards, pays for a call per chunk.

    :param whole: the trial
    :param refresh: brings it up to date
    """

    def __init__(self, whole: _trial.Trial, lost: Lost, refresh: Callable[[], object]) -> None:
        self._whole, self._lost, self._refresh = whole, lost, refresh
        self._chunks: dict[tuple[str | None, str | None], _Chunk] = {}
        # Steps that wait to be judged, the judged one first: all of them are complete, if not here yet.
        self.due: list[int] = []

    def at(self, step: int, collection: str | None, regex: str | None) -> Statistics:
        """Statistics of one step; those of the steps that are due next are read with it."""
        chunk = self._chunks.get((collection, regex))
        if chunk is None or not chunk.first <= step <= chunk.last:
            chunk = self._chunks[collection, regex] = self._read(step, collection, regex)
        begin, end = np.searchsorted(chunk.step, (step, step + 1))
        rows = slice(begin, end)
        worker = chunk.worker[rows]
        columns = {name: column[rows] for name, column in chunk.columns.items()}
        kept = [i for i, w in enumerate(worker) if not self._lost.hides(w, step)] if self._lost else None
        if kept is not None and len(kept) < len(worker):
            return Statistics(chunk.tensor[rows][kept], worker[kept], {n: c[kept] for n, c in columns.items()})
        return Statistics(chunk.tensor[rows], worker, columns)

    def _read(self, step: int, collection: str | None, regex: str | None) -> _Chunk:
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
        for name, column in zip(_COLUMNS, values, strict=True):
            columns[name] = column[order]
            columns[name].flags.writeable = False
        return _Chunk(step, last, steps[order], names[tensor[order]], workers[worker[order]], columns)


class Step:
    """The step that is judged."""

    def __init__(self, trial: JudgedTrial, frames: Frames, message: dict[str, Any]) -> None:
        self.trial = trial  #: tdbg.Trial up to this step, for whoever wants earlier ones
        self._frames = frames
        self.global_step: int = message["step"]
        self.mode = ModeKeys(message["mode"])
        self.mode_step: int = message["mode_step"]
        self.skipped: bool = message["skipped"]  #: the optimizer's update was skipped (AMP)
        self.incomplete: bool = message["incomplete"]  #: statistics that were due here were shed or are damaged

    def statistics(self, collection: str | None = None, regex: str | None = None) -> Statistics:
        """Of a collection's tensors, of those whose name `regex` is found in, of both (either will not do), or all."""
        return self._frames.at(self.global_step, collection, regex)

    def value(self, tensor: str, worker: str | None = None) -> Array:
        """Raw value. :raises TensorUnavailableForStep: none is kept here"""
        return self.trial.tensor(tensor).value(self.global_step, worker=worker)

    def values(self, collection: str | None = None, regex: str | None = None) -> Iterator[tuple[str, str, Array]]:
        """(tensor, worker, array) of each raw value that is kept at this step."""
        raw = self.trial._raw
        chosen = step_filter("GLOBAL", "raw", True, self.global_step, self.global_step + 1)
        for name in raw.tensor_names(regex or "", collection or "", self.global_step, chosen):
            tensor = self.trial.tensor(name)
            for worker in raw.tensor_workers(name, self.global_step, KINDS["raw"]):
                yield name, worker, tensor.value(self.global_step, worker=worker)

    def scalar(self, name: str, worker: str | None = None) -> float:
        """A number of the script's or of the training context, or a one-element tensor's value."""
        return self.trial._raw.scalar(name, self.global_step, EVERY_STEP, worker or "")
