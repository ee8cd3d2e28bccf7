"""One suite that every adaptor passes. See README.md."""

from .framework import COLLECTIONS, Framework, Step, Trained
from .suite import Conformance

__all__ = ["COLLECTIONS", "Conformance", "Framework", "Step", "Trained"]
