"""Modes of a training: smdebug's ModeKeys, numbered as in the run's files. `modes.EVAL` reads well in scripts."""

from __future__ import annotations

from enum import Enum


class ModeKeys(Enum):
    """What a step is part of."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4  #: any mode; also the mode of a training that never says which one it is in


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]
