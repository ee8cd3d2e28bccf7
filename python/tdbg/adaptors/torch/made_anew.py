"""Layers that are made where they are used, in `forward` say: others at each step, which no optimizer ever gets.

    topic made_anew      {"layers": [{"kind": "linear layer", "shape": [16, 32]}], "steps": 5}

Looked for in the graph of what is differentiated, from the second step on; where that has no such layer, no more. It
has one where a linear layer or a convolution behind others has a weight that is an nn.Parameter, and is in none of the
models and in no optimizer: for LOOKS steps in a row one of that shape, and never one that was seen before. Held weakly.

Copies are meant: of the layers of a model in which no layer of its own is used (meta-learning, federated clients), of a
layer whose own weight is not used beside it, and of a weight as it is now (a judge that is held still).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .graph import TooLarge, nodes
from .ranks import is_distributed
from .unregistered import of_optimizers

if TYPE_CHECKING:
    from .session import Session

LOOKS = 5
MOST = 16       # weights of one step

#: Where a node has its input and its weight.
_LAYERS = {"Addmm": (1, 2, "linear layer"), "Mm": (0, 1, "linear layer"), "Linear": (0, 1, "linear layer"),
           "Convolution": (0, 1, "convolution")}
_PASS_ON = ("T", "Transpose", "ToCopy")

Kind = tuple[str, tuple[int, ...]]      # what layer, its weight's shape


def _name(node: Any) -> str:
    name: str = node.name()
    return name.partition("Backward")[0]


def _leaf(node: Any) -> torch.Tensor | None:
    """The leaf that arrives here, transposed or in another type."""
    for _ in range(4):
        if node is None:
            return None
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            return leaf if isinstance(leaf, torch.Tensor) else None
        if _name(node) not in _PASS_ON:
            return None
        node = node.next_functions[0][0]
    return None


def _weights(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Iterator[tuple[str, bool, torch.Tensor]]:
    """(what layer, is it behind others, its weight), of those that what is differentiated was computed with."""
    for node in nodes(tensors):
        place = _LAYERS.get(_name(node))
        if place is None or len(node.next_functions) <= place[1]:
            continue
        leaf = _leaf(node.next_functions[place[1]][0])
        if leaf is not None:
            behind = node.next_functions[place[0]][0]
            yield place[2], behind is not None and not hasattr(behind, "variable"), leaf


def _is_copy(leaf: torch.Tensor, known: torch.Tensor) -> bool:
    """Has it the same numbers? Taken for granted of what is on a device, which is not waited for."""
    if leaf.device.type != "cpu" or known.device.type != "cpu":
        return True
    return bool(torch.equal(leaf.detach(), known.detach()))


class _Found:
    """The weights of one kind that a step has."""

    __slots__ = ("weights", "again", "meant")

    def __init__(self) -> None:
        self.weights: list[weakref.ref[torch.Tensor]] = []
        self.again = False      # one of them was seen in a step before
        self.meant = 0          # how many are copies, or an optimizer's


class MadeAnew:
    """Of one session. `due`: this step is looked at."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0
        self._found: dict[Kind, _Found] = {}            # in the step at hand
        self._reached: set[int] = set()                 # id()s of the models' weights that are used in it
        self._before: list[weakref.ref[torch.Tensor]] = []      # weights of the steps before
        self._in_a_row: dict[Kind, int] = {}
        self._stepped: set[int] | None = None           # id()s of what optimizers have

    def give_up(self) -> None:
        self.due = False
        self._found, self._before = {}, []

    def _known(self) -> dict[int, torch.Tensor]:
        modules = (root.module for root in self._session.names.roots)
        return {id(p): p for module in modules if module is not None for p in module.parameters()}

    def look(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward of `tensors` is about to run."""
        if self._steps == 0:
            return
        known = self._known()
        with contextlib.suppress(TooLarge):
            for kind, behind, leaf in _weights(tensors):
                if id(leaf) in known:
                    self._reached.add(id(leaf))
                elif behind and type(leaf) is torch.nn.Parameter and leaf.dim() > 1:
                    self._see((kind, tuple(leaf.shape)), leaf, known)

    def _see(self, kind: Kind, leaf: torch.Tensor, known: dict[int, torch.Tensor]) -> None:
        found = self._found.setdefault(kind, _Found())
        if len(found.weights) == MOST or any(ref() is leaf for ref in found.weights):
            return
        found.weights.append(weakref.ref(leaf))
        found.again |= any(ref() is leaf for ref in self._before)
        if not found.again and self._in_a_row.get(kind, 0) == LOOKS - 1:
            if self._stepped is None:
                self._stepped = of_optimizers()
            found.meant += id(leaf) in self._stepped or any(_is_copy(leaf, p) for p in _alike(kind, known))

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        self._steps += 1
        if self._steps == 1:
            return
        found, self._found = self._found, {}
        reached, self._reached = self._reached, set()
        new = {kind: one for kind, one in found.items() if not one.again} if reached else {}
        self._in_a_row = {kind: self._in_a_row.get(kind, 0) + 1 for kind in new}
        self._before += [ref for one in found.values() for ref in one.weights]
        if LOOKS in self._in_a_row.values():
            self._tell({kind: new[kind] for kind, steps in self._in_a_row.items() if steps == LOOKS}, reached)
        if not new or self._steps > LOOKS or is_distributed():
            self.give_up()

    def _tell(self, new: dict[Kind, _Found], reached: set[int]) -> None:
        known = self._known()
        layers = [{"kind": kind[0], "shape": list(kind[1])} for kind, found in new.items()
                  if all(id(p) in reached for p in _alike(kind, known))
                  for _ in range(len(found.weights) - found.meant)]
        if layers:
            self._session.context.topic("made_anew", {"layers": layers, "steps": LOOKS})


def _alike(kind: Kind, known: dict[int, torch.Tensor]) -> list[torch.Tensor]:
    return [p for p in known.values() if p.requires_grad and tuple(p.shape) == kind[1]]
