"""Public names of tdbg.reading: pictures. `trial.plot` is one of these."""

from .reading.plot import Plots

__all__ = ["Plots"]
