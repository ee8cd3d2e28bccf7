"""The process's hook: one at a time, as in smdebug."""

from __future__ import annotations

import logging
import os
from typing import Any

from ..exceptions import SMDebugTypeError

_hook = None


class ProcessHook:
    """What can be the process's hook: BaseHook derives from it, and this module need not know BaseHook."""

    logger = logging.getLogger("smdebug")


def opted_out() -> bool:
    """USE_SMDEBUG=0 (or false, off, no, n, f): nothing is to be captured."""
    return os.environ.get("USE_SMDEBUG", "").strip().lower() in ("0", "false", "off", "no", "n", "f")


def current() -> ProcessHook | None:
    return _hook


def set_hook(hook: ProcessHook) -> None:
    global _hook
    if not isinstance(hook, ProcessHook):
        raise SMDebugTypeError(f"set_hook({hook!r}): a hook is accepted")
    _hook = hook


def del_hook() -> None:
    """Forgets the hook; it goes on saving until it is closed."""
    global _hook
    _hook = None


def get_hook(hook_class: type[Any], json_config_path: str | None = None, create: bool = False) -> Any:
    """The process's hook if it is of that class, whatever the path; else, with `create`, one made from the
    configuration file. None where there is no such file, or under USE_SMDEBUG=0."""
    global _hook
    if _hook is not None and not isinstance(_hook, hook_class):
        _hook = None
    if opted_out():
        return None
    if _hook is None and create:
        try:
            return hook_class.create_from_json_file(json_config_path)
        except FileNotFoundError:
            return None
    return _hook
