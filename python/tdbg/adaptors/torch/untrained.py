"""What no optimizer changes, at every step all the same: frozen weights, a teacher's, and buffers (running averages).

A tensor whose memory, version and mark are what they were has its last row again (Run.put_many's `unchanged`): nothing
reads it. torch counts a version up with every change in place, but not with one through `.data` or NumPy, as hand-written
averages of weights make it. For those there is the mark, a hash of all of a tensor of 4 KiB, and of 64 pieces of 64 bytes
spread over a larger one; and every LOOK_EVERY-th step each tensor is looked at whatever they say.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from tdbg import _capture

from .names import NamedParameter
from .params import NOT_WANTED, local, put_odd, session_members
from .shards import part_of

_data_ptr = torch.Tensor.data_ptr
_fingerprint = _capture.fingerprint

#: A change that neither version nor mark shows is seen so many steps late at most.
LOOK_EVERY = 64


class _Slot:
    """A place in a model where such a tensor is. Holds no tensor: a model that the script drops must be freed."""

    __slots__ = ("owner", "table", "key", "named", "id", "spec", "plain", "seen", "turn")

    def __init__(self, owner: weakref.ref, table: str, key: str, named: NamedParameter, turn: int) -> None:
        self.owner, self.table, self.key, self.named, self.turn = owner, table, key, named, turn
        self.id, self.spec, self.plain = NOT_WANTED, None, False
        self.seen: Any = None           # what was last seen of it, to be compared

    def whole(self) -> torch.Tensor | None:
        owner = self.owner()
        return None if owner is None else owner.__dict__[self.table].get(self.key)


def lies_flat(tensor: torch.Tensor) -> bool:
    """Host memory in C order whose bytes mean what they say, whatever class a library made of it."""
    return (tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
            and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
            and not hasattr(tensor, "__tensor_flatten__"))


def is_constant(buffer: torch.Tensor, module: torch.nn.Module, key: str) -> bool:
    """Is it infinite by design: a mask, which attention adds to scores that must not count? On a device nobody looks, which
    would wait for it: what is no part of the model's state is taken for one there."""
    if buffer.device.type != "cpu":
        return key in module._non_persistent_buffers_set
    return bool((buffer == -torch.inf).any()) and not bool((buffer == torch.inf).any() | buffer.isnan().any())


class Untrained:
    """Of all models that the session knows."""

    def __init__(self, session) -> None:
        self.session = session
        self._slots: dict[tuple, _Slot] = {}
        self._key: tuple = ()
        self._step = -1                 # in which they were last put
        self._calls = 0

    def capture(self, sub: int = 0) -> None:
        """All of them as they are now; once in a step, whoever calls first."""
        session = self.session
        step = session.steps_closed
        if self._step == step:
            return
        self._step = step
        self._calls += 1
        self._refresh()
        self._put(list(self._slots.values()), sub)

    def capture_end(self) -> None:
        """The record at the end of a run, of what is in no optimizer's."""
        taken = {id(p) for entry in self.session.optimizers.with_tensors() for p in entry.params}
        self._put([slot for slot in self._slots.values() if id(slot.whole()) not in taken], 0, at_end=True)

    # Which there are ----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        session = self.session
        key = (len(session.names.roots), *(e.shape_key for e in session.optimizers.entries.values()))
        if key == self._key and self._calls % LOOK_EVERY:
            return
        self._key = key
        members, known, self._slots = session_members(session), self._slots, {}
        for root in session.names.roots:
            for owner, table, key, tensor, named in root.tensors():
                # Where a step is a forward, all parameters are taken as it begins.
                if table == "_parameters" and (id(tensor) in members or session.forward is not None):
                    continue
                place = (id(owner), table, key)
                slot = known.get(place)
                if slot is None or slot.owner() is not owner or slot.named.name != named.name:
                    slot = _Slot(weakref.ref(owner), table, key, named, len(self._slots))
                self._slots[place] = slot

    def _define(self, slot: _Slot, tensor: torch.Tensor) -> None:
        """What there is of the slot now; another definition where its type or shape is another."""
        session, named = self.session, slot.named
        slot.spec = (tensor.dtype, tensor.shape, tensor.device)
        slot.id, slot.seen = NOT_WANTED, None
        if session.unread(named.name, tensor) or not tensor.numel():
            return
        module = slot.owner()
        if named.kind == "buffer" and is_constant(tensor, module, slot.key):
            return
        slot.id = session.define(named.name, named.short_name, named.kind, named.module_kind, tensor.dtype, tensor.shape,
                                 False, named.unit_axis, named.aliases, **part_of(slot.whole()))
        slot.plain = not session.on_device(tensor)

    # Now ----------------------------------------------------------------------------------------------------

    def _put(self, slots: list[_Slot], sub: int, at_end: bool = False) -> None:
        fast: list[_Slot] = []
        tensors: list[torch.Tensor] = []
        for slot in slots:
            tensor = local(slot.whole())
            if tensor is None:
                continue
            if slot.spec is None or slot.spec != (tensor.dtype, tensor.shape, tensor.device):
                self._define(slot, tensor)
            if slot.id == NOT_WANTED:
                continue
            if slot.plain and lies_flat(tensor):
                fast.append(slot)
                tensors.append(tensor)
            else:
                self._put_odd(slot, tensor, sub)
        if not fast:
            return
        pointers = list(map(_data_ptr, tensors))
        turn = self._calls % LOOK_EVERY
        unchanged = []
        for slot, tensor, pointer in zip(fast, tensors, pointers):
            seen = (pointer, self._version(tensor), _fingerprint(pointer, tensor.nbytes))
            unchanged.append(seen == slot.seen and slot.turn % LOOK_EVERY != turn)
            slot.seen = seen
        ids = [slot.id for slot in fast]
        if at_end:
            self.session.port.put_many(ids, pointers, sub, 0)
        else:
            self.session.port.put_many(ids, pointers, sub, 0, unchanged)

    @staticmethod
    def _version(tensor: torch.Tensor) -> int:
        return -1 if tensor.is_inference() else tensor._version     # one made in inference mode has none

    def _put_odd(self, slot: _Slot, tensor: torch.Tensor, sub: int) -> None:
        session = self.session
        if session.on_device(tensor) and tensor.layout is torch.strided:
            seen = (tensor.data_ptr(), self._version(tensor))
            unchanged = seen == slot.seen and slot.turn % LOOK_EVERY != self._calls % LOOK_EVERY
            slot.seen = seen
            session.put_device([slot.id], [tensor], sub, 0, unchanged)
        else:
            put_odd(session, slot.id, tensor, sub, 0, slot.named.name)
