"""One tensor of a run: its steps, values, parts of values, statistics, reductions.

smdebug's methods with smdebug's arguments, and what it never had. Arrays are read-only: they show the run's own bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import InvalidArgumentError, NotFoundError, TdbgError, UnimplementedError
from ..modes import ModeKeys
from ..words import printable
from .arrays import Array, array_of
from .notebook import of_tensor
from .steps import EVERY_STEP, KINDS, Kind, Mode, StepState, mode_of
from .summary import Histogram, Summary

if TYPE_CHECKING:
    from .. import _trial
    from .trial import Trial


def _number(array: Array) -> Any:
    """What was computed is a number; what was saved stays the array that it was."""
    return array[()] if array.ndim == 0 and array.dtype == np.float64 else array


def _reduced(x: Array, name: str) -> Any:
    """Element-wise, as the library does it for the types it has statistics of."""
    by_name: dict[str, Callable[[], Any]] = {"l1": lambda: np.abs(x).sum(),
                                             "l2": lambda: np.sqrt((np.abs(x) ** 2).sum()),
                                             "variance": lambda: np.var(x)}
    return by_name.get(name, lambda: getattr(np, name)(x))()


def said(error: TdbgError, message: object) -> TdbgError:
    """The exception with our own sentence, which names what there is instead."""
    error.args = (str(message),)
    return error


class Shape(tuple[int, ...]):
    """The declared shape, a tuple; called with a step, the shape at that step (smdebug's `tensor.shape(step)`)."""

    __slots__ = ()
    _tensor: ClassVar[Tensor]

    @classmethod
    def _of(cls, tensor: Tensor, extents: tuple[int, ...]) -> Shape:
        # A class of its own for the one reference, because a tuple has no room for attributes.
        bound: type[Shape] = type("Shape", (cls,), {"__slots__": (), "_tensor": tensor, "__module__": cls.__module__})
        return bound(extents)

    def __call__(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        return self._tensor._shape_at(step_num, mode, worker)

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (tuple(self),)        # to another process goes what it is, without the run


class Tensor:
    """One tensor of a run, by its canonical name. Made by `trial.tensor(name)`.

    `step_num` is a global step, or the mode's own step where `mode` is given. `worker=None` is the lowest rank that has
    the tensor at that step; of a tensor in parts (FSDP), the whole. Each call that reads something of a step raises, of
    tdbg.errors: StepNotYetAvailable, StepUnavailable, TensorUnavailableForStep, InvalidWorker; DataLossError where the
    bytes are damaged. It asks the library once.

    >>> tensor = trial.tensor("conv1.weight")
    >>> tensor.name, tensor.kind, tensor.dtype, tensor.shape
    ('gradient/Net_conv1.weight', 'gradient', 'float32', (2, 3))

    :ivar name: canonical
    :ivar short_name: the framework's own
    :ivar original_name: the first alias, else the name
    :ivar kind: "weight", "gradient", "loss", "output" ...
    :ivar module_kind: of the layer: "linear", "conv" ...; "" where nobody said
    :ivar collections: names
    :ivar dtype: "float32", "bfloat16", "text" ...
    :ivar unit_axis: the axis of output units; -1: none
    :ivar in_parts: each worker keeps a part of it; `shape` is the whole's
    """

    def __init__(self, trial: Trial, info: _trial.TensorInfo) -> None:
        self._trial = trial
        self._raw = trial._raw
        self.name: str = info.name
        self.short_name: str = info.short_name
        self.kind: str = info.kind
        self.module_kind: str = info.module_kind
        self.collections: list[str] = info.collections
        self.aliases: list[str] = info.aliases
        self.original_name: str = self.aliases[0] if self.aliases else self.name
        self.dtype: str = info.dtype
        self._extents = self._without_width(info.shape)
        self.unit_axis: int = info.unit_axis
        self.in_parts: bool = info.in_parts

    # ---- steps

    def steps(self, mode: Mode = ModeKeys.GLOBAL, show_incomplete_steps: bool = False, kind: Kind | None = None,
              worker: str | None = None) -> list[int]:
        """Steps at which it is there, ascending.

        :param kind: "raw" values, "summary" statistics, "saved" what a SaveConfig made due, "histogram", "any" of
            these; default: the trial's own

        >>> trial.tensor("conv1.weight").steps(), trial.tensor("conv1.weight").steps(kind="histogram")
        ([0, 1, 2], [0, 2])
        """
        self._trial._look()
        return self._raw.tensor_steps(self.name, self._trial._filter(mode, kind, show_incomplete_steps), worker or "")

    def prev_steps(self, step: int, n: int | None = None, mode: Mode = ModeKeys.GLOBAL) -> list[int]:
        """The last `n` of its steps up to and including `step`; all of them without `n`.

        >>> trial.tensor("conv1.weight").prev_steps(2, 2)
        [1, 2]
        """
        before = [s for s in self.steps(mode=mode) if s <= step]
        return before[-n:] if n else before

    def workers(self, step_num: int, mode: Mode = ModeKeys.GLOBAL) -> list[str]:
        """Names of those that have it at this step, sorted.

        :raises TensorUnavailableForStep: the step is not there

        >>> trial.tensor("conv1.weight").workers(0)
        ['worker_0']
        """
        raises = self._trial._raises
        try:
            step = self._saved(step_num, mode, None)
        except (raises.step_unavailable, raises.step_not_yet) as error:
            raise said(raises.not_at_step(self.name, step_num, mode_of(mode)), error) from None
        return self._raw.tensor_workers(self.name, step, KINDS[self._trial._kind])

    # ---- values

    def value(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> Array:
        """The raw value, of the shape and type that it was recorded with. No copy is made where a sealed segment holds
        it. The array outlives the trial.

        >>> trial.tensor("conv1.weight").value(0)
        array([[-1. , -0.5,  0. ],
               [ 0.5,  1. ,  1.5]], dtype=float32)
        """
        return self._array(self._raw.value, step_num, mode, worker)

    def values(self, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> dict[int, Array]:
        """step -> value, for the steps that have one: the raw value, or of a single number its statistics.

        >>> {step: float(value) for step, value in trial.tensor("lr").values().items()}
        {0: 0.125, 2: 0.0625}
        """
        if math.prod(self._extents) != 1:
            return {step: self.value(step, mode, worker) for step in self.steps(mode=mode, kind="raw", worker=worker)}
        found: dict[int, Array] = {}
        for step in self.steps(mode=mode, worker=worker):
            try:
                found[step] = self.value(step, mode, worker)
            except self._trial._raises.not_at_step:
                pass        # its shape varies, and here it was larger; or reductions alone were saved
        return found

    def slice(self, step_num: int, key: Any = (), mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> Array:
        """value(step_num)[key], of which only the touched pages are read: `t.slice(100, np.s_[3, :, ::2])`.

        A view where `key` is of integers and slices. Not verified: a checksum covers the whole value, and value()
        looks at it.

        >>> trial.tensor("conv1.weight").slice(0, np.s_[1, ::2])
        array([0.5, 1.5], dtype=float32)
        """
        return np.asarray(self._array(self._raw.mapped, step_num, mode, worker)[key])

    def final_value(self, worker: str | None = None) -> Array:
        """What was recorded when the run ended.

        :raises NotFoundError: nothing was
        """
        return array_of(self._raw.final_value(self.name, worker or ""))

    def scalar(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> float:
        """The number of a scalar or of a one-element tensor.

        >>> trial.tensor("lr").scalar(0)
        0.125
        """
        number: float = self._of_a_step(self._raw.scalar, step_num, mode, worker)
        return number

    @property
    def shape(self) -> Shape:
        """The declared shape. Called with a step: the shape of the value, or the one saved instead of it."""
        return Shape._of(self, self._extents)

    def shapes(self, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """step -> shape."""
        return {step: self._shape_at(step, mode, worker) for step in self.steps(mode=mode, worker=worker)}

    def _without_width(self, shape: list[int]) -> tuple[int, ...]:
        # The library keeps texts as a last axis of code points; NumPy counts them as elements.
        return tuple(shape[:-1] if self.dtype == "text" else shape)

    def _shape_at(self, step_num: int, mode: Mode, worker: str | None) -> tuple[int, ...]:
        shape = self._at_once(self._raw.shape, step_num, mode, worker)
        if shape is None:
            step = self._saved(step_num, mode, worker)
            try:
                shape = self._raw.shape(self.name, step, EVERY_STEP, worker or "")
            except NotFoundError as error:
                raise said(self._trial._raises.no_shape(self.name, step_num, mode_of(mode)), error) from None
        return self._without_width(shape)

    # ---- reductions and statistics

    def reduction_value(self, step_num: int, reduction_name: str, mode: Mode = ModeKeys.GLOBAL,
                        worker: str | None = None, abs: bool = False) -> Any:
        """A saved reduction; else computed from the statistics or the raw value. A number, or the array that was saved.

        :param reduction_name: min max mean std variance sum prod l1 l2, of |x| with `abs`

        Norms are element-wise, std and variance divide by n.

        >>> float(trial.tensor("conv1.weight").reduction_value(0, "max", abs=True))
        1.5
        """
        name = ("abs_" if abs else "") + str(reduction_name)
        pair = self._at_once(self._raw.reduction, step_num, mode, worker, name)
        if pair is not None:
            return _number(array_of(pair))
        raises, step = self._trial._raises, self._saved(step_num, mode, worker)
        missing: TdbgError
        try:
            return _number(array_of(self._raw.reduction(self.name, step, EVERY_STEP, name, worker or "")))
        except InvalidArgumentError as error:
            if self._raw.is_kept(self.name, step, KINDS["raw"], worker or ""):
                raise raises.bad_value(str(error)) from None
            missing = error
        except (NotFoundError, UnimplementedError) as error:
            missing = error
            # No statistics are kept of its type; NumPy may know what to do with it.
            value = self._complex_value(step, worker)
            if value is not None:
                return _reduced(np.abs(value) if abs else value, reduction_name)
        raise said(raises.not_at_step(reduction_name, step_num, mode_of(mode)), missing)

    def _complex_value(self, step: int, worker: str | None) -> Array | None:
        if not self._raw.is_kept(self.name, step, KINDS["raw"], worker or ""):
            return None
        value = array_of(self._raw.value(self.name, step, EVERY_STEP, worker or ""))
        return value if value.dtype.kind == "c" else None

    def reduction_values(self, step_num: int, mode: Mode = ModeKeys.GLOBAL,
                         worker: str | None = None) -> dict[tuple[str, bool], Array]:
        """(name, abs) -> value, of the reductions that were saved by name, as they were saved."""
        saved = self._at_once(self._raw.saved_reductions, step_num, mode, worker)
        if saved is None:
            step = self._saved(step_num, mode, worker)
            saved = self._raw.saved_reductions(self.name, step, EVERY_STEP, worker or "")
        return {(name.removeprefix("abs_"), name.startswith("abs_")): array_of(pair) for name, pair in saved}

    def summary(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> Summary:
        """Statistics of the step, as they were computed while training; of a raw value without any, computed now.

        :raises NotFoundError: neither is kept; names the steps that have some

        >>> trial.tensor("conv1.weight").summary(0)
        Summary(count=6, mean=0.25, std=0.853913, min=-1, max=1.5, nan=0, inf=0)
        """
        return Summary(self._of_a_step(self._raw.summary, step_num, mode, worker),
                       lambda q: self._of_a_step(self._raw.quantile, step_num, mode, worker, q))

    def final_summary(self, worker: str | None = None) -> Summary:
        """Statistics of final_value(), without quantiles."""
        def no_histogram(q: float) -> float:
            raise NotFoundError("quantiles of final values are computed from final_value()")

        return Summary(self._raw.final_summary(self.name, worker or ""), no_histogram)

    def statistics(self) -> list[str]:
        """Ids of the derived statistics that the run keeps of this tensor: "count_above(0)"."""
        self._trial._look()
        return self._raw.statistics(self.name)

    def statistic(self, statistic: str, step_num: int, mode: Mode = ModeKeys.GLOBAL,
                  worker: str | None = None) -> tuple[Array, int, int]:
        """(entries, elements each was taken over, samples) of one derived statistic; docs/statistics.md lists them.

        :raises InvalidArgumentError: not in the catalogue
        :raises NotFoundError: not kept; names what is
        """
        values, elements, samples = self._of_a_step(self._raw.statistic, step_num, mode, worker, statistic)
        return np.asarray(values), elements, samples

    def histogram(self, step_num: int, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> Histogram:
        """Of the elements at one step. Not every step has one: `steps(kind="histogram")` are those that do; at others a
        NotFoundError names them.

        >>> trial.tensor("conv1.weight").histogram(0)
        <tdbg.Histogram: 5 elements in 5 buckets from -1.25 to 1.75>
        """
        return Histogram(*self._of_a_step(self._raw.histogram, step_num, mode, worker))

    def series(self, field: str = "value", worker: str | None = None) -> tuple[Array, Array]:
        """(steps, values) of one statistic: "mean", "abs_max", "mean_abs", "nan_count", "value" ... Global steps are
        int64, values float64. Steps at which it was not kept are left out. One call for the whole run.

        >>> steps, values = trial.tensor("lr").series()
        >>> steps.tolist(), values.tolist()
        ([0, 2], [0.125, 0.0625])
        """
        self._trial._look()
        return self._raw.series(self.name, field, worker or "")

    # ---- what the calls above share

    def _at_once(self, call: Callable[..., Any], step_num: int, mode: Mode, worker: str | None, *more: Any) -> Any:
        """What the library's `call` says of a step, in one call: it looks for itself whether the step can be read.
        None: it has no answer, and whoever asks finds out why, question by question."""
        which = self._trial._readable_steps(mode)
        try:
            return call(self.name, int(step_num), which, *more, worker or "")
        except TdbgError:
            return None

    def _of_a_step(self, call: Callable[..., Any], step_num: int, mode: Mode, worker: str | None, *more: Any) -> Any:
        """The same of what is not kept by kinds of steps: statistics and numbers."""
        answer = self._at_once(call, step_num, mode, worker, *more)
        if answer is None:
            answer = call(self.name, self._global(step_num, mode), EVERY_STEP, *more, worker or "")
        return answer

    def _array(self, call: Callable[..., tuple[Array, str]], step_num: int, mode: Mode, worker: str | None) -> Array:
        pair = self._at_once(call, step_num, mode, worker)
        if pair is None:
            step = self._saved(step_num, mode, worker)
            try:
                pair = call(self.name, step, EVERY_STEP, worker or "")
            except NotFoundError as error:
                raise self._unavailable(step_num, step, mode, error) from None
        return array_of(pair)

    def _global(self, step_num: int, mode: Mode) -> int:
        """The global step, if it can be read (of an incomplete one: what its workers have); else why it cannot."""
        trial, mode = self._trial, mode_of(mode)
        step = trial._readable(step_num, mode)
        if step is None:
            trial._look()
            step = trial._readable(step_num, mode)
        if step is not None:
            return step
        if trial._state(step_num, mode) == StepState.NOT_YET_AVAILABLE:
            raise trial._raises.step_not_yet(step_num, mode)
        raise trial._raises.step_unavailable(step_num, mode)

    def _saved(self, step_num: int, mode: Mode, worker: str | None) -> int:
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
            raise said(self._trial._raises.no_worker(worker),
                       f"worker '{worker}' has nothing of '{self.name}' at step {step}; "
                       f"it is there of: {', '.join(there)}")
        raise self._unavailable(step_num, step, mode)

    def _unavailable(self, step_num: int, step: int, mode: Mode, error: TdbgError | None = None) -> TdbgError:
        has_reductions = self._raw.is_kept(self.name, step, KINDS["summary"], "")
        missing = self._trial._raises.not_at_step(self.name, step_num, mode_of(mode), has_reductions)
        if error is None:
            return missing
        return said(missing, f"{error}" + ("; ask for summary() or reduction_value()" if has_reductions else ""))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self._extents)) or "scalar"
        return f"<tdbg.Tensor {printable(self.name)} {self.dtype} {shape}>"

    _repr_html_ = of_tensor
