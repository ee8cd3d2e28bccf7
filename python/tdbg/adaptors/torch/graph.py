"""What a value was computed from: torch's graph, walked from a loss. Costs 1 us a node, so only where nothing else can
tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

MAX_NODES = 10_000      # of one walk, 10 ms


class TooLarge(Exception):
    """There are more nodes than a walk takes."""


def nodes(tensors: torch.Tensor | Iterable[torch.Tensor]) -> Iterator[Any]:
    """Every node behind `tensors`, once. Raises TooLarge behind MAX_NODES."""
    given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
    todo = [t.grad_fn for t in given if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    seen = set(todo)            # holds them: a node that nobody holds has another identity the next time
    while todo:
        node = todo.pop()
        yield node
        for behind, _ in node.next_functions:
            if behind is not None and behind not in seen:
                seen.add(behind)
                todo.append(behind)
        if len(seen) > MAX_NODES:
            raise TooLarge


def name_of(node: Any) -> str:
    """`Softmax` of SoftmaxBackward0."""
    name = type(node).__name__      # as its name() says, which takes longer
    if name == "CppFunction":
        name = node.name().rpartition("::")[2]
    return name.partition("Backward")[0]


def shape_of(node: Any, number: int = 0) -> tuple[int, ...]:
    """Of its `number`-th result; () where the graph does not tell."""
    metadata: Sequence[Any] = getattr(node, "_input_metadata", ())
    return tuple(metadata[number].shape) if number < len(metadata) else ()


def is_captured(tensor: torch.Tensor) -> bool:
    """Would an operation of ours become a part of a CUDA graph?"""
    return tensor.device.type == "cuda" and bool(torch.cuda.is_current_stream_capturing())


def signed(saved: int) -> int:
    """What a node keeps as `_saved_dim`, `_saved_ignore_index` and the like, which torch gives without a sign: -1 as
    2**64 - 1."""
    return saved - (1 << 64) if saved >= 1 << 63 else saved


def reaches(tensors: torch.Tensor | Iterable[torch.Tensor], node: Any) -> bool:
    """Would a backward of `tensors` come to `node`? True also where that takes too long to find out."""
    if node is None:
        return False
    try:
        return any(found is node for found in nodes(tensors))
    except TooLarge:
        return True


def leaves(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """What a backward of `tensors` gives gradients; of a large graph those among its first nodes."""
    found = []
    with contextlib.suppress(TooLarge):
        for node in nodes(tensors):
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                found.append(leaf)
    return found


def gives(tensors: torch.Tensor | Iterable[torch.Tensor], leaf: torch.Tensor) -> bool:
    """Does a backward of `tensors` give `leaf` a gradient? False also where that takes too long to find out."""
    try:
        return any(getattr(node, "variable", None) is leaf for node in nodes(tensors))
    except TooLarge:
        return False


def owners(tensors: torch.Tensor | Iterable[torch.Tensor], owner_of: dict[int, set[int]]) -> set[int] | None:
    """Whose parameters a backward of `tensors` gives gradients. `owner_of`: by id() of a parameter. None: that takes
    too long to find out."""
    every = set().union(*owner_of.values())
    found: set[int] = set()
    try:
        for node in nodes(tensors):
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                found |= owner_of.get(id(leaf), set())
                if found == every:
                    break
    except TooLarge:
        return None
    return found
