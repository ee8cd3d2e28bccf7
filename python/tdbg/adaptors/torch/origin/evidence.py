"""What was seen of the tensors that an operation was given, counted and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ...guard import pass_on
from .values import PIECE, pieces, readable


class Because(NamedTuple):
    """`forced`: by what was seen; else what it was given was not seen, and may have been NaN before."""

    text: str
    numbers: dict[str, Any]
    forced: bool = True


def counted(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def of(n: int, count: int) -> str:
    return f"{n:,} of the {count:,} values"


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def limit_of(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point or dtype.is_complex else math.inf


def dtype_of(node: Any, result: int = 0) -> torch.dtype | None:
    """Of its result."""
    try:
        dtype: torch.dtype = node._input_metadata[result].dtype
        return dtype
    except Exception as error:
        pass_on(error)
        return None


def count_of(tensor: torch.Tensor, condition: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Of complex numbers: those that are 0 in both parts, NaN or infinite in one; of others none meets a condition."""
    plain = readable(tensor)
    if plain is None:
        return 0
    if tensor.is_complex():
        met = torch.all if condition is zero else torch.any if condition in (torch.isnan, torch.isinf) else None
        return 0 if met is None else sum(int(met(condition(piece.reshape(-1, 2)), 1).sum()) for piece in pieces(plain))
    return sum(int(condition(piece).sum()) for piece in pieces(plain))


def _together(tensors: tuple[torch.Tensor, ...]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one shape in pieces that belong together."""
    first = tensors[0]
    if first.numel() <= PIECE:
        yield tensors
        return
    rows = PIECE * first.shape[0] // first.numel()
    if rows:
        yield from zip(*(t.split(rows) for t in tensors))
    else:
        for parts in zip(*(t.unbind(0) for t in tensors)):
            yield from _together(parts)


def count_where(condition: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> tuple[int, int]:
    """(how many, of how many) elements of these, seen as of one shape, meet it together; (0, 0): they cannot be
    read."""
    plain = [p for t in tensors if not t.is_complex() and (p := readable(t)) is not None]
    if len(plain) < len(tensors):
        return 0, 0
    try:
        alike = torch.broadcast_tensors(*plain)
    except RuntimeError:
        return 0, 0
    return sum(int(condition(*parts).sum()) for parts in _together(tuple(alike))), alike[0].numel()


def first_of(given: dict[str, torch.Tensor], *names: str) -> torch.Tensor | None:
    return next((given[name] for name in names if name in given), None)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype)[6:]


def some_are(given: dict[str, torch.Tensor], names: tuple[str, ...],
           conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]],
           what: str = "that it was given") -> Because | None:
    """The first condition that some of the values meet. `conditions`: [(key of the numbers, words, test)]"""
    tensor = first_of(given, *names)
    if tensor is None:
        return None
    count = tensor.numel()
    for key, said, test in conditions:
        if found := count_of(tensor, test):
            return these(found, count, key, said, what)
    return None


def these(found: int, count: int, key: str, said: str, what: str = "that it was given") -> Because:
    verb = "is" if found == 1 else "are"
    return Because(f"{of(found, count)} {what} {verb} {said}", {key: found, "values": count})


def zero(x: torch.Tensor) -> torch.Tensor:
    return x == 0


def below_zero(x: torch.Tensor) -> torch.Tensor:
    return x < 0
