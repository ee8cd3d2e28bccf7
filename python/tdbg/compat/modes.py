"""smdebug's helpers about modes."""

from __future__ import annotations

from ..modes import ALLOWED_MODE_NAMES, ALLOWED_MODES, ModeKeys
from .exceptions import SMDebugValueError

__all__ = ["ALLOWED_MODES", "ALLOWED_MODE_NAMES", "ModeKeys", "str_to_mode_keys"]


def str_to_mode_keys(name: str) -> ModeKeys:
    """The mode of a name in any case.

    :raises SMDebugValueError: names the accepted ones

    >>> str_to_mode_keys("train")
    <ModeKeys.TRAIN: 1>
    """
    try:
        return ModeKeys[name.strip().upper()]
    except (KeyError, AttributeError):
        raise SMDebugValueError(f"no mode {name!r}: one of {', '.join(ALLOWED_MODE_NAMES)}") from None
