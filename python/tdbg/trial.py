"""Reading a run, while it trains or a year later.

    trial = tdbg.open("tdbg-runs/mine")             # shows what the last refresh() saw; every step
    trial = tdbg.create_trial("tdbg-runs/mine")     # smdebug's: looks for news by itself; the steps a SaveConfig made due

Both are the same class, with smdebug's methods, arguments and defaults; they differ in `dynamic_refresh` and in which
`kind` of steps a call sees that does not say. Steps are global steps unless a mode is given.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from contextlib import ExitStack, contextmanager
from typing import Iterator

from . import _trial
from .collection import Collection, KnownCollections
from .errors import DeadlineExceededError, FailedPreconditionError, NotFoundError, TdbgError
from .exceptions import (
    MissingCollectionFiles,
    NoMoreData,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
)
from .frame import Frame
from .modes import ModeKeys
from .places import local_directory
from .plot import Plots
from .steps import Step, StepState, mode_of, step_filter
from .tensor import Histogram, Summary, Tensor, said
from .words import counted, on_the_screen, printable

__all__ = ["open", "create_trial", "Trial", "Tensor", "Cursor", "Step", "StepState", "Summary", "Histogram", "refresh",
           "no_refresh"]

_SLICE_MILLIS = 200  # how long a wait keeps ctrl-C waiting
_SAY_SECONDS = 20  # between two lines about a run that has not appeared
_AFTER_THE_END_SECONDS = 1.0  # between two looks at a run that is over
_END_OF_JOB = "training_job_end.ts"  # smdebug's marker

_logger = logging.getLogger("smdebug")


class Cursor:
    """Iterates over complete steps and waits for new ones until the run has ended. ctrl-C works."""

    def __init__(self, raw):
        self._raw = raw

    def next(self, timeout: float | None = None) -> Step | None:
        """The next step; None if there is none within `timeout` seconds (None: wait). StopIteration at the end."""
        for millis in _slices(timeout):
            try:
                info = self._raw.next(millis)
            except FailedPreconditionError:
                raise StopIteration from None
            if info is not None:
                return Step._of(info)
        return None

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        return self.next()


def _slices(timeout):
    """Milliseconds to wait, again and again until `timeout` seconds (None: for ever) have passed; at least once."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE_MILLIS
        if deadline is not None:
            left = max(0, min(left, math.ceil((deadline - time.monotonic()) * 1000)))
        yield left
        if deadline is not None and time.monotonic() >= deadline:
            return


class Trial:
    """One run, opened for reading. It never writes to it.

    :ivar dynamic_refresh: calls look for new data before they answer. `refresh(trial)` and `no_refresh(trial)` set it
        for a while.
    """

    def __init__(self, raw, name=None, kind="any", dynamic_refresh=False, range_steps=None):
        self._raw = raw
        self._name = name
        self._kind = kind
        self._range = (None, None) if range_steps is None else tuple(range_steps)
        self._known = KnownCollections()
        self._announced = False  # that all steps are there
        self._looked_at = 0.0
        self.dynamic_refresh = dynamic_refresh
        self.range_steps = range_steps

    # ---- the run

    @property
    def path(self) -> str:
        return self._raw.path

    @property
    def name(self) -> str:
        return self._name or self._raw.name

    @property
    def state(self) -> str:
        """"waiting", "running", "ended" or "crashed"."""
        return self._raw.state()

    @property
    def loaded_all_steps(self) -> bool:
        """No more steps will come, as of the last look."""
        return self._raw.loaded_all_steps()

    @property
    def training_ended(self) -> bool:
        """No more steps will come. Looks."""
        self.refresh()
        return self.loaded_all_steps

    @property
    def attempts(self) -> list[int]:
        return self._raw.attempts()

    @property
    def bytes_on_disk(self) -> int:
        return self._raw.bytes_on_disk()

    @property
    def last_seen_step(self) -> int:
        """The last step the training process reported, also where nothing was due; -1: none."""
        return self._raw.last_seen_step()

    @property
    def last_complete_step(self) -> int:
        """The global step up to which nothing is missing any more; -1: none."""
        return self._raw.last_complete_step()

    @property
    def num_workers(self) -> int:
        """Workers that the training was started with."""
        return self._raw.world_size()

    @property
    def worker_set(self) -> set:
        return set(self._raw.workers())

    def workers(self) -> list[str]:
        """Names, sorted, of the latest attempt."""
        self._look()
        return self._raw.workers()

    def missing_workers(self, global_step) -> list[str]:
        """Workers that the step still waits for."""
        self._look()
        return self._raw.missing_workers(global_step)

    def worker_ends(self) -> list:
        """How the workers of the latest attempt that train no more ended: `worker`, `reason` ("completed", "exception", ...; "" of one
        that is gone without a goodbye, as a killed process is), `message` ("ValueError: ..."), `last_step`."""
        return self._raw.worker_ends()

    def losses(self) -> list:
        """What the run lost while it was written, by cause."""
        return self._raw.losses()

    def damage(self) -> list[str]:
        """What could not be believed while it was read."""
        return self._raw.damage()

    def context(self, topic: str, step: int):
        """The structured context that holds at a step (None if there is none), decoded from JSON."""
        text = self._raw.context(topic, step)
        return None if text is None else json.loads(text)

    # ---- news

    def refresh(self) -> bool:
        """Takes in what is new; True if there was anything."""
        return self._raw.refresh()

    def maybe_refresh(self, name=None) -> None:
        """What a call does before it answers: refresh(), if `dynamic_refresh` is on and the run may have news."""
        self._look()

    def _look(self) -> None:
        if not self.dynamic_refresh:
            return
        if self._announced:
            # A requeued job may begin its next attempt in the same run, but nobody needs to hear of it at each call.
            if time.monotonic() - self._looked_at > _AFTER_THE_END_SECONDS:
                self._looked_at = time.monotonic()
                self._raw.refresh()
                self._announced = self._raw.loaded_all_steps()
            return
        self._raw.refresh()
        if not self._raw.loaded_all_steps():
            return
        _logger.info("Training has ended, will refresh one final time in 1 sec.")
        self._wait_for_the_others()
        self._raw.refresh()
        self._announced = True
        self._looked_at = time.monotonic()
        _logger.info("Loaded all steps")

    def _wait_for_the_others(self) -> None:
        # smdebug's marker is left by the first rank that closes; the others' last steps may still be on their way.
        # A marker older than that second says that it has passed. Our own runs end when every worker has said so.
        try:
            age = time.time() - os.stat(os.path.join(self.path, _END_OF_JOB)).st_mtime
        except OSError:
            return
        delay = float(os.environ.get("SMDEBUG_TRAINING_END_DELAY_REFRESH", 1))
        time.sleep(min(max(0.0, delay - age), delay))

    # ---- steps

    def steps(self, mode=ModeKeys.GLOBAL, show_incomplete_steps=False, kind=None) -> list[int]:
        """Complete steps: global ones of every mode, or a mode's own.

        :param show_incomplete_steps: also those that some worker is still to commit
        :param kind: "raw" (with raw values), "summary" (with statistics), "saved" (that a SaveConfig made due; all of
            them where nothing has one), "any". Default: "any" of tdbg.open, "saved" of create_trial.
        """
        self._look()
        return self._raw.steps(self._filter(mode, kind, show_incomplete_steps))

    def step(self, global_step: int) -> Step | None:
        info = self._raw.step(global_step)
        return None if info is None else Step._of(info)

    def modes(self):
        """Modes seen, without GLOBAL: the keys of a dict, as in smdebug."""
        self._look()
        return dict.fromkeys(ModeKeys(mode) for mode in self._raw.modes()).keys()

    def mode(self, global_step) -> ModeKeys | None:
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step) -> int | None:
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step) -> tuple:
        """(mode, its own step); (None, None) for a step that is not there."""
        info = self._raw.step(global_step)
        if info is None:
            self._look()
            info = self._raw.step(global_step)
        return (None, None) if info is None else (ModeKeys(info.mode), info.mode_step)

    @property
    def _global_to_mode(self) -> dict:
        # Published notebooks of smdebug's take it as if it were public.
        return {step: self.mode_modestep(step) for step in self.steps(show_incomplete_steps=True)}

    def global_step(self, mode, mode_step) -> int | None:
        mode = mode_of(mode)
        if mode == ModeKeys.GLOBAL:
            return mode_step
        step = self._find(mode_step, mode)
        if step is None:
            self._look()
            step = self._find(mode_step, mode)
        return step

    def has_passed_step(self, step, mode=ModeKeys.GLOBAL) -> StepState:
        """Whether a step can be read, may still come, or never will."""
        self._look()
        return self._state(step, mode_of(mode))

    def wait_for_steps(self, required_steps, mode=ModeKeys.GLOBAL, timeout=None) -> None:
        """Waits until each of the steps can be read.

        :param timeout: seconds; None: as long as the training runs
        :raises StepUnavailable: it was not saved, or a later step is complete without it
        :raises NoMoreData: the training has ended before it
        :raises DeadlineExceededError: the time has passed
        """
        mode = mode_of(mode)
        deadline = None if timeout is None else time.monotonic() + timeout
        with refresh(self):
            for step in required_steps:
                while (state := self.has_passed_step(step, mode)) == StepState.NOT_YET_AVAILABLE:
                    left = _SLICE_MILLIS / 1000 if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise DeadlineExceededError(f"step {step} is not there after {timeout} s: {self.path}")
                    self._raw.wait_for_change(min(_SLICE_MILLIS, math.ceil(left * 1000)))
                if state == StepState.AVAILABLE:
                    continue
                there = self._raw.steps(self._filter(mode, None, True))
                last = there[-1] if there else -1
                if self.loaded_all_steps and step > last:
                    raise NoMoreData(step, mode, last)
                raise StepUnavailable(step, mode)

    def _filter(self, mode, kind, incomplete=False) -> tuple:
        return step_filter(mode, kind or self._kind, incomplete, *self._range)

    def _find(self, step_num, mode) -> int | None:
        """The global step, if the step is there: complete or not, of whatever kind."""
        return self._raw.global_step(mode.value, int(step_num))

    def _readable(self, step_num, mode) -> int | None:
        """The global step, if it is there and the trial's kind of steps."""
        step = self._find(step_num, mode)
        if step is None or not self._has_step(step):
            return None
        if self._kind == "saved" and self._state(step_num, mode) == StepState.UNAVAILABLE:
            return None
        return step

    def _has_step(self, global_step) -> bool:
        begin, end = self._range
        return (begin is None or global_step >= begin) and (end is None or global_step < end)

    def _state(self, step_num, mode) -> StepState:
        return StepState(self._raw.step_state(int(step_num), self._filter(mode, None)))

    # ---- tensors

    def tensor_names(self, show_prefixed_tensors=False, *, step=None, mode=ModeKeys.GLOBAL, regex=None, collection=None,
                     kind=None) -> list[str]:
        """Canonical names, sorted.

        :param show_prefixed_tensors: taken and ignored, as in smdebug
        :param step: only tensors that are there at this step (of `mode`, where one is given)
        :param mode: only tensors that are there at a step of this mode
        :param regex: searched in the names; or a list of them, any of which may be found
        :param collection: of this collection, by name or itself; not together with `regex`
        :param kind: see steps()
        """
        if isinstance(show_prefixed_tensors, (str, list)):
            raise SMDebugTypeError("tensor_names takes keywords: regex=..., collection=..., step=..., mode=...")
        if regex is not None and collection is not None:
            raise SMDebugValueError("tensor_names takes regex or collection, not both")
        self._look()
        mode = mode_of(mode)
        at = None
        if step is not None:
            at = self._find(step, mode)
            if at is None or not self._has_step(at):
                return []
        everything = at is None and mode == ModeKeys.GLOBAL and self.range_steps is None
        which = step_filter(mode, "any") if everything else self._filter(mode, kind, incomplete=True)
        if collection is None:
            return self._raw.tensor_names(_regex_of(regex), "", at, which)
        if isinstance(collection, str):
            names = self._raw.tensor_names("", collection, at, which)
            added, patterns = self._known.added_to(collection)
            if not added and not patterns:
                return names
            collection = Collection(collection, patterns, added.union(names))
        if not hasattr(collection, "tensor_names"):
            raise SMDebugTypeError(f"collection: a name or a Collection, not {type(collection).__name__}")
        names = set(self._raw.tensor_names("", "", at, which)).intersection(collection.tensor_names)
        if patterns := list(collection.include_regex or []):
            names.update(self._raw.tensor_names(_regex_of(patterns), "", at, which))
        return sorted(names)

    def has_tensor(self, name: str) -> bool:
        try:
            self._raw.tensor(name)
            return True
        except TdbgError:
            self._look()
        try:
            self._raw.tensor(name)
            return True
        except TdbgError:
            return False

    def tensor(self, name: str) -> Tensor:
        """By canonical name, alias, or unambiguous short name.

        :raises TensorUnavailable: names the nearest
        :raises InvalidArgumentError: several tensors have this short name; names them
        """
        try:
            return Tensor(self, self._raw.tensor(name))
        except NotFoundError:
            self._look()
        try:
            return Tensor(self, self._raw.tensor(name))
        except NotFoundError as error:
            raise said(TensorUnavailable(name), error) from None

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    def collections(self) -> dict[str, Collection]:
        """Name -> what was to be saved of which tensors. What a caller adds to one holds for this trial."""
        self._look()
        return self._known.update(self._raw.collections())

    def collection(self, coll_name: str) -> Collection:
        """An unknown name is an empty collection, which may be filled, as in smdebug: `include`, `add_tensor_name`."""
        self.collections()
        return self._known.get(coll_name)

    def inputs(self, step, mode=ModeKeys.GLOBAL) -> list:
        """Values of the collection "inputs" at this step, ordered by the number at the end of their names."""
        return self._numbered(step, mode, collection="inputs")

    def labels(self, step, mode=ModeKeys.GLOBAL) -> list:
        return self._numbered(step, mode, regex="labels*")

    def predictions(self, step, mode=ModeKeys.GLOBAL) -> list:
        return self._numbered(step, mode, regex="predictions*")

    def _numbered(self, step, mode, **which) -> list:
        def number(name):
            found = re.search(r"_(\d+)$", name)
            return int(found.group(1)) if found else 0

        names = sorted(self.tensor_names(step=step, mode=mode, **which), key=number)
        return [self.tensor(name).value(step, mode) for name in names]

    # ---- many at once

    def frame(self, tensors=None, fields=("mean_abs",), *, regex=None, mode=ModeKeys.GLOBAL, steps=None,
              worker=None) -> Frame:
        """Whole series of many tensors at once, as columns that the library fills; every step that has statistics.

            trial.frame("gradients", ["mean_abs", "nan_count"]).pandas()

        :param tensors: a collection, a tensor, or a list of tensors; None: all, or those of `regex`
        :param fields: of Summary.FIELDS, or mean_abs, std, nonfinite_count, value (of losses and other single numbers)
        :param steps: (begin, end), global, end exclusive, either may be None
        :param worker: its rows; None: of the lowest rank that has a step; "*": every worker's rows
        :raises NotFoundError: no such collection or tensor; names the nearest
        """
        self._look()
        fields = [fields] if isinstance(fields, str) else list(fields)
        begin, end = self._range if steps is None else steps
        which = step_filter(mode, "any", False, begin, end)
        collection, pattern, names = self._which(tensors, regex)
        return Frame(self._raw.frame(pattern, collection, names, which, fields, worker or ""), fields)

    def _which(self, tensors, regex) -> tuple[str, str, list[str]]:
        """(collection, pattern, names) for what a caller may say; no names: of any."""
        if tensors is None:
            return "", _regex_of(regex), []
        if regex is not None:
            raise SMDebugValueError("tensors or regex, not both")
        if isinstance(tensors, Tensor):
            tensors = [tensors.name]
        if isinstance(tensors, str):
            if tensors == "all" or self._raw.tensor_names("", tensors, None, step_filter(None, "any")):
                return tensors, "", []
            try:
                tensors = [self.tensor(tensors).name]
            except NotFoundError as error:
                known = ", ".join(sorted(self.collections()))
                raise NotFoundError(f"{error}; nor is it a collection with tensors; collections: {known}") from None
        names = [name.name if isinstance(name, Tensor) else self.tensor(name).name for name in tensors]
        return "", "" if names else "(?!)", list(dict.fromkeys(names))

    def _in_order(self, names) -> list[int]:
        """Positions of the names, in the order in which the run came to know the tensors: a model's, mostly."""
        order = [self._raw.tensor(name).order for name in names]
        return sorted(range(len(names)), key=order.__getitem__)

    @property
    def plot(self) -> Plots:
        """Pictures: plot.series, plot.heatmap, plot.histograms, plot.images. Needs matplotlib."""
        return Plots(self)

    # ---- walking

    def cursor(self) -> Cursor:
        return Cursor(self._raw.cursor())

    def __iter__(self) -> Iterator[Step]:
        return iter(self.cursor())

    def __eq__(self, other):
        if not isinstance(other, Trial):
            return NotImplemented
        return (self.name, self.path) == (other.name, other.path)

    def __hash__(self):
        return hash((self.name, self.path))

    def __repr__(self):
        steps = self.steps()
        span = counted(len(steps), "step") + (f" ({steps[0]} to {steps[-1]})" if steps else "")
        return (f"<tdbg.Trial {printable(self.name)}: {self.state}, {span}, {counted(len(self.tensor_names()), 'tensor')}, "
                f"{counted(len(self._raw.workers()), 'worker')}>")


def _regex_of(regex) -> str:
    """One pattern for a pattern or a (nested) list of them."""
    if regex is None:
        return ""
    if isinstance(regex, str):
        return regex
    if isinstance(regex, (list, tuple, set)):
        patterns = [_regex_of(r) for r in regex]
        return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns else "(?!)"
    raise SMDebugTypeError(f"regex: a string or a list of them, not {type(regex).__name__}")


@contextmanager
def _refreshing(trials, on):
    with ExitStack() as stack:
        for trial in trials if isinstance(trials, (list, tuple)) else [trials]:
            stack.callback(setattr, trial, "dynamic_refresh", trial.dynamic_refresh)
            trial.dynamic_refresh = on
        yield trials


def refresh(trials):
    """with refresh(trial): calls look for new data. Afterwards, or after an exception, as before."""
    return _refreshing(trials, True)


def no_refresh(trials):
    """with no_refresh(trial): a view that does not move. Afterwards, or after an exception, as before."""
    return _refreshing(trials, False)


def open(path, wait: float | bool | None = None, attempt: int | None = None) -> Trial:  # noqa: A001
    """Opens a run. `wait`: for one that does not exist yet, seconds to wait for it (True: for ever)."""
    path = local_directory(path)
    number = -1 if attempt is None else attempt
    if not wait:
        return Trial(_trial.open(path, number, 0))
    for millis in _slices(None if wait is True else wait):
        try:
            return Trial(_trial.open(path, number, max(1, millis)))
        except DeadlineExceededError:
            pass
    raise DeadlineExceededError(f"no run appeared within {wait} s: {path}")


def create_trial(path, name=None, profiler=False, output_dir="/opt/ml/processing/outputs/", range_steps=None,
                 parallel=True, check=False, index_mode=True, cache=False, timeout=None) -> Trial:
    """smdebug's way to open a run, ours or smdebug's: waits for it, and looks for news by itself.

    :param name: default: the last part of `path`
    :param range_steps: (begin, end), global, end exclusive, either may be None: other steps are not there
    :param timeout: seconds to wait for a run that is not there yet; None: until its job is known to have ended
    :raises MissingCollectionFiles: the job has ended without leaving a run
    :raises DeadlineExceededError: `timeout` has passed

    `output_dir`, `parallel`, `check`, `index_mode` and `cache` are taken and have nothing to do here.
    """
    if profiler:
        raise SMDebugNotImplementedError("profiler trials: tdbg does not profile; use the framework's own profiler")
    path = local_directory(path)
    _check_range(range_steps)
    name = os.path.basename(path.rstrip("/")) if name is None else name
    on_the_screen(_logger)
    _logger.info("Loading trial %s at path %s", name, path)
    say_at = time.monotonic() + min(1, _SAY_SECONDS)
    for millis in _slices(timeout):
        try:
            raw = _trial.open(path, -1, max(1, millis))
            if not raw.workers() and os.path.exists(os.path.join(path, _END_OF_JOB)):
                break
            return Trial(raw, name, kind="saved", dynamic_refresh=True, range_steps=range_steps)
        except DeadlineExceededError:
            pass
        if os.path.exists(os.path.join(path, _END_OF_JOB)):
            break
        if time.monotonic() >= say_at:
            say_at = time.monotonic() + _SAY_SECONDS
            what = ("which does not exist yet" if not os.path.exists(path) else
                    "which holds no run yet" if os.path.isdir(path) else "which is no directory")
            _logger.warning("Waiting for the training to write to %s, %s; is it the right path?", path, what)
    else:
        raise DeadlineExceededError(f"no run appeared within {timeout} s: {path}")
    raise MissingCollectionFiles(f"the job has ended without leaving its collections: {path}")


def _check_range(range_steps) -> None:
    if range_steps is None:
        return
    begin, end = range_steps
    for bound in (begin, end):
        assert bound is None or (isinstance(bound, int) and bound >= 0), f"range_steps: {bound!r} is no step"
    assert begin is None or end is None or end > begin, f"range_steps: nothing lies in [{begin}, {end})"
