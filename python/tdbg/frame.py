"""Public names of tdbg.reading: statistics as columns."""

from .reading.frame import KEYS, Frame

__all__ = ["Frame", "KEYS"]
