"""Modes of a training: smdebug's ModeKeys, numbered as in the run's files. `modes.EVAL` reads well in scripts."""

from __future__ import annotations

from enum import Enum


class ModeKeys(Enum):
    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4  #: any mode; also the mode of a training that never says which one it is in


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]


def str_to_mode_keys(name: str) -> ModeKeys:
    """"TRAIN" or "train" -> ModeKeys.TRAIN. SMDebugValueError names the accepted ones."""
    try:
        return ModeKeys[name.strip().upper()]
    except (KeyError, AttributeError):
        from .exceptions import SMDebugValueError

        raise SMDebugValueError(f"no mode {name!r}: one of {', '.join(ALLOWED_MODE_NAMES)}") from None
