"""smdebug's way to read a run.

    trial = create_trial("tdbg-runs/mine")     # looks for news by itself; the steps a SaveConfig made due

It is a tdbg.reading.Trial that differs in `dynamic_refresh`, in which `kind` of steps a call sees that does not say,
and in its exceptions, which are smdebug's, too.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any, ClassVar, NoReturn

from .. import _trial
from ..errors import DeadlineExceededError
from ..hook.collection import CollectionManager
from ..hook.locations import END_OF_JOB_FILENAME, IndexFileLocationUtils
from ..modes import ModeKeys
from ..places import local_directory
from ..reading.arrays import Array
from ..reading.cursor import slices
from ..reading.raises import Raises
from ..reading.steps import Mode
from ..reading.tensor import Tensor as _Tensor
from ..reading.trial import Range
from ..reading.trial import Trial as _Trial
from ..words import on_the_screen
from . import exceptions
from .exceptions import MissingCollectionFiles, SMDebugNotImplementedError

_SAY_SECONDS = 20  # between two lines about a run that has not appeared

_logger = logging.getLogger("smdebug")

RAISES = Raises(
    bad_type=exceptions.SMDebugTypeError, bad_value=exceptions.SMDebugValueError,
    step_not_yet=exceptions.StepNotYetAvailable, step_unavailable=exceptions.StepUnavailable,
    no_more_data=exceptions.NoMoreData, no_tensor=exceptions.TensorUnavailable,
    not_at_step=exceptions.TensorUnavailableForStep, no_shape=exceptions.ShapeUnavailableForStep,
    no_worker=exceptions.InvalidWorker)


class Tensor(_Tensor):
    """A tensor of such a trial."""

    cache = False       # said to have one, and nothing to do here

    @property
    def trial(self) -> Any:
        """The trial that it is of."""
        return self._trial

    def value(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> Array:
        """As tdbg's, but the caller's own array: smdebug's programs work in place (`w -= w.mean()`)."""
        copy: Array = super().value(step_num, mode, worker).copy()
        return copy

    def step(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None) -> NoReturn:
        """smdebug's; :raises SMDebugNotImplementedError: always"""
        raise SMDebugNotImplementedError("ask for value(), shape() or reduction_value() of a step")


class Trial(_Trial):
    """One run, as smdebug's programs read it. Made by `create_trial(path)`."""

    logger: ClassVar[logging.Logger] = _logger
    # What create_trial was given, and has nothing to do here.
    parallel, check, index_mode, cache = True, False, True, False
    _raises: ClassVar[Raises] = RAISES
    _tensor_type: ClassVar[type[_Tensor]] = Tensor

    def _look_a_last_time(self) -> None:
        _logger.info("Training has ended, will refresh one final time in 1 sec.")
        self._wait_for_the_others()
        self._raw.refresh()
        _logger.info("Loaded all steps")

    def _wait_for_the_others(self) -> None:
        # smdebug's marker is left by the first rank that closes; the others' last steps may still be on their way.
        # A marker older than that second says that it has passed. Our own runs end when every worker has said so.
        try:
            age = time.time() - os.stat(os.path.join(self.path, END_OF_JOB_FILENAME)).st_mtime
        except OSError:
            return
        delay = float(os.environ.get("SMDEBUG_TRAINING_END_DELAY_REFRESH", 1))
        time.sleep(min(max(0.0, delay - age), delay))

    @property
    def trial_dir(self) -> str:
        """The run's directory."""
        return self.path

    @property
    def last_index_token(self) -> str | None:
        """Where the index file of the last complete step is, or would be where smdebug's files are not written; None
        before the first."""
        step = self.last_complete_step
        if step < 0:
            return None
        return IndexFileLocationUtils.get_index_key_for_step(self.path, step, max(self._raw.step_workers(step)))

    @property
    def workers_for_global_step(self) -> dict[int, set[str]]:
        """Step -> the workers that have it."""
        return {step: set(self._raw.step_workers(step)) for step in self.steps(show_incomplete_steps=True)}

    @property
    def collection_manager(self) -> CollectionManager:
        """The trial's collections."""
        return CollectionManager(self.collections().values())

    @property
    def _mode_to_global(self) -> dict[ModeKeys, dict[int, int]]:
        found: dict[ModeKeys, dict[int, int]] = {}
        for step, (mode, mode_step) in self._global_to_mode.items():
            if mode is not None and mode_step is not None and mode is not ModeKeys.GLOBAL:
                found.setdefault(mode, {})[mode_step] = step
        return found

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int] | tuple[None, None]]:
        # Published notebooks of smdebug's take it as if it were public.
        return {step: self.mode_modestep(step) for step in self.steps(show_incomplete_steps=True)}


def create_trial(path: object, name: str | None = None, profiler: bool = False,
                 output_dir: str = "/opt/ml/processing/outputs/", range_steps: Range | None = None,
                 parallel: bool = True, check: bool = False, index_mode: bool = True, cache: bool = False,
                 timeout: float | None = None) -> Trial:
    """smdebug's way to open a run, ours or smdebug's: waits for it, and looks for news by itself.

    :param path: its directory, or a file:// URL
    :param name: default: the last part of `path`
    :param range_steps: (begin, end), global, end exclusive, either may be None: other steps are not there
    :param timeout: seconds to wait for a run that is not there yet; None: until its job is known to have ended
    :raises MissingCollectionFiles: the job has ended without leaving a run
    :raises DeadlineExceededError: `timeout` has passed

    `output_dir`, `parallel`, `check`, `index_mode` and `cache` are taken and have nothing to do here.

    >>> create_trial(trial.path).steps()
    [0, 1, 2]
    """
    if profiler:
        raise SMDebugNotImplementedError("profiler trials: tdbg does not profile; use the framework's own profiler")
    path = local_directory(path)
    _check_range(range_steps)
    name = os.path.basename(path.rstrip("/")) if name is None else name
    on_the_screen(_logger)
    _logger.info("Loading trial %s at path %s", name, path)
    say_at = time.monotonic() + min(1, _SAY_SECONDS)
    for millis in slices(timeout):
        try:
            raw = _trial.open(path, -1, max(1, millis))
            if not raw.workers() and os.path.exists(os.path.join(path, END_OF_JOB_FILENAME)):
                break
            trial = Trial(raw, name, kind="saved", dynamic_refresh=True, range_steps=range_steps)
            trial.parallel, trial.check, trial.index_mode, trial.cache = parallel, check, index_mode, cache
            return trial
        except DeadlineExceededError:
            pass
        if os.path.exists(os.path.join(path, END_OF_JOB_FILENAME)):
            break
        if time.monotonic() >= say_at:
            say_at = time.monotonic() + _SAY_SECONDS
            what = ("which does not exist yet" if not os.path.exists(path) else
                    "which holds no run yet" if os.path.isdir(path) else "which is no directory")
            _logger.warning("Waiting for the training to write to %s, %s; is it the right path?", path, what)
    else:
        raise DeadlineExceededError(f"no run appeared within {timeout} s: {path}")
    raise MissingCollectionFiles(f"the job has ended without leaving its collections: {path}")


def _check_range(range_steps: Range | None) -> None:
    if range_steps is None:
        return
    begin, end = range_steps
    for bound in (begin, end):
        assert bound is None or (isinstance(bound, int) and bound >= 0), f"range_steps: {bound!r} is no step"
    assert begin is None or end is None or end > begin, f"range_steps: nothing lies in [{begin}, {end})"
