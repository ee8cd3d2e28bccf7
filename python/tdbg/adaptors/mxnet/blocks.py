"""What blocks and parameters are called, what kind they are; inputs and outputs of blocks, where the plan wants
them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mxnet.gluon import Block, loss, nn

from ..session import NOT_WANTED
from . import arrays

if TYPE_CHECKING:
    from .session import Session

#: Numbers k of `<block>_output_<k>` that the plan is asked about before a block is left alone.
PROBES = 3

_KINDS = {
    "LeakyReLU": "leaky_relu", "PReLU": "leaky_relu", "ELU": "elu", "SELU": "elu", "GELU": "gelu", "Swish": "silu",
    "Dense": "linear", "Embedding": "embedding", "_Conv": "conv", "_Pooling": "pool", "Dropout": "dropout",
    "_BatchNorm": "norm", "InstanceNorm": "norm", "LayerNorm": "norm", "GroupNorm": "norm", "_RNNLayer": "rnn",
    "RecurrentCell": "rnn", "Loss": "loss",
}
_ACTIVATIONS = ("relu", "tanh", "sigmoid")


def block_kind(block: Any) -> str:
    """relu, tanh, sigmoid, conv, linear, norm, loss ... or "" where we have no word for it."""
    if isinstance(block, nn.Activation):
        act = getattr(block, "_act_type", "")
        return act if act in _ACTIVATIONS else ""
    for cls in type(block).__mro__:
        if cls.__name__ in _KINDS:
            return _KINDS[cls.__name__]
    name = type(block).__name__
    return "attention" if "Attention" in name else "loss" if name.endswith("Loss") else ""


def is_loss(block: Any) -> bool:
    return isinstance(block, loss.Loss) or block_kind(block) == "loss"


def output_unit_axis(block: Any, kind: str, rank: int) -> int:
    """Which axis of an output numbers the units (channels, features); -1: none."""
    if rank < 2:
        return -1
    if kind in ("conv", "pool"):
        layout = getattr(block, "_kwargs", {}).get("layout") or ""
        return layout.find("C") if len(layout) == rank and "C" in layout else 1
    if kind in ("linear", "embedding", "attention", "rnn"):
        return rank - 1
    return 1 if rank >= 4 else rank - 1


def parameter_kind(name: str) -> str:
    """weight, bias, or buffer for what is no parameter of the function (running averages)."""
    last = name.rsplit("_", 1)[-1]
    if "_running_" in name or "_moving_" in name or name.startswith(("running_", "moving_")):
        return "buffer"
    return "bias" if last in ("bias", "beta") else "weight"


def parameter_unit_axis(block: Any, kind: str, rank: int) -> int:
    """Weights and gradients: the axis of the output units."""
    if rank == 0:
        return -1
    return 1 if block is not None and "Transpose" in type(block).__name__ and kind == "weight" and rank > 2 else 0


def tree(block: Any) -> Iterator[Any]:
    """`block` and all below it, each once, parents first."""
    seen, todo = set(), [block]
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        todo.extend(c for c in reversed(list(current._children.values())) if isinstance(c, Block))


class Names:
    """Gluon numbers names itself (conv0_weight, conv1_weight). Where two live under one name, because the script gave
    both the same prefix, the later one gets a number of ours: net_dense0_weight_1."""

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._used: dict[str, int] = {}

    def of(self, thing: Any) -> str:
        name = self._names.get(thing)
        if name is None:
            used = self._used.get(thing.name, 0)
            self._used[thing.name] = used + 1
            name = self._names[thing] = thing.name if used == 0 else f"{thing.name}_{used}"
        return name


class _Watched:
    """A block of whose inputs or outputs the plan wants something."""

    __slots__ = ("name", "kind", "wants", "collections")

    def __init__(self, name: str, kind: str, wants: list[str], collections: list[str]) -> None:
        self.name, self.kind, self.wants, self.collections = name, kind, wants, collections


class BlockTensors:
    """Inputs and outputs as `<block>_input_<k>`, `<block>_output_<k>`; k counts over all calls of the block in a step.
    Their values are waited for inside the training's forward: only in steps in which they are due."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.active = False          # anything wanted at all
        self.armed = False           # and due in the open step, as far as is known
        self._installed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._watched: weakref.WeakKeyDictionary[Any, _Watched | None] = weakref.WeakKeyDictionary()
        self._ids: dict[Any, int] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._place: Any = None

    def install(self, root: Any) -> None:
        """Finds out what is wanted of a model, or of a loss."""
        if root in self._installed:
            return
        self._installed.add(root)
        run = self.session.run
        first_embedding = True
        for block in tree(root):
            if block in self._watched:
                continue
            kind = block_kind(block)
            name = self.session.names.of(block)
            # What rules about a model's data look at: positions and segments are embedded later than words.
            said = ["model_input"] if block is root and kind != "loss" else []
            if kind == "embedding" and first_embedding:
                first_embedding = False
                said.append("embedding_input")
            wants = [what for what, collections in (("input", said), ("output", []))
                     if any(run.wants(f"{name}_{what}_{k}", what, kind, 0, collections) for k in range(PROBES))]
            if kind == "loss" and "output" in wants:
                wants.remove("output")                  # losses.py has it
            self._watched[block] = _Watched(name, kind, wants, said) if wants else None
            self.active |= bool(wants)

    def watched(self, block: Any) -> _Watched | None:
        return self._watched.get(block)

    def ran(self, block: Any, args: Any, out: Any) -> None:
        watched = self._watched.get(block)
        if watched is None:
            return
        for what, value in (("input", args), ("output", out)):
            if what in watched.wants:
                for array in arrays.flat(value):
                    self.put(block, watched, what, self.number(watched, what), array)
                    self.count(watched, what, 1)

    def number(self, watched: Any, what: str) -> int:
        """How many of these there were in this step already."""
        place = self.session.place()
        if place != self._place:
            self._place = place
            self._counts.clear()
        return self._counts.get((watched.name, what), 0)

    def count(self, watched: Any, what: str, more: int) -> None:
        key = (watched.name, what)
        self._counts[key] = self._counts.get(key, 0) + more

    def put(self, block: Any, watched: Any, what: str, number: int, array: Any) -> None:
        session, rank = self.session, array.ndim
        key = (watched.name, what, number, array.dtype, rank)
        ident = self._ids.get(key)
        if ident is None:
            name = f"{watched.name}_{what}_{number}"
            ident = self._ids[key] = session.run.define(
                name, name, what, watched.kind, arrays.dtype_name(array), list(array.shape), True,
                output_unit_axis(block, watched.kind, rank), [], watched.collections if what == "input" else [])
        if ident != NOT_WANTED and array.size and session.run.due(ident):
            session.put_values(ident, arrays.values(array), session.sub())
