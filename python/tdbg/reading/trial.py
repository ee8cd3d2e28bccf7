"""Reading a run, while it trains or a year later.

    trial = tdbg.open("tdbg-runs/mine")             # shows what the last refresh() saw; every step

smdebug's way to open one is tdbg.compat.trial.create_trial. Steps are global steps unless a mode is given.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, KeysView, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _trial
from ..errors import DeadlineExceededError, NotFoundError, TdbgError
from ..hook.collection import Collection
from ..modes import ModeKeys
from ..words import counted, printable
from .arrays import Array
from .collection import KnownCollections
from .cursor import SLICE_MILLIS, Cursor, slices
from .frame import Frame
from .incidents import Findings, Incidents, findings_of, incidents_of
from .named import directory_of
from .notebook import of_trial, show_page
from .origins import NanOrigin, origins_of
from .plot import Plots
from .raises import OWN, Raises
from .refreshing import refresh
from .steps import Kind, Mode, Step, StepFilter, StepState, mode_of, step_filter
from .tensor import Tensor, said

if TYPE_CHECKING:
    from ..blackbox.opened import Opened

_AFTER_THE_END_SECONDS = 1.0  # between two looks at a run that is over

#: One pattern, searched in names, or a (nested) list of them, any of which may be found.
Patterns = str | Iterable["Patterns"]
#: (begin, end), global steps, end exclusive; None: no bound.
Range = tuple[int | None, int | None]


class Trial:
    """One run, opened for reading. It never writes to it. Made by `tdbg.open(path)`; one thread at a time may call it.

    >>> trial.steps(), trial.tensor_names(), trial.workers()
    ([0, 1, 2], ['gradient/Net_conv1.weight', 'half', 'lr', 'odd@name.5'], ['worker_0'])

    :ivar dynamic_refresh: calls look for new data before they answer. `refresh(trial)` and `no_refresh(trial)` set it
        for a while.
    :ivar range_steps: other steps are not there; None: all are
    """

    _raises: ClassVar[Raises] = OWN
    view = show_page
    _repr_html_ = of_trial
    _tensor_type: ClassVar[type[Tensor]] = Tensor

    def __init__(self, raw: _trial.Trial, name: str | None = None, kind: str = "any", dynamic_refresh: bool = False,
                 range_steps: Range | None = None) -> None:
        self._raw = raw
        self._name = name
        self._kind = kind
        self._range: Range = (None, None) if range_steps is None else (range_steps[0], range_steps[1])
        self._known = KnownCollections()
        self._announced = False  # that all steps are there
        self._looked_at = 0.0
        self._of_any_mode = self._filter(ModeKeys.GLOBAL, None)
        self.dynamic_refresh = dynamic_refresh
        self.range_steps = range_steps

    # ---- the run

    @property
    def path(self) -> str:
        """The run's directory."""
        return self._raw.path

    @property
    def name(self) -> str:
        """The run's own name, or the one it was opened under."""
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
        """Numbers of the job's attempts (it was started again), ascending. The latest wins from its first step on."""
        return self._raw.attempts()

    @property
    def bytes_on_disk(self) -> int:
        """Of all the run's files."""
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
        """Workers that the training was started with; 0: nobody has said so yet."""
        return self._raw.world_size()

    @property
    def worker_set(self) -> set[str]:
        """Names of the latest attempt's workers."""
        return set(self._raw.workers())

    def workers(self) -> list[str]:
        """Names, sorted, of the latest attempt's workers."""
        self._look()
        return self._raw.workers()

    def missing_workers(self, global_step: int) -> list[str]:
        """Workers that the step still waits for."""
        self._look()
        return self._raw.missing_workers(global_step)

    def worker_ends(self) -> list[_trial.WorkerEnd]:
        """How the workers of the latest attempt that train no more ended: `worker`, `reason` ("completed",
        "exception", ...; "" of one that is gone without a goodbye, as a killed process is), `message`
        ("ValueError: ..."), `last_step`."""
        return self._raw.worker_ends()

    def dropped(self) -> list[_trial.DroppedInfo]:
        """What was due and is not in the run, by cause: `worker`, `cause`, `kind`, `text`, `count`, `bytes`,
        `first_step`, `last_step`."""
        return self._raw.dropped()

    def losses(self) -> list[_trial.DroppedInfo]:
        """The name of `dropped` until 0.1.0; gone in 0.3. A model's losses are tensors, in the collection "losses"."""
        warnings.warn("Trial.losses() is called dropped() now, and goes in 0.3", DeprecationWarning, stacklevel=2)
        return self.dropped()

    def damage(self) -> list[str]:
        """What could not be believed while it was read, a sentence each."""
        return self._raw.damage()

    def context(self, topic: str, step: int) -> Any:
        """The structured context that holds at a step (None if there is none), decoded from JSON."""
        text = self._raw.context(topic, step)
        return None if text is None else json.loads(text)

    def nan_origins(self) -> list[NanOrigin]:
        """Where NaN and infinity began, the first one first: operation, layers, cause and numbers, or why that could
        not be seen (docs/nan-origin.md). Of the attempts shown, of every worker. PyTorch only.

        >>> trial.nan_origins()
        []
        """
        self._look()
        return origins_of(self._raw.contexts("nan_origin"))

    def black_boxes(self) -> list[Opened]:
        """Steps in which something became NaN or infinite, kept whole: weights, batch, random states, gradients
        (docs/black-box.md); by step. Needs torch. PyTorch only.

        :raises BlackBoxError: one of them is damaged

        >>> trial.black_boxes()
        []
        """
        places = glob.glob(os.path.join(glob.escape(self.path), "black_box", "*", "*", "*", "black_box.json"))
        if not places:
            return []
        from ..blackbox.opened import Opened
        return sorted((Opened(os.path.dirname(place)) for place in places), key=lambda box: (box.step, box.directory))

    def incidents(self) -> Incidents:
        """What the profile found while the run was watched (docs/incidents.md); `tdbg explain` judges one that was not.

        >>> trial.incidents()
        []
        """
        return incidents_of(self.path)

    def findings(self) -> Findings:
        """All findings of all rules while the run was watched: rule, global_step, tensor, measure, value, ..."""
        return findings_of(self.path)

    # ---- news

    def refresh(self) -> bool:
        """Takes in what is new; True if there was anything. Reads what was written since the last time, no more."""
        return self._raw.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:
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
        if self._raw.loaded_all_steps():
            self._look_a_last_time()
            self._announced = True
            self._looked_at = time.monotonic()

    def _look_a_last_time(self) -> None:
        """The run was found to have ended. Ours end when every worker has said so: there is nothing to wait for."""

    # ---- steps

    def steps(self, mode: Mode = ModeKeys.GLOBAL, show_incomplete_steps: bool = False,
              kind: Kind | None = None) -> list[int]:
        """Complete steps, ascending: global ones of every mode, or a mode's own.

        :param show_incomplete_steps: also those that some worker is still to commit
        :param kind: "raw" (with raw values), "summary" (with statistics), "saved" (that a SaveConfig made due; all of
            them where nothing has one), "histogram", "any". Default: "any" of tdbg.open, "saved" of create_trial.
        :raises InvalidArgumentError: no such mode or kind

        >>> trial.steps(), trial.steps(kind="raw"), trial.steps(mode="eval")
        ([0, 1, 2], [0, 1, 2], [])
        """
        self._look()
        return self._raw.steps(self._filter(mode, kind, show_incomplete_steps))

    def step(self, global_step: int) -> Step | None:
        """What is known of one step; None: it is not there.

        >>> trial.step(1).mode, trial.step(1).complete, trial.step(77)
        (<ModeKeys.TRAIN: 1>, True, None)
        """
        info = self._raw.step(global_step)
        return None if info is None else Step._of(info)

    def modes(self) -> KeysView[ModeKeys]:
        """Modes seen, without GLOBAL: the keys of a dict, as in smdebug.

        >>> list(trial.modes())
        [<ModeKeys.TRAIN: 1>]
        """
        self._look()
        return dict.fromkeys(ModeKeys(mode) for mode in self._raw.modes()).keys()

    def mode(self, global_step: int) -> ModeKeys | None:
        """The step's mode; None: the step is not there."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """The step's number in its mode; None: the step is not there."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """(mode, its own step); (None, None) for a step that is not there.

        >>> trial.mode_modestep(1), trial.mode_modestep(99)
        ((<ModeKeys.TRAIN: 1>, 1), (None, None))
        """
        info = self._raw.step(global_step)
        if info is None:
            self._look()
            info = self._raw.step(global_step)
        return (None, None) if info is None else (ModeKeys(info.mode), info.mode_step)

    def global_step(self, mode: Mode, mode_step: int) -> int | None:
        """The global step of a mode's own; None: it is not there."""
        mode = mode_of(mode)
        if mode == ModeKeys.GLOBAL:
            return mode_step
        step = self._find(mode_step, mode)
        if step is None:
            self._look()
            step = self._find(mode_step, mode)
        return step

    def has_passed_step(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> StepState:
        """Whether a step can be read, may still come, or never will.

        >>> trial.has_passed_step(1), trial.has_passed_step(99)
        (<StepState.AVAILABLE: 1>, <StepState.UNAVAILABLE: 0>)
        """
        self._look()
        return self._state(step, mode_of(mode))

    def wait_for_steps(self, required_steps: Iterable[int], mode: Mode = ModeKeys.GLOBAL,
                       timeout: float | None = None) -> None:
        """Waits until each of the steps can be read.

        :param timeout: seconds; None: as long as the training runs
        :raises StepUnavailable: it was not saved, or a later step is complete without it
        :raises NoMoreData: the training has ended before it
        :raises DeadlineExceededError: the time has passed

        >>> trial.wait_for_steps([0, 1])
        >>> trial.wait_for_steps([99])
        Traceback (most recent call last):
        tdbg.errors.NoMoreData: step 99 will not come: the training has ended, its last step is 2
        """
        mode = mode_of(mode)
        deadline = None if timeout is None else time.monotonic() + timeout
        with refresh(self):
            for step in required_steps:
                while (state := self.has_passed_step(step, mode)) == StepState.NOT_YET_AVAILABLE:
                    left = SLICE_MILLIS / 1000 if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise DeadlineExceededError(f"step {step} is not there after {timeout} s: {self.path}")
                    self._raw.wait_for_change(min(SLICE_MILLIS, math.ceil(left * 1000)))
                if state == StepState.AVAILABLE:
                    continue
                there = self._raw.steps(self._filter(mode, None, True))
                last = there[-1] if there else -1
                if self.loaded_all_steps and step > last:
                    raise self._raises.no_more_data(step, mode, last)
                raise self._raises.step_unavailable(step, mode)

    def _filter(self, mode: Mode, kind: str | None, incomplete: bool = False) -> StepFilter:
        return step_filter(mode, kind or self._kind, incomplete, *self._range)

    def _readable_steps(self, mode: Mode) -> StepFilter:
        """Those that a value may be asked of: made once, as it would cost as much as the answer."""
        return self._of_any_mode if mode is ModeKeys.GLOBAL else self._filter(mode, None)

    def _find(self, step_num: int, mode: ModeKeys) -> int | None:
        """The global step, if the step is there: complete or not, of whatever kind."""
        return self._raw.global_step(mode.value, int(step_num))

    def _readable(self, step_num: int, mode: ModeKeys) -> int | None:
        """The global step, if it is there and the trial's kind of steps."""
        step = self._find(step_num, mode)
        if step is None or not self._has_step(step):
            return None
        if self._kind == "saved" and self._state(step_num, mode) == StepState.UNAVAILABLE:
            return None
        return step

    def _has_step(self, global_step: int) -> bool:
        begin, end = self._range
        return (begin is None or global_step >= begin) and (end is None or global_step < end)

    def _state(self, step_num: int, mode: ModeKeys) -> StepState:
        return StepState(self._raw.step_state(int(step_num), self._filter(mode, None)))

    # ---- tensors

    def tensor_names(self, show_prefixed_tensors: bool = False, *, step: int | None = None,
                     mode: Mode = ModeKeys.GLOBAL, regex: Patterns | None = None,
                     collection: str | Collection | None = None, kind: Kind | None = None) -> list[str]:
        """Canonical names, sorted.

        :param show_prefixed_tensors: taken and ignored, as in smdebug
        :param step: only tensors that are there at this step (of `mode`, where one is given)
        :param mode: only tensors that are there at a step of this mode
        :param regex: searched in the names; or a list of them, any of which may be found
        :param collection: of this collection, by name or itself; not together with `regex`
        :param kind: see steps()
        :raises InvalidArgumentError: a regex that is none, or both `regex` and `collection`

        >>> trial.tensor_names(regex="weight$"), trial.tensor_names(collection="gradients", step=0)
        (['gradient/Net_conv1.weight'], ['gradient/Net_conv1.weight'])
        """
        if isinstance(show_prefixed_tensors, (str, list)):
            raise self._raises.bad_type("tensor_names takes keywords: regex=..., collection=..., step=..., mode=...")
        if regex is not None and collection is not None:
            raise self._raises.bad_value("tensor_names takes regex or collection, not both")
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
            return self._raw.tensor_names(self._regex_of(regex), "", at, which)
        if isinstance(collection, str):
            names = self._raw.tensor_names("", collection, at, which)
            added, patterns = self._known.added_to(collection)
            if not added and not patterns:
                return names
            collection = Collection(collection, patterns, added.union(names))
        if not hasattr(collection, "tensor_names"):
            raise self._raises.bad_type(f"collection: a name or a Collection, not {type(collection).__name__}")
        chosen = set(self._raw.tensor_names("", "", at, which)).intersection(collection.tensor_names)
        if patterns := list(collection.include_regex or []):
            chosen.update(self._raw.tensor_names(self._regex_of(patterns), "", at, which))
        return sorted(chosen)

    def has_tensor(self, name: str) -> bool:
        """tensor(name) would find one."""
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
        """By canonical name, alias, or unambiguous short name. Reads nothing of the disk.

        :raises TensorUnavailable: names the nearest
        :raises InvalidArgumentError: several tensors have this short name; names them

        >>> trial.tensor("conv1.weight")
        <tdbg.Tensor gradient/Net_conv1.weight float32 2x3>
        >>> trial.tensor("conv1.wieght")
        Traceback (most recent call last):
        tdbg.errors.TensorUnavailable: no tensor 'conv1.wieght': did you mean 'conv1.weight'?
        """
        try:
            return self._tensor_type(self, self._raw.tensor(name))
        except NotFoundError:
            self._look()
        try:
            return self._tensor_type(self, self._raw.tensor(name))
        except NotFoundError as error:
            raise said(self._raises.no_tensor(name), error) from None

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    def collections(self) -> dict[str, Collection]:
        """Name -> what was to be saved of which tensors. What a caller adds to one holds for this trial.

        >>> {name: sorted(one.tensor_names) for name, one in trial.collections().items()}
        {'gradients': ['gradient/Net_conv1.weight']}
        """
        self._look()
        return self._known.update(self._raw.collections())

    def collection(self, coll_name: str) -> Collection:
        """An unknown name is an empty collection, which may be filled, as in smdebug: `include`, `add_tensor_name`."""
        self.collections()
        return self._known.get(coll_name)

    def inputs(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[Array]:
        """Values of the collection "inputs" at this step, ordered by the number at the end of their names."""
        return self._values_of(self.tensor_names(step=step, mode=mode, collection="inputs"), step, mode)

    def labels(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[Array]:
        """Values at this step of what is called labels..., in the same order."""
        return self._values_of(self.tensor_names(step=step, mode=mode, regex="labels*"), step, mode)

    def predictions(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[Array]:
        """Values at this step of what is called predictions..., in the same order."""
        return self._values_of(self.tensor_names(step=step, mode=mode, regex="predictions*"), step, mode)

    def _values_of(self, names: list[str], step: int, mode: Mode) -> list[Array]:
        def number(name: str) -> int:
            found = re.search(r"_(\d+)$", name)
            return int(found.group(1)) if found else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    # ---- many at once

    def frame(self, tensors: str | Tensor | Iterable[str | Tensor] | None = None,
              fields: str | Sequence[str] = ("mean_abs",), *, regex: Patterns | None = None,
              mode: Mode = ModeKeys.GLOBAL, steps: Range | None = None, worker: str | None = None) -> Frame:
        """Whole series of many tensors at once, as columns that the library fills; every step that has statistics.

        :param tensors: a collection, a tensor, or a list of tensors; None: all, or those of `regex`
        :param fields: of Summary.FIELDS, or mean_abs, std, nonfinite_count, value (of losses and other single numbers)
        :param steps: (begin, end), global, end exclusive, either may be None
        :param worker: its rows; None: of the lowest rank that has a step; "*": every worker's rows
        :raises NotFoundError: no such collection or tensor; names the nearest
        :raises InvalidArgumentError: no such field; names the nearest

        >>> trial.frame("gradients", ["mean_abs", "nan_count"])
        <tdbg.Frame 3 rows: 1 tensor, 3 steps, 1 worker; mean_abs, nan_count>
        """
        self._look()
        fields = [fields] if isinstance(fields, str) else list(fields)
        begin, end = self._range if steps is None else steps
        which = step_filter(mode, "any", False, begin, end)
        collection, pattern, names = self._which(tensors, regex)
        return Frame(self._raw.frame(pattern, collection, names, which, fields, worker or ""), fields)

    def _which(self, tensors: str | Tensor | Iterable[str | Tensor] | None,
               regex: Patterns | None) -> tuple[str, str, list[str]]:
        """(collection, pattern, names) for what a caller may say; no names: of any."""
        if tensors is None:
            return "", self._regex_of(regex), []
        if regex is not None:
            raise self._raises.bad_value("tensors or regex, not both")
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

    def _in_order(self, names: Sequence[str]) -> list[int]:
        """Positions of the names, in the order in which the run came to know the tensors: a model's, mostly."""
        order = [self._raw.tensor(name).order for name in names]
        return sorted(range(len(names)), key=order.__getitem__)

    @property
    def plot(self) -> Plots:
        """Pictures: plot.series, plot.heatmap, plot.histograms, plot.images. Needs matplotlib."""
        return Plots(self)

    # ---- walking

    def cursor(self) -> Cursor:
        """A position in front of the first step, which walks on by itself. `for step in trial` makes one."""
        return Cursor(self._raw.cursor())

    def __iter__(self) -> Iterator[Step]:
        return iter(self.cursor())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        return (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        steps = self.steps()
        span = counted(len(steps), "step") + (f" ({steps[0]} to {steps[-1]})" if steps else "")
        tensors = counted(len(self.tensor_names()), "tensor")
        return (f"<tdbg.Trial {printable(self.name)}: {self.state}, {span}, {tensors}, "
                f"{counted(len(self._raw.workers()), 'worker')}>")

    def _regex_of(self, regex: Patterns | None) -> str:
        """One pattern for a pattern or a (nested) list of them."""
        if regex is None:
            return ""
        if isinstance(regex, str):
            return regex
        if isinstance(regex, (list, tuple, set)):
            patterns = [self._regex_of(r) for r in regex]
            return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns else "(?!)"
        raise self._raises.bad_type(f"regex: a string or a list of them, not {type(regex).__name__}")


def open(path: object, wait: float | bool | None = None, attempt: int | None = None) -> Trial:
    """Opens a run: its names and steps are read, no values.

    :param path: its directory, a file:// URL, or as for a command a name under ./tdbg-runs, a job's name, or "last"
    :param wait: for one that does not exist yet, seconds to wait for it (True: for ever)
    :param attempt: one attempt of a job that was started again; default: all of them, the latest wins
    :raises NotFoundError: nothing is there, or no run; says what is
    :raises UnimplementedError: written by a newer major version, or another kind of URL
    :raises DeadlineExceededError: `wait` has passed

    >>> open(trial.path).steps()
    [0, 1, 2]
    """
    path = directory_of(path)
    number = -1 if attempt is None else attempt
    if not wait:
        return Trial(_trial.open(path, number, 0))
    for millis in slices(None if wait is True else wait):
        try:
            return Trial(_trial.open(path, number, max(1, millis)))
        except DeadlineExceededError:
            pass
    raise DeadlineExceededError(f"no run appeared within {wait} s: {path}")
