"""Statistics of one tensor at one step, and histograms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Stored:
    """What is stored of each row, in the order of the file's columns (docs/format.md)."""

    count: int  #: elements: the product of the shape
    nan_count: int
    pos_inf_count: int
    neg_inf_count: int
    zero_count: int  #: exact zeros, of either sign
    min: float
    max: float
    mean: float
    variance: float  #: that unit squared; divides by n, not by n - 1
    m3: float  #: mean of (x - mean) ** 3
    m4: float  #: mean of (x - mean) ** 4
    l1: float  #: sum of |x|
    l2: float  #: square root of the sum of x * x
    abs_min: float
    abs_max: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Summary(_Stored):
    """Statistics of one tensor at one step. Counts cover every element, everything else the finite ones: NaN where
    there are none. Sizes are in the tensor's own unit.

    >>> s = trial.tensor("conv1.weight").summary(1)
    >>> s.count, s.nan_count, s.pos_inf_count, s.nonfinite_count
    (6, 1, 1, 2)
    >>> s.min, s.max, s.mean
    (-1.5, 3.0, 0.75)
    """

    mean_abs: float  #: mean of |x|
    finite_count: int  #: elements that are neither NaN nor infinite
    numpy_mean: float  #: as NumPy says it of all elements: NaN where one is NaN
    numpy_min: float
    numpy_max: float
    _quantile: Callable[[float], float]

    #: Names of what is stored, in the order of the file's columns.
    FIELDS: ClassVar[tuple[str, ...]] = tuple(field.name for field in dataclasses.fields(_Stored))

    @classmethod
    def _of(cls, raw: _trial.Summary, quantile: Callable[[float], float]) -> Summary:
        return cls(**{name: getattr(raw, name) for name in _NAMES}, _quantile=quantile)

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


_NAMES = tuple(field.name for field in dataclasses.fields(Summary) if not field.name.startswith("_"))
