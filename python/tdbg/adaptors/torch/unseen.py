"""Keeps operations of ours from the script's own modes: a FlopCounterMode, a mode that logs, FakeTensorMode,
`torch.set_default_device`. What they see under watch is what they see without.

Modes lie on two stacks of the calling thread, from which they are taken while our code runs. Where there is none, as in
nearly every training, asking costs 0.3 us a hook.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
import torch.overrides
import torch.utils._python_dispatch as _dispatch

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NOTHING: AbstractContextManager[Any] = nullcontext()


def _stacks() -> list[tuple[Callable[[], int], Callable[[], Any], Callable[[Any], None]]]:
    """(how many there are, take the uppermost, put one back); of a torch that calls this something else: none."""
    found = []
    for count, module in (("_len_torch_function_stack", torch.overrides), ("_len_torch_dispatch_stack", _dispatch)):
        pop, push = getattr(module, "_pop_mode", None), getattr(module, "_push_mode", None)
        if hasattr(torch._C, count) and pop is not None and push is not None:
            found.append((getattr(torch._C, count), pop, push))
    return found


_STACKS = _stacks()
_COUNTS = tuple(count for count, _, _ in _STACKS)


class _WithoutModes:
    """Used once."""

    def __init__(self) -> None:
        self._taken: list[tuple[Any, Any]] = []     # (put it back, mode)

    def __enter__(self) -> None:
        try:
            for count, pop, push in _STACKS:
                for _ in range(count()):
                    self._taken.append((push, pop()))
        except BaseException:
            self._put_back()
            raise

    def __exit__(self, *_: Any) -> None:
        self._put_back()

    def _put_back(self) -> None:
        while self._taken:
            push, mode = self._taken.pop()
            push(mode)


def hidden() -> AbstractContextManager[Any]:
    """While it lasts, no mode of the script's sees what the calling thread does. The script's own code (a closure, a
    forward) must not run in it."""
    for count in _COUNTS:
        if count():
            return _WithoutModes()
    return _NOTHING


def unseen(function: _Function) -> _Function:
    """A function all of whose calls are `hidden`."""
    @functools.wraps(function)
    def without_modes(*args: Any, **kwargs: Any) -> Any:
        for count in _COUNTS:
            if count():
                with _WithoutModes():
                    return function(*args, **kwargs)
        return function(*args, **kwargs)
    return without_modes  # type: ignore[return-value]
