"""DeepSpeed's ZeRO, stages 1 and 2: an optimizer of flat partitions, and which pieces of them are whose.

The optimizer that steps has one tensor a group, this rank's part of all of the group's parameters laid end to end; the
model's parameters have no gradient any more when it does. DeepSpeed leaves a note on each parameter (`_hp_mapping`):
where it lies in the partition. So gradients have the parameters' names, shaped like them where all of one is here, else
flat and as a part of the whole. Weights are the model's own, which are what it computes with, of whatever type.

It also steps once for each group, with that group alone: together they are one step, of the optimizer with all its
groups. Stage 3 leaves no such note: its partitions are tensors without a name (`parameter_0`), and that is said.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..guard import say
from .names import NamedParameter, live_modules

if TYPE_CHECKING:
    from .names import Names
    from .session import Session

_MODULE = "deepspeed.runtime.zero.stage_1_and_2"


class Piece:
    """Where a parameter of the model lies in a flat partition: elements `start` to `start + count` there are those from
    `begin` on of the parameter."""

    __slots__ = ("parameter", "named", "start", "count", "begin")

    def __init__(self, parameter: torch.Tensor, named: NamedParameter, start: int, count: int, begin: int) -> None:
        self.parameter, self.named, self.start, self.count, self.begin = parameter, named, start, count, begin

    @property
    def is_whole(self) -> bool:
        return bool(self.count == self.parameter.numel())

    def layout(self) -> tuple[list[int], dict[str, list[int]]]:
        """(shape of what is here, Run.define's arguments of a part)"""
        if self.is_whole:
            return list(self.parameter.shape), {}
        return [self.count], {"whole_shape": [self.parameter.numel()], "part_begin": [self.begin]}

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """It, of the partition or of what is laid out like it (a gradient, a running average)."""
        return flat.detach().reshape(-1).narrow(0, self.start, self.count).view(self.layout()[0])


def pieces_of(parameters: list[torch.Tensor], names: Names) -> dict[int, list[Piece]]:
    """{id() of a partition: its pieces, in their order} for those of `parameters` that are partitions."""
    if "deepspeed" not in sys.modules:
        return {}
    loose = [p for p in parameters if names.named(p) is None]
    if not loose:
        return {}
    noted = [p for root in names.roots for p, _ in root.parameters() if _note(p) is not None]
    if not noted:       # attached after the engine was made: nobody has looked for the model yet
        noted = [p for m in live_modules() for p in m._parameters.values() if p is not None and _note(p) is not None]
    by_memory: dict[int, list[tuple[torch.Tensor, NamedParameter]]] = {}
    for parameter, named in zip(noted, names.resolve(noted)):
        by_memory.setdefault(_memory(_note(parameter).hp_fragment), []).append((parameter, named))
    found = {}
    for flat in loose:
        pieces = [_piece(parameter, named, flat) for parameter, named in by_memory.get(_memory(flat), ())]
        if pieces:
            found[id(flat)] = sorted(pieces, key=lambda piece: piece.start)
        elif not _said and any(name.startswith("deepspeed.runtime.zero") for name in sys.modules):
            _said.append(True)
            say(
                "DeepSpeed keeps parameters in flat partitions here and does not say which is where (ZeRO stage 3): "
                "weights and "
                "gradients are recorded as partitions, parameter_0 and so on"
            )
    return found


_said: list[bool] = []


def _note(parameter: torch.Tensor) -> Any:
    note = getattr(parameter, "_hp_mapping", None)
    return note if hasattr(note, "hp_fragment") and hasattr(note, "lp_fragment_address") else None


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _piece(parameter: torch.Tensor, named: NamedParameter, flat: torch.Tensor) -> Piece:
    note = _note(parameter)
    start = note.hp_fragment.storage_offset() - flat.storage_offset()
    return Piece(parameter, named, start, note.hp_fragment.numel(), int(note.lp_fragment_address.start))


class Turn:
    """A step that is made group by group: which one it is now, of how many, and all of the optimizer's groups."""

    __slots__ = ("number", "groups")

    def __init__(self, number: int, groups: list[dict[str, Any]]) -> None:
        self.number, self.groups = number, groups

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == len(self.groups) - 1


def patch(session: Session) -> None:
    """Puts the steps of single groups under watch, once DeepSpeed is imported. Cheap to ask again."""
    kind = getattr(sys.modules.get(_MODULE), "DeepSpeedZeroOptimizer", None)
    if kind is not None:
        session.patches.replace([kind], "_optimizer_step", lambda original: _watch(original, session))


def _watch(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def _optimizer_step(zero: Any, group_no: int, *args: Any, **kwargs: Any) -> Any:
        session.optimizers.turn = Turn(group_no, zero.optimizer.param_groups)
        try:
            return original(zero, group_no, *args, **kwargs)
        finally:
            session.optimizers.turn = None
    return _optimizer_step
