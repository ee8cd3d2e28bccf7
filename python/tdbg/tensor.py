"""Public names of tdbg.reading: one tensor of a run."""

from .reading.arrays import array_of, widened
from .reading.summary import Histogram, Summary
from .reading.tensor import Shape, Tensor

__all__ = ["Tensor", "Shape", "Summary", "Histogram", "array_of", "widened"]
