"""Statistics of one tensor at one step, and histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..words import counted
from .arrays import Array

if TYPE_CHECKING:
    from .. import _trial


class Histogram(NamedTuple):
    """Signed, logarithmic, exact counts of the finite, non-zero elements. Buckets ascend; each has an entry in every
    column.

    >>> histogram = trial.tensor("conv1.weight").histogram(0)
    >>> histogram.count.tolist(), histogram.value.round(1).tolist()
    ([1, 1, 1, 1, 1], [-1.1, -0.6, 0.6, 1.1, 1.6])
    """

    lower: Array  #: float64, borders in the tensor's own unit
    upper: Array
    value: Array  #: what stands for a bucket, within 1/9 of every element in it
    count: Array  # type: ignore[assignment]  #: uint64, elements; a tuple has a method of this name

    def __repr__(self) -> str:
        span = f" from {self.lower[0]:.4g} to {self.upper[-1]:.4g}" if len(self.count) else ""
        elements, buckets = counted(int(self.count.sum()), "element"), counted(len(self.count), "bucket")
        return f"<tdbg.Histogram: {elements} in {buckets}{span}>"


class Column(property):
    """A field of the library's summary, read when it is asked for. `stored`: it is a column of the run's files."""

    stored = True

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(attrgetter(f"_raw.{name}"))
        self.__doc__ = doc  # which a subclass of property takes from its class otherwise


class _Computed(Column):
    stored = False


def _stored(name: str, doc: str) -> Any:
    return Column(name, doc)


def _computed(name: str, doc: str) -> Any:
    return _Computed(name, doc)


class Summary:
    """Statistics of one tensor at one step. Counts cover every element, everything else the finite ones: NaN where
    there are none. Sizes are in the tensor's own unit.

    >>> s = trial.tensor("conv1.weight").summary(1)
    >>> s.count, s.nan_count, s.pos_inf_count, s.nonfinite_count
    (6, 1, 1, 2)
    >>> s.min, s.max, s.mean
    (-1.5, 3.0, 0.75)
    """

    __slots__ = ("_quantile", "_raw")

    # What is stored, in the order of the file's columns (docs/format.md). FIELDS are these names.
    count: int = _stored("count", "Elements: the product of the shape.")
    nan_count: int = _stored("nan_count", "Elements that are NaN.")
    pos_inf_count: int = _stored("pos_inf_count", "Elements that are +infinity.")
    neg_inf_count: int = _stored("neg_inf_count", "Elements that are -infinity.")
    zero_count: int = _stored("zero_count", "Exact zeros, of either sign.")
    min: float = _stored("min", "The least finite element.")
    max: float = _stored("max", "The greatest finite element.")
    mean: float = _stored("mean", "Of the finite elements.")
    variance: float = _stored("variance", "That unit squared; divides by n, not by n - 1.")
    m3: float = _stored("m3", "Mean of (x - mean) ** 3.")
    m4: float = _stored("m4", "Mean of (x - mean) ** 4.")
    l1: float = _stored("l1", "Sum of |x|.")
    l2: float = _stored("l2", "Square root of the sum of x * x.")
    abs_min: float = _stored("abs_min", "The least |x|.")
    abs_max: float = _stored("abs_max", "The greatest |x|.")

    mean_abs: float = _computed("mean_abs", "Mean of |x|.")
    finite_count: int = _computed("finite_count", "Elements that are neither NaN nor infinite.")
    numpy_mean: float = _computed("numpy_mean", "As NumPy says it of all elements: NaN where one is NaN.")
    numpy_min: float = _computed("numpy_min", "The same of the minimum.")
    numpy_max: float = _computed("numpy_max", "The same of the maximum.")

    #: Names of what is stored, in the order of the file's columns.
    FIELDS: ClassVar[tuple[str, ...]] = tuple(name for name, field in vars().items()
                                              if isinstance(field, Column) and field.stored)

    def __init__(self, raw: _trial.Summary, quantile: Callable[[float], float]) -> None:
        self._raw = raw
        self._quantile = quantile

    @property
    def std(self) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def kurtosis(self) -> float:
        """m4 / variance ** 2: 3 of a normal distribution; NaN of a constant."""
        return self.m4 / self.variance**2 if self.variance else math.nan

    @property
    def nonfinite_count(self) -> int:
        """NaN and infinite elements."""
        return self.count - self.finite_count

    def quantile(self, q: float) -> float:
        """The value below which a share `q` (0 to 1) of the finite elements lies, within 1/9: from the histogram, which
        is read for it.

        :raises NotFoundError: at a step without a histogram; names those that have one
        """
        return self._quantile(q)

    def as_dict(self) -> dict[str, Any]:
        """FIELDS by name."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def __repr__(self) -> str:
        return (f"Summary(count={self.count}, mean={self.mean:.6g}, std={self.std:.6g}, min={self.min:.6g}, "
                f"max={self.max:.6g}, nan={self.nan_count}, inf={self.pos_inf_count + self.neg_inf_count})")
