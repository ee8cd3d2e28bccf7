"""Reading a run: tdbg.open(path) and what it returns.

Steps are global steps unless a mode is given. Texts come as arrays of type "U". bfloat16 and float8 values come as
ml_dtypes arrays where ml_dtypes can be imported, else as uint16 and uint8 arrays of their bits. Arrays are read-only:
they show the run's own bytes.
"""

from __future__ import annotations

import json
import math
import time
from typing import Iterator, NamedTuple

import numpy as np

from . import _trial
from .errors import FailedPreconditionError, DeadlineExceededError, InvalidArgumentError, NotFoundError

MODES = {"train": 1, "eval": 2, "predict": 3, "global": 4}
_MODE_NAMES = {number: name.upper() for name, number in MODES.items()}
_KINDS = {"any": 0, "raw": 1, "summary": 2}
_SLICE_MILLIS = 200  # how long a wait keeps ctrl-C waiting
_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
}


def _mode(mode) -> int:
    if mode is None:
        return MODES["global"]
    if isinstance(mode, str):
        try:
            return MODES[mode.lower()]
        except KeyError:
            raise InvalidArgumentError(f"no mode '{mode}': one of {', '.join(MODES)}") from None
    return int(getattr(mode, "value", mode))


def _kind(kind) -> int:
    try:
        return _KINDS[kind or "any"]
    except KeyError:
        raise InvalidArgumentError(f"no kind '{kind}': one of {', '.join(_KINDS)}") from None


def _array(pair):
    array, dtype = pair
    if dtype == "text":
        width = array.shape[-1]
        return array.view(f"<U{width}")[..., 0] if width else np.zeros(array.shape[:-1], "<U1")
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return array
        extension = getattr(ml_dtypes, _ML_DTYPES[dtype], None)
        return array if extension is None else array.view(extension)
    return array


class Step(NamedTuple):
    """One step of a run."""

    global_step: int
    mode: str
    mode_step: int
    wall_time: float  #: seconds since 1970
    skipped: bool  #: AMP skipped the update
    complete: bool  #: every worker committed it, ended, or died

    @classmethod
    def _of(cls, info):
        return cls(info.global_step, _MODE_NAMES[info.mode], info.mode_step, info.wall_nanos * 1e-9, info.skipped,
                   info.complete)


class Histogram(NamedTuple):
    """Signed, logarithmic, exact counts of the finite, non-zero elements; ascending."""

    lower: np.ndarray
    upper: np.ndarray
    value: np.ndarray  #: what stands for a bucket, within 1/9 of every element in it
    count: np.ndarray


class Summary:
    """Statistics of one tensor at one step. Counts cover every element, everything else the finite ones."""

    FIELDS = ("count", "nan_count", "pos_inf_count", "neg_inf_count", "zero_count", "min", "max", "mean", "variance",
              "m3", "m4", "l1", "l2", "abs_min", "abs_max")
    __slots__ = ("_raw", "_quantile")

    def __init__(self, raw, quantile):
        self._raw = raw
        self._quantile = quantile

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._raw, name)

    @property
    def std(self) -> float:
        return math.sqrt(self.variance)

    @property
    def kurtosis(self) -> float:
        return self.m4 / self.variance**2 if self.variance else math.nan

    @property
    def nonfinite_count(self) -> int:
        return self.count - self.finite_count

    def quantile(self, q: float) -> float:
        """The value below which a share `q` of the finite elements lies. NotFoundError without a histogram."""
        return self._quantile(q)

    def as_dict(self) -> dict:
        return {name: getattr(self._raw, name) for name in self.FIELDS}

    def __dir__(self):
        return [*self.FIELDS, "mean_abs", "finite_count", "numpy_mean", "numpy_min", "numpy_max", "std", "kurtosis",
                "nonfinite_count", "quantile", "as_dict"]

    def __repr__(self):
        return (f"Summary(count={self.count}, mean={self.mean:.6g}, std={self.std:.6g}, min={self.min:.6g}, "
                f"max={self.max:.6g}, nan={self.nan_count}, inf={self.pos_inf_count + self.neg_inf_count})")


class Tensor:
    """One tensor of a run, by its canonical name."""

    def __init__(self, trial: "Trial", info):
        self._trial = trial
        self._raw = trial._raw
        self.name = info.name
        self.short_name = info.short_name
        self.kind = info.kind
        self.module_kind = info.module_kind
        self.collections = info.collections
        self.aliases = info.aliases
        self.dtype = info.dtype
        self.shape = tuple(info.shape)
        self.unit_axis = info.unit_axis

    def steps(self, kind: str = "any", mode=None) -> list[int]:
        """Steps with a raw value ("raw"), with statistics ("summary"), or with either; of a mode: its mode steps."""
        return self._raw.tensor_steps(self.name, _kind(kind), _mode(mode))

    def value(self, step: int, mode=None, worker: str | None = None) -> np.ndarray:
        """The raw value, without a copy where a sealed segment holds it."""
        return _array(self._raw.value(self.name, self._trial._global(step, mode), worker or ""))

    def final_value(self, worker: str | None = None) -> np.ndarray:
        """What was recorded when the run ended."""
        return _array(self._raw.final_value(self.name, worker or ""))

    def summary(self, step: int, mode=None, worker: str | None = None) -> Summary:
        step = self._trial._global(step, mode)
        return Summary(self._raw.summary(self.name, step, worker or ""),
                       lambda q: self._raw.quantile(self.name, step, q, worker or ""))

    def final_summary(self, worker: str | None = None) -> Summary:
        def no_histogram(q):
            raise NotFoundError("quantiles of final values are computed from final_value()")

        return Summary(self._raw.final_summary(self.name, worker or ""), no_histogram)

    def histogram(self, step: int, mode=None, worker: str | None = None) -> Histogram:
        return Histogram(*self._raw.histogram(self.name, self._trial._global(step, mode), worker or ""))

    def scalar(self, step: int, mode=None, worker: str | None = None) -> float:
        """The number of a scalar or of a one-element tensor."""
        return self._raw.scalar(self.name, self._trial._global(step, mode), worker or "")

    def series(self, field: str = "value", worker: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of one statistic: "mean", "abs_max", "mean_abs", "nan_count", "value" ..."""
        return self._raw.series(self.name, field, worker or "")

    def __repr__(self):
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<tdbg.Tensor {self.name} {self.dtype} {shape}>"


class Cursor:
    """Iterates over complete steps and waits for new ones until the run has ended. ctrl-C works."""

    def __init__(self, raw):
        self._raw = raw

    def next(self, timeout: float | None = None) -> Step | None:
        """The next step; None if there is none within `timeout` seconds (None: wait). StopIteration at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_MILLIS
            if deadline is not None:
                left = max(0, min(left, math.ceil((deadline - time.monotonic()) * 1000)))
            try:
                info = self._raw.next(left)
            except FailedPreconditionError:
                raise StopIteration from None
            if info is not None:
                return Step._of(info)
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        return self.next()


class Trial:
    """One run, opened for reading. Shows what the last refresh() saw; a cursor refreshes as it goes."""

    def __init__(self, raw):
        self._raw = raw

    def _global(self, step: int, mode) -> int:
        number = _mode(mode)
        if number == MODES["global"]:
            return int(step)
        found = self._raw.global_step(number, int(step))
        if found is None:
            raise NotFoundError(f"no step {step} of mode {_MODE_NAMES[number]}")
        return found

    @property
    def path(self) -> str:
        return self._raw.path

    @property
    def name(self) -> str:
        return self._raw.name

    @property
    def state(self) -> str:
        """"waiting", "running", "ended" or "crashed"."""
        return self._raw.state()

    @property
    def loaded_all_steps(self) -> bool:
        return self._raw.loaded_all_steps()

    @property
    def modes(self) -> list[str]:
        return [_MODE_NAMES[mode] for mode in self._raw.modes()]

    @property
    def workers(self) -> list[str]:
        return self._raw.workers()

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

    def refresh(self) -> bool:
        """Takes in what is new; True if there was anything."""
        return self._raw.refresh()

    def steps(self, mode=None) -> list[int]:
        """Complete steps: global ones, or a mode's own."""
        return self._raw.steps(_mode(mode))

    def step(self, global_step: int) -> Step | None:
        info = self._raw.step(global_step)
        return None if info is None else Step._of(info)

    def global_step(self, mode, mode_step: int) -> int | None:
        return self._raw.global_step(_mode(mode), mode_step)

    def tensor_names(self, regex: str | None = None, collection: str | None = None) -> list[str]:
        return self._raw.tensor_names(regex or "", collection or "")

    def tensor(self, name: str) -> Tensor:
        """By canonical name, alias, or unambiguous short name."""
        return Tensor(self, self._raw.tensor(name))

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

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

    def cursor(self) -> Cursor:
        return Cursor(self._raw.cursor())

    def __iter__(self) -> Iterator[Step]:
        return iter(self.cursor())

    def __repr__(self):
        steps = self.steps()
        span = f"{len(steps)} steps" + (f" ({steps[0]} to {steps[-1]})" if steps else "")
        return f"<tdbg.Trial {self.name}: {self.state}, {span}, {len(self.tensor_names())} tensors, {len(self.workers)} workers>"


def open(path, wait: float | bool | None = None, attempt: int | None = None) -> Trial:  # noqa: A001
    """Opens a run. `wait`: for one that does not exist yet, seconds to wait for it (True: for ever)."""
    path = str(path)
    number = -1 if attempt is None else attempt
    if not wait:
        return Trial(_trial.open(path, number, 0))
    deadline = None if wait is True else time.monotonic() + wait
    while True:
        left = _SLICE_MILLIS
        if deadline is not None:
            left = max(1, min(left, math.ceil((deadline - time.monotonic()) * 1000)))
        try:
            return Trial(_trial.open(path, number, left))
        except DeadlineExceededError:
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceededError(f"no run appeared within {wait} s: {path}") from None
