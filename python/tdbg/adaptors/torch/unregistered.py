"""Layers that a model keeps in a plain Python list (or tuple, or dict), where torch does not know them: `parameters()`
does not give them, so no optimizer gets them, `to()` and checkpoints leave them out, and they never change.

    topic unregistered      {"where": ["Net.blocks"], "parameters": 4, "elements": 2112}

Looked for once, before one of the first backwards. A list of one module is no mistake but the usual way to hide one (a
teacher, a loss's network), and what the loss was not computed from, or what any optimizer of the process has, is meant.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .graph import leaves

if TYPE_CHECKING:
    from .session import Session

AFTER = 5           # steps of the training: by then its optimizers are made
MOST_ITEMS = 256    # of one container
SHOWN = 8           # containers that are named


def _modules_in(value: Any) -> list[torch.nn.Module]:
    """Of exactly these classes: a class of the script's may compute what it has."""
    items: Iterable[Any] = ()
    if type(value) in (list, tuple) and len(value) <= MOST_ITEMS:
        items = value
    elif type(value) is dict and len(value) <= MOST_ITEMS:
        items = value.values()
    return [item for item in items if isinstance(item, torch.nn.Module)]


def _containers(model: torch.nn.Module, label: str) -> Iterator[tuple[str, list[torch.nn.Module]]]:
    for path, module in model.named_modules():
        for key, value in list(vars(module).items()):
            if key in ("_modules", "_parameters", "_buffers"):
                continue
            found = _modules_in(value)
            if len(found) > 1:
                yield ".".join(part for part in (label, path, key) if part), found


def of_optimizers() -> set[int]:
    """id() of what any optimizer has, also one that is still to step. Takes some tens of milliseconds."""
    return {id(parameter) for found in gc.get_objects() if torch.optim.Optimizer in type(found).__mro__
            for group in getattr(found, "param_groups", ()) for parameter in group["params"]}


class Unregistered:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True         # still to be looked for

    def give_up(self) -> None:
        self.due = False

    def look(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward of `tensors` is about to run, in a training that has made some steps."""
        self.due = False
        known: set[int] = set()
        containers: list[tuple[str, list[torch.nn.Module]]] = []
        for root in self._session.names.roots:
            if root.module is not None:
                known.update(id(parameter) for parameter, _ in root.parameters())
                containers += _containers(root.module, root.label)
        found: dict[str, dict[int, torch.Tensor]] = {}
        for where, modules in containers:
            unknown = {id(p): p for module in modules for p in module.parameters()
                       if p.requires_grad and id(p) not in known}
            if unknown:
                found[where] = unknown
        if not found:
            return
        used = {id(leaf) for leaf in leaves(tensors)} - of_optimizers()
        found = {where: these for where, these in found.items() if used & these.keys()}
        if not found:
            return
        lost = {key: p for these in found.values() for key, p in these.items() if key in used}
        self._session.context.topic("unregistered", {
            "where": list(found)[:SHOWN], "parameters": len(lost), "elements": sum(p.numel() for p in lost.values())})
