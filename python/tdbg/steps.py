"""Public names of tdbg.reading: steps and their states."""

from .reading.steps import KINDS, Step, StepState, mode_of

__all__ = ["KINDS", "Step", "StepState", "mode_of"]
