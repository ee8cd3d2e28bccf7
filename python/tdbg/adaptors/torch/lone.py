"""Parameters that stand alone: neither a model nor an optimizer has them, although the loss depends on them. So those
in a plain list, which `parameters()` does not give, and one whose copy is kept: `nn.Parameter(...).to(device)`.

    topic lone_parameters      {"where": ["Net.scales"], "shapes": [[8], [8]], "elements": 16}

Looked for twice, in the third step and LATER steps on, and the second time only if there was one in the first: an
nn.Parameter that is the same one still, with the same numbers, and with a gradient that the script has not taken.
`where` is an attribute of a model that has one, as far as there is. Meant are anchors (what a model was before): of
what has the shape of any parameter of the models nothing is said, nor of what is on a device, whose numbers are not
waited for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from .graph import leaves
from .names import live_modules
from .params import is_plain
from .ranks import is_distributed
from .unregistered import MOST_ITEMS, of_optimizers

if TYPE_CHECKING:
    from .session import Session

FIRST = 2
LATER = 10
MOST = 64       # parameters
SHOWN = 8       # of their shapes, and of places


def _mark(parameter: torch.Tensor) -> tuple[int, int]:
    """Of a part of its numbers, and of how often it was written to."""
    detached = parameter.detach()
    return _capture.fingerprint(detached.data_ptr(), detached.numel() * detached.element_size()), parameter._version


def _places(model: torch.nn.Module, label: str, ids: set[int]) -> Iterator[str]:
    """Attributes that are, or hold, one of these."""
    for path, module in model.named_modules():
        for key, value in list(vars(module).items()):
            items: Any = (value,)
            if type(value) in (list, tuple, dict) and len(value) <= MOST_ITEMS:
                items = value.values() if type(value) is dict else value
            if key not in ("_modules", "_parameters", "_buffers") and any(id(item) in ids for item in items):
                yield ".".join(part for part in (label, path, key) if part)


class LoneParameters:
    """Of one session. `due`: it is still looked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], tuple[int, int]]] = {}      # by id()
        self._found: dict[int, weakref.ref[torch.Tensor]] = {}

    def give_up(self) -> None:
        self.due = False
        self._seen, self._found = {}, {}

    def look(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward of `tensors` is about to run."""
        if self._steps == FIRST:
            self._look_first(tensors)
        elif self._steps == FIRST + LATER:
            self._look_again(tensors)

    def _look_first(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        known = {p.shape for root in self._session.names.roots if root.module is not None
                 for p in root.module.parameters()}
        for leaf in leaves(tensors):
            if type(leaf) is not torch.nn.Parameter or leaf.shape in known:
                continue
            if len(self._seen) < MOST and leaf.numel() and is_plain(leaf.detach()):
                self._seen[id(leaf)] = weakref.ref(leaf), _mark(leaf)

    def _look_again(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        for leaf in leaves(tensors):
            ref, mark = self._seen.get(id(leaf), (None, None))
            parameter = None if ref is None else ref()
            if ref is None or parameter is None or parameter is not leaf:
                continue
            if parameter.grad is not None and _mark(parameter) == mark:
                self._found[id(leaf)] = ref

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        self._steps += 1
        if self._steps == FIRST + 1 and (not self._seen or is_distributed()):     # shards are of its own making
            self.give_up()
        elif self._steps == FIRST + LATER + 1:
            self._tell()
            self.give_up()

    def _tell(self) -> None:
        if not self._found:
            return
        had = of_optimizers().union(id(p) for module in live_modules() for p in module._parameters.values())
        found = [p for key, ref in self._found.items() if (p := ref()) is not None and key not in had]
        if not found:
            return
        ids = set(map(id, found))
        where = [place for root in self._session.names.roots if root.module is not None
                 for place in _places(root.module, root.label, ids)]
        self._session.context.topic("lone_parameters", {
            "where": where[:SHOWN], "parameters": len(found), "shapes": [list(p.shape) for p in found[:SHOWN]],
            "elements": sum(p.numel() for p in found)})
