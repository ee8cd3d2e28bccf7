"""Small readings of text that smdebug's rules use for their parameters."""

from __future__ import annotations

from typing import Any

from ..exceptions import SMDebugValueError


def parse_list_from_str(arg: Any, delimiter: str = ",") -> list[str]:
    """"a,b" -> ["a", "b"]; "" and None -> []; a list as it is."""
    if not arg:
        return []
    if isinstance(arg, (list, tuple)):
        return list(arg)
    if not isinstance(arg, str):
        raise SMDebugValueError(f"{arg!r}: text with {delimiter!r} between the items, or a list, is accepted")
    return arg.split(delimiter)


def parse_bool(arg: Any, default: bool = False) -> bool:
    """True, "True", "true", False, "False", "false"; None is the default."""
    if arg is None:
        return default
    if arg in (True, "True", "true"):
        return True
    if arg in (False, "False", "false"):
        return False
    raise SMDebugValueError(f"{arg!r}: True or False is accepted")
