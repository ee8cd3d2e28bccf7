"""The graph that a backward is about to go through, and what its nodes kept of the forward.

Reading what a node kept is free of effects only where no hook unpacks it: a checkpointed segment's would run its
forward again. So the hook is asked for first, and what has one counts as not seen. That is told by torch 2.8 and later;
of an older one nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

MAX_NODES = 20_000      # of one walk: 40 ms without the values

# : Nodes that hand on values as they are, in another order or shape: a parameter behind one is used by what comes after
# it.
VIEWS = {
    "T",
    "Transpose",
    "Permute",
    "View",
    "UnsafeView",
    "ReshapeAlias",
    "Expand",
    "Squeeze",
    "Unsqueeze",
    "ToCopy",
    "Alias",
    "Clone",
    "Select",
    "Slice",
    "Detach",
    "AsStrided",
    "Contiguous",
    "Narrow",
    "ViewAs",
    "Mt",
    "Split",
    "SplitWithSizes",
    "Chunk",
    "UnsafeSplit",
    "Unbind",
    "Identity",
    "Numpy_T",
    "MoveDim",
}
#: What a node keeps of its own result, or computed on the way: no input of it.
_RESULTS = re.compile(
    r"^(result\d*|output|out|grad|logsumexp|total_weight|indices|mask|.*rng.*|.*philox.*|seed|offset|save.*|buffer|"
    r"cum_seq.*|reserve.*|workspace|argmax|max_indexes|reservedSpace|pivots|info"
    r"|L|Q|R|U|S|Vh|eigenvalues|eigenvectors)$"
)

CHECKPOINTED, HOOKED, FREED, CHANGED = "checkpointed", "saved through hooks", "freed", "changed in place since"


class TooLarge(Exception):
    """There are more nodes than a walk takes."""


class Unseen(NamedTuple):
    why: str


class Edge(NamedTuple):
    """The `number`-th result of a node."""

    node: Any
    number: int


def base_name(node: Any) -> str:
    """LogBackward0 -> Log; torch::autograd::AccumulateGrad -> AccumulateGrad."""
    name: str = node.name()
    return re.sub(r"Backward\d*$", "", name.rsplit("::", 1)[-1]) or name


def is_python(node: Any) -> bool:
    """A torch.autograd.Function's: what lies inside has no nodes."""
    return hasattr(node, "_forward_cls") or hasattr(node, "_raw_saved_tensors") and hasattr(node, "saved_tensors")


def leaf_of(node: Any) -> torch.Tensor | None:
    return getattr(node, "variable", None) if base_name(node) == "AccumulateGrad" else None


_attributes: dict[type, list[str]] = {}


def _saved_attributes(node: Any) -> list[str]:
    kind = type(node)
    found = _attributes.get(kind)
    if found is None:
        found = _attributes[kind] = [a[5:] for a in dir(kind) if a.startswith("_raw_saved_")]
    return found


def _read(node: Any, attribute: str, raw: Any) -> Any:
    if raw is None:
        return None
    if not hasattr(raw, "unpack_hook"):
        return Unseen("this torch does not say how it kept them")
    if raw.unpack_hook is not None:
        packed = type(getattr(raw, "data", None))
        return Unseen(CHECKPOINTED if packed.__module__ == "torch.utils.checkpoint" else HOOKED)
    return True


def kept_as(node: Any, name: str) -> Any:
    """The tensor that a node of torch's kept under `name`, or several; None where it has none or cannot say it without
    effects."""
    try:
        raw = getattr(node, "_raw_saved_" + name, None)
        several = raw if isinstance(raw, (tuple, list)) else (raw,)
        if not all(_read(node, name, one) in (True, None) for one in several):
            return None
        return None if raw is None else getattr(node, "_saved_" + name)
    except RuntimeError:        # freed, or written to since
        return None


def saved(node: Any) -> Iterator[tuple[str, torch.Tensor | Unseen]]:
    """(name, what it kept under it), in the node's own words: self, other, weight, result."""
    if is_python(node):
        try:
            raws = node._raw_saved_tensors
            seen = [_read(node, "", raw) for raw in raws]
            if any(isinstance(s, Unseen) for s in seen):
                yield "saved", next(s for s in seen if isinstance(s, Unseen))
                return
            for n, value in enumerate(node.saved_tensors if raws else ()):
                if isinstance(value, torch.Tensor):
                    yield f"saved {n}", value
        except RuntimeError as error:
            yield "saved", _refused(error)
        return
    for attribute in _saved_attributes(node):
        name = attribute.removeprefix("saved_")
        try:
            raw = getattr(node, "_raw_" + attribute)
            several = raw if isinstance(raw, (tuple, list)) else (raw,)
            seen = [_read(node, attribute, r) for r in several]
            unseen = next((s for s in seen if isinstance(s, Unseen)), None)
            if unseen is not None:
                yield name, unseen
                continue
            value = getattr(node, "_" + attribute)
        except RuntimeError as error:
            yield name, _refused(error)
            continue
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (tuple, list)):
            for n, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    yield f"{name} {n}", item


def _refused(error: RuntimeError) -> Unseen:
    return Unseen(FREED if "second time" in str(error) else CHANGED if "inplace" in str(error) else "not readable")


def is_result(name: str) -> bool:
    return _RESULTS.match(name) is not None


def order_of(node: Any) -> int:
    """When the forward made it; AccumulateGrad's is the largest there is."""
    return int(node._sequence_nr())


class Graph:
    """Every node behind `tensors`. Raises TooLarge."""

    def __init__(self, tensors: Iterable[torch.Tensor], most: int = MAX_NODES) -> None:
        self.roots = [Edge(t.grad_fn, t.output_nr) for t in tensors if t.grad_fn is not None]
        self.nodes: dict[Any, None] = {}                  # in the order in which they were found; holds them
        self.consumers: dict[Any, list[Any]] = {}
        todo = [edge.node for edge in self.roots]
        self.nodes.update(dict.fromkeys(todo))
        while todo:
            node = todo.pop()
            for behind, _ in node.next_functions:
                if behind is None:
                    continue
                self.consumers.setdefault(behind, []).append(node)
                if behind not in self.nodes:
                    self.nodes[behind] = None
                    todo.append(behind)
            if len(self.nodes) > most:
                raise TooLarge

    @staticmethod
    def inputs(node: Any) -> list[Edge]:
        return [Edge(behind, number) for behind, number in node.next_functions if behind is not None]

    def below(self, nodes: Iterable[Any]) -> set[Any]:
        """Those from which `nodes` were computed, with them."""
        return _closure(nodes, lambda node: [behind for behind, _ in node.next_functions if behind is not None])

    def above(self, nodes: Iterable[Any]) -> set[Any]:
        """Those that were computed from `nodes`, with them."""
        return _closure(nodes, lambda node: self.consumers.get(node, ()))

    def users(self) -> dict[Any, list[torch.Tensor]]:
        """Nodes that compute with a parameter, and with which: what lies between them are layers."""
        found: dict[Any, list[torch.Tensor]] = {}
        for node in self.nodes:
            leaf = leaf_of(node)
            if leaf is None:
                continue
            todo, seen = list(self.consumers.get(node, ())), set()
            while todo:
                user = todo.pop()
                if user in seen:
                    continue
                seen.add(user)
                if base_name(user) in VIEWS and self.consumers.get(user):
                    todo.extend(self.consumers[user])
                else:
                    found.setdefault(user, []).append(leaf)
        return found


def _closure(nodes: Iterable[Any], next_of: Callable[[Any], Iterable[Any]]) -> set[Any]:
    found = set(nodes)
    todo = list(found)
    while todo:
        for other in next_of(todo.pop()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


class Place(NamedTuple):
    """Where in the model: inside of layers, or between those before and behind. Layers by the names that the caller
    gave."""

    inside: str = ""
    after: str = ""
    before: str = ""

    def words(self) -> str:
        inside, after, before = (spoken(layer) for layer in self)
        if inside:
            return f"in {inside}"
        if after and before:
            return f"between {after} and {before}"
        if after:
            return f"between {after} and the loss"
        return f"before {before}" if before else ""


def spoken(layer: str) -> str:
    """A layer of a Sequential is called `2`, which no sentence can stand."""
    return f"layer {layer}" if layer.isdecimal() else layer


class Places:
    """Where the nodes of a graph are. `layer_of`: the name of a parameter's layer, "" where it has none."""

    def __init__(self, graph: Graph, layer_of: Callable[[torch.Tensor], str]) -> None:
        self._graph = graph
        self._layers: dict[Any, str] = {}
        for node, leaves in graph.users().items():
            if named := next((layer for leaf in leaves if (layer := layer_of(leaf))), ""):
                self._layers[node] = named

    def of(self, node: Any) -> Place:
        """A custom function or a compiled region that uses several layers is said to be in the first."""
        if node in self._layers:
            return Place(inside=self._layers[node])
        below = self._graph.below([node]) - {node}
        above = self._graph.above([node]) - {node}
        before = [n for n in self._layers if n in below]
        behind = [n for n in self._layers if n in above]
        return Place(after=self._layers[max(before, key=order_of)] if before else "",
                     before=self._layers[min(behind, key=order_of)] if behind else "")
