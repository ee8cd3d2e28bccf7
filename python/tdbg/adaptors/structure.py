"""Walks the nested lists, tuples and dicts that a model takes and returns.

They belong to the script: one may contain itself, or be a vocabulary of a million words. So that neither delays the
training, every walk is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

#: A batch is among the first things a model is given, or in none of them: this is looked for in every step.
FIRST_LOOKS = 64
#: The keys and values that a transformer of 300 layers returns.
MAX_LOOKS = 1024
MAX_DEPTH = 32


def _contents(value: Any, dicts: bool) -> Iterable[Any] | None:
    if isinstance(value, (list, tuple)):
        return value
    return value.values() if dicts and isinstance(value, dict) else None


def first(kind: type | tuple[type, ...], *containers: Any) -> Any:
    """The first object of this kind, the outermost first, among FIRST_LOOKS objects; None if there is none."""
    waiting, seen, left = deque(containers), set(), FIRST_LOOKS
    while waiting and left:
        for value in islice(waiting.popleft(), left):
            left -= 1
            if isinstance(value, kind):
                return value
            inside = _contents(value, True)
            if inside is not None and id(value) not in seen:
                seen.add(id(value))
                waiting.append(inside)
    return None


def every(kind: type | tuple[type, ...], value: Any, dicts: bool = True,
          cut: Callable[[], Any] | None = None) -> Iterator[Any]:
    """All objects of this kind, in order; a container inside itself is skipped. Calls `cut()` if there were more than
    MAX_LOOKS objects, or they were nested deeper than MAX_DEPTH."""
    ways, path, left = [iter((value,))], [0], MAX_LOOKS
    while ways:
        for value in ways[-1]:
            if not left:
                if cut is not None:
                    cut()
                return
            left -= 1
            if isinstance(value, kind):
                yield value
                continue
            inside = _contents(value, dicts)
            if inside is None or id(value) in path:
                continue
            if len(path) <= MAX_DEPTH:
                path.append(id(value))
                ways.append(iter(inside))
                break
            if cut is not None:
                cut()
        else:
            ways.pop()
            path.pop()
