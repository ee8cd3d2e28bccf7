"""Replaces functions of a framework, reversibly and without visible differences.

A replacement has the original's name, module and signature (functools.wraps), scripts as the original
under torch.jit, and is put under every name under which the framework exports it. `Patches.undo` restores an
attribute only where it is still ours: a wrapper that somebody laid on top of it stays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


class Patches:
    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owners: Iterable[Any], name: str, make: Callable[..., Any]) -> None:
        """Replaces `name` in each of `owners` by make(original). A function with several names stays one function, so
        that pickle finds it. Absent names are skipped."""
        made: dict[int, Any] = {}      # by id of the original
        for owner in owners:
            original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
            if original is None or getattr(original, "_tdbg", False):
                continue
            wrapper: Any = made.get(id(original))
            if wrapper is None:
                wrapper = made[id(original)] = functools.wraps(original)(make(original))
                wrapper._tdbg = True
                # torch.jit.script compiles a Python function from its source and its globals; without this it
                # would compile the wrapper, whose *args it refuses, and break scripts that worked.
                wrapper.__prepare_scriptable__ = lambda original=original: original
            setattr(owner, name, wrapper)
            self._undo.append((owner, name, original, wrapper))

    def shadow(self, owner: Any, name: str, make: Callable[..., Any]) -> None:
        """As `replace`, for a method that the class may inherit: make() then gets what comes after it in the order of
        whatever subclass the instance is of."""
        if name in owner.__dict__:
            self.replace([owner], name, make)
            return

        def inherited(instance: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(super(owner, instance), name)(*args, **kwargs)

        wrapper: Any = functools.wraps(getattr(owner, name))(make(inherited))
        wrapper._tdbg = True
        setattr(owner, name, wrapper)
        self._undo.append((owner, name, None, wrapper))

    def undo(self) -> None:
        for owner, name, original, wrapper in reversed(self._undo):
            if getattr(owner, name, None) is wrapper:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._undo.clear()
