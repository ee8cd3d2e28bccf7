"""One tensor of a run: its steps, values, parts of values, statistics, reductions.

smdebug's methods with smdebug's arguments, and what it never had. bfloat16 and float8 values come as ml_dtypes arrays
where ml_dtypes can be imported, else as float32, which has all of their values; texts as arrays of type "U". Arrays are
read-only: they show the run's own bytes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .errors import InvalidArgumentError, NotFoundError, UnimplementedError
from .exceptions import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from .modes import ModeKeys
from .steps import KINDS, StepState, mode_of
from .words import counted, printable

_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def array_of(pair):
    array, dtype = pair
    if dtype == "text":
        width = array.shape[-1]
        return array.view(f"<U{width}")[..., 0] if width else np.zeros(array.shape[:-1], "<U1")
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return widened(array, dtype)
        extension = getattr(ml_dtypes, dtype, None)
        return widened(array, dtype) if extension is None else array.view(extension)
    return array


def widened(bits, dtype):
    """float32 of the bits of a bfloat16 or a float8: exact, all of their values are float32's."""
    if dtype == "bfloat16":
        return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    fraction_bits, bias = {"float8_e4m3fn": (3, 7), "float8_e4m3fnuz": (3, 8), "float8_e5m2": (2, 15),
                           "float8_e5m2fnuz": (2, 16)}[dtype]
    codes = np.arange(256)
    exponent, fraction = (codes & 0x7F) >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    table = np.ldexp(np.where(exponent == 0, fraction, fraction + (1 << fraction_bits)).astype(np.float32),
                     np.maximum(exponent, 1) - bias - fraction_bits)
    if dtype.endswith("fnuz"):
        table[128] = np.nan             # no negative zero, no infinity
    elif dtype == "float8_e4m3fn":
        table[127] = table[255] = np.nan
    else:
        table[exponent == 31] = np.where(fraction[exponent == 31] == 0, np.inf, np.nan)
    return np.where(codes < 128, table, -table).astype(np.float32)[bits.view(np.uint8)]


def _number(array):
    """What was computed is a number; what was saved stays the array that it was."""
    return array[()] if array.ndim == 0 and array.dtype == np.float64 else array


def _reduced(x, name):
    """Element-wise, as the library does it for the types it has statistics of."""
    by_name = {"l1": lambda: np.abs(x).sum(), "l2": lambda: np.sqrt((np.abs(x) ** 2).sum()), "variance": lambda: np.var(x)}
    return by_name.get(name, lambda: getattr(np, name)(x))()


def said(error, message):
    """The exception with our own sentence, which names what there is instead."""
    error.args = (str(message),)
    return error


class Histogram(NamedTuple):
    """Signed, logarithmic, exact counts of the finite, non-zero elements; ascending."""

    lower: np.ndarray
    upper: np.ndarray
    value: np.ndarray  #: what stands for a bucket, within 1/9 of every element in it
    count: np.ndarray

    def __repr__(self):
        span = f" from {self.lower[0]:.4g} to {self.upper[-1]:.4g}" if len(self.count) else ""
        return f"<tdbg.Histogram: {counted(int(self.count.sum()), 'element')} in {counted(len(self.count), 'bucket')}{span}>"


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
        """The value below which a share `q` of the finite elements lies. NotFoundError at a step without a histogram."""
        return self._quantile(q)

    def as_dict(self) -> dict:
        return {name: getattr(self._raw, name) for name in self.FIELDS}

    def __dir__(self):
        return [*self.FIELDS, "mean_abs", "finite_count", "numpy_mean", "numpy_min", "numpy_max", "std", "kurtosis",
                "nonfinite_count", "quantile", "as_dict"]

    def __repr__(self):
        return (f"Summary(count={self.count}, mean={self.mean:.6g}, std={self.std:.6g}, min={self.min:.6g}, "
                f"max={self.max:.6g}, nan={self.nan_count}, inf={self.pos_inf_count + self.neg_inf_count})")


class Shape(tuple):
    """The declared shape, a tuple; called with a step, the shape at that step (smdebug's `tensor.shape(step)`)."""

    __slots__ = ()

    @classmethod
    def _of(cls, tensor, extents):
        # A class of its own for the one reference, because a tuple has no room for attributes.
        bound = type("Shape", (cls,), {"__slots__": (), "_tensor": tensor, "__module__": cls.__module__})
        return bound(extents)

    def __call__(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> tuple:
        return self._tensor._shape_at(step_num, mode, worker)


class Tensor:
    """One tensor of a run, by its canonical name.

    `step_num` is a global step, or the mode's own step where `mode` is given. `worker=None` is the lowest rank that has
    the tensor at that step. Raises tdbg.exceptions: StepNotYetAvailable, StepUnavailable, TensorUnavailableForStep,
    InvalidWorker.
    """

    def __init__(self, trial, info):
        self._trial = trial
        self._raw = trial._raw
        self.name = info.name
        self.short_name = info.short_name
        self.original_name = info.aliases[0] if info.aliases else info.name
        self.kind = info.kind
        self.module_kind = info.module_kind
        self.collections = info.collections
        self.aliases = info.aliases
        self.dtype = info.dtype
        self._extents = self._without_width(info.shape)
        self.unit_axis = info.unit_axis
        self.in_parts = info.in_parts

    # ---- steps

    def steps(self, mode=ModeKeys.GLOBAL, show_incomplete_steps=False, kind=None, worker=None) -> list[int]:
        """Steps at which it is there. `kind`: "raw" values, "summary" statistics, "saved" what a SaveConfig made due,
        "histogram", "any" of these; default: the trial's own."""
        self._trial._look()
        return self._raw.tensor_steps(self.name, self._trial._filter(mode, kind, show_incomplete_steps), worker or "")

    def prev_steps(self, step, n=None, mode=ModeKeys.GLOBAL) -> list[int]:
        """The last `n` of its steps up to and including `step`; all of them without `n`."""
        before = [s for s in self.steps(mode=mode) if s <= step]
        return before[-n:] if n else before

    def workers(self, step_num, mode=ModeKeys.GLOBAL) -> list[str]:
        """Those that have it at this step, sorted."""
        try:
            step = self._saved(step_num, mode, None)
        except (StepUnavailable, StepNotYetAvailable) as error:
            raise said(TensorUnavailableForStep(self.name, step_num, mode_of(mode)), error) from None
        return self._raw.tensor_workers(self.name, step, KINDS[self._trial._kind])

    # ---- values

    def value(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> np.ndarray:
        """The raw value, without a copy where a sealed segment holds it."""
        return self._ask(self._raw.value, step_num, mode, worker)

    def values(self, mode=ModeKeys.GLOBAL, worker=None) -> dict:
        """step -> value, for the steps that have a raw value."""
        steps = self.steps(mode=mode, kind="raw", worker=worker)
        return {step: self.value(step, mode, worker) for step in steps}

    def slice(self, step_num, key=(), mode=ModeKeys.GLOBAL, worker=None) -> np.ndarray:
        """value(step_num)[key], of which only the touched pages are read: `t.slice(100, np.s_[3, :, ::2])`.

        A view where `key` is of integers and slices. Not verified: a checksum covers the whole value, and value()
        looks at it.
        """
        return self._ask(self._raw.mapped, step_num, mode, worker)[key]

    def final_value(self, worker=None) -> np.ndarray:
        """What was recorded when the run ended."""
        return array_of(self._raw.final_value(self.name, worker or ""))

    def scalar(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> float:
        """The number of a scalar or of a one-element tensor."""
        return self._raw.scalar(self.name, self._global(step_num, mode), worker or "")

    @property
    def shape(self) -> Shape:
        """The declared shape. Called with a step: the shape of the value, or the one saved instead of it."""
        return Shape._of(self, self._extents)

    def shapes(self, mode=ModeKeys.GLOBAL, worker=None) -> dict:
        """step -> shape."""
        return {step: self._shape_at(step, mode, worker) for step in self.steps(mode=mode, worker=worker)}

    def _without_width(self, shape) -> tuple:
        # The library keeps texts as a last axis of code points; NumPy counts them as elements.
        return tuple(shape[:-1] if self.dtype == "text" else shape)

    def _shape_at(self, step_num, mode, worker) -> tuple:
        step = self._saved(step_num, mode, worker)
        try:
            return self._without_width(self._raw.shape(self.name, step, worker or ""))
        except NotFoundError as error:
            raise said(ShapeUnavailableForStep(self.name, step_num, mode_of(mode)), error) from None

    # ---- reductions and statistics

    def reduction_value(self, step_num, reduction_name, mode=ModeKeys.GLOBAL, worker=None, abs=False):
        """A saved reduction; else computed from the statistics or the raw value.

        :param reduction_name: min max mean std variance sum prod l1 l2, of |x| with `abs`

        Norms are element-wise, std and variance divide by n.
        """
        step = self._saved(step_num, mode, worker)
        name = ("abs_" if abs else "") + str(reduction_name)
        try:
            return _number(array_of(self._raw.reduction(self.name, step, name, worker or "")))
        except InvalidArgumentError as error:
            if self._raw.is_kept(self.name, step, KINDS["raw"], worker or ""):
                raise SMDebugValueError(str(error)) from None
            missing = error
        except (NotFoundError, UnimplementedError) as error:
            missing = error
            # No statistics are kept of its type; NumPy may know what to do with it.
            value = self._complex_value(step, worker)
            if value is not None:
                return _reduced(np.abs(value) if abs else value, reduction_name)
        raise said(TensorUnavailableForStep(reduction_name, step_num, mode_of(mode)), missing)

    def _complex_value(self, step, worker):
        if not self._raw.is_kept(self.name, step, KINDS["raw"], worker or ""):
            return None
        value = array_of(self._raw.value(self.name, step, worker or ""))
        return value if value.dtype.kind == "c" else None

    def reduction_values(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> dict:
        """(name, abs) -> value, of the reductions that were saved by name, as they were saved."""
        step = self._saved(step_num, mode, worker)
        saved = self._raw.saved_reductions(self.name, step, worker or "")
        return {(name.removeprefix("abs_"), name.startswith("abs_")): array_of(pair) for name, pair in saved}

    def summary(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> Summary:
        step = self._global(step_num, mode)
        return Summary(self._raw.summary(self.name, step, worker or ""),
                       lambda q: self._raw.quantile(self.name, step, q, worker or ""))

    def final_summary(self, worker=None) -> Summary:
        def no_histogram(q):
            raise NotFoundError("quantiles of final values are computed from final_value()")

        return Summary(self._raw.final_summary(self.name, worker or ""), no_histogram)

    def statistics(self) -> list[str]:
        """Ids of the derived statistics that the run keeps of this tensor: "count_above(0)"."""
        self._trial._look()
        return self._raw.statistics(self.name)

    def statistic(self, statistic: str, step_num, mode=ModeKeys.GLOBAL, worker=None) -> tuple[np.ndarray, int, int]:
        """(entries, elements each was taken over, samples) of one derived statistic; docs/statistics.md lists them."""
        values, elements, samples = self._raw.statistic(self.name, statistic, self._global(step_num, mode), worker or "")
        return np.asarray(values), elements, samples

    def histogram(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> Histogram:
        """Of the elements at one step. Not every step has one: `steps(kind="histogram")` are those that do; at others a
        NotFoundError names them."""
        return Histogram(*self._raw.histogram(self.name, self._global(step_num, mode), worker or ""))

    def series(self, field: str = "value", worker=None) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of one statistic: "mean", "abs_max", "mean_abs", "nan_count", "value" ..."""
        self._trial._look()
        return self._raw.series(self.name, field, worker or "")

    def step(self, step_num, mode=ModeKeys.GLOBAL, worker=None):
        raise SMDebugNotImplementedError("ask for value(), shape() or reduction_value() of a step")

    # ---- what the calls above share

    def _global(self, step_num, mode) -> int:
        """The global step, if it can be read (of an incomplete one: what its workers have); else why it cannot."""
        trial, mode = self._trial, mode_of(mode)
        step = trial._readable(step_num, mode)
        if step is None:
            trial._look()
            step = trial._readable(step_num, mode)
        if step is not None:
            return step
        if trial._state(step_num, mode) == StepState.NOT_YET_AVAILABLE:
            raise StepNotYetAvailable(step_num, mode)
        raise StepUnavailable(step_num, mode)

    def _ask(self, call, step_num, mode, worker):
        step = self._saved(step_num, mode, worker)
        try:
            return array_of(call(self.name, step, worker or ""))
        except NotFoundError as error:
            raise self._unavailable(step_num, step, mode, error) from None

    def _saved(self, step_num, mode, worker) -> int:
        """The global step, if the trial's kind of thing is there of this tensor, by this worker."""
        step = self._global(step_num, mode)
        kind = KINDS[self._trial._kind]
        try:
            if self._raw.is_kept(self.name, step, kind, worker or ""):
                return step
        except NotFoundError:
            pass  # no such worker
        there = self._raw.tensor_workers(self.name, step, kind)
        if there:
            raise said(InvalidWorker(worker), f"worker '{worker}' has nothing of '{self.name}' at step {step}; "
                                              f"it is there of: {', '.join(there)}")
        raise self._unavailable(step_num, step, mode)

    def _unavailable(self, step_num, step, mode, error=None):
        has_reductions = self._raw.is_kept(self.name, step, KINDS["summary"], "")
        missing = TensorUnavailableForStep(self.name, step_num, mode_of(mode), has_reductions)
        if error is None:
            return missing
        return said(missing, f"{error}" + ("; ask for summary() or reduction_value()" if has_reductions else ""))

    def __repr__(self):
        shape = "x".join(map(str, self._extents)) or "scalar"
        return f"<tdbg.Tensor {printable(self.name)} {self.dtype} {shape}>"
