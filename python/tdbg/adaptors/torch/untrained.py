"""What no optimizer changes, at every step all the same: frozen weights, a teacher's, buffers (running averages), and
of an optimizer's own parameters those that have no gradient at this step.

A tensor whose memory, version and mark are what they were has its last row again (Run.put_many's `unchanged`): nothing
reads it. torch counts a version up with every change in place, but not with one through `.data` or NumPy, as
hand-written averages of weights make it. For those there is the mark, a hash of all of a tensor of 4 KiB, and of 64
pieces of 64 bytes spread over a larger one; and every LOOK_EVERY-th step each tensor is looked at whatever they say.

Plain host tensors are compared by one call of `_capture.look_again` (0.5 us each, the row included, against 1.7); what
it does not read, and everything where torch has no DLPack table, goes through `_put_others`.

Of these tensors the training may read a part, or nothing. So what lies in a mapped file is read only where the kernel
says that it can be: another process may have cut the file short. Of other memory its ends are asked for (0.6 us), since
a script may protect a tensor while it is not used. What can no longer be read is told once.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from .. import mapped
from ..session import NOT_WANTED
from .names import NamedParameter
from .origin.values import is_there, readable
from .params import READER, local, put_odd, session_members
from .shards import part_of

if TYPE_CHECKING:
    from .session import Session

_data_ptr = torch.Tensor.data_ptr

_PLAIN = (torch.Tensor, torch.nn.Parameter)

#: A change that neither version nor mark shows is seen so many steps late at most.
LOOK_EVERY = 64
SAID_AGAIN = 1      # of Run.put_many's `unchanged`: the last row again, and nothing is read


class _Slot:
    """A place where such a tensor is: in a table of a module, or (no `table`) the parameter `owner` itself. Holds no
    tensor: a model that the script drops must be freed."""

    __slots__ = ("owner", "table", "key", "named", "id", "spec", "plain", "varies", "seen", "turn", "mark",
                 "mapped")

    def __init__(self, owner: weakref.ref[Any], table: str, key: str, named: NamedParameter, turn: int) -> None:
        self.owner, self.table, self.key, self.named, self.turn = owner, table, key, named, turn
        self.id, self.plain = NOT_WANTED, False
        self.spec: tuple[Any, Any, Any] | None = None
        self.varies = False             # its shape does
        self.mapped = False             # it lies where another process may take its memory away
        self.seen: Any = None    # what was last seen of it, to be compared
        self.mark = _capture.TensorMark(turn)       # the same, where `look_again` compares

    def whole(self) -> torch.Tensor | None:
        owner = self.owner()
        if owner is None or not self.table:
            return owner
        return owner.__dict__[self.table].get(self.key)


def lies_flat(tensor: torch.Tensor) -> bool:
    """Host memory in C order whose bytes mean what they say, whatever class a library made of it."""
    return (tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
            and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
            and not hasattr(tensor, "__tensor_flatten__"))


def is_emptied(tensor: torch.Tensor) -> bool:
    """Has somebody taken its memory and left its shape, as offloading libraries do? There is nothing to read then."""
    return (tensor.layout is torch.strided and not hasattr(tensor, "__tensor_flatten__")
            and not tensor.untyped_storage().nbytes())


def is_constant(buffer: torch.Tensor, module: torch.nn.Module, key: str) -> bool:
    """Is it infinite by design: a mask, which attention adds to scores that must not count? On a device nobody looks,
    which would wait for it: what is no part of the model's state is taken for one there."""
    if buffer.device.type != "cpu":
        return key in module._non_persistent_buffers_set
    values = readable(buffer)
    return values is not None and bool((values == -torch.inf).any()) and not bool(
        (values == torch.inf).any() | values.isnan().any())


class Untrained:
    """Of all models that the session knows."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._slots: dict[tuple[int, str, str], _Slot] = {}
        self._resting: dict[int, _Slot] = {}    # by id() of a parameter that an optimizer has
        self._key: tuple[Any, ...] = ()
        self._step = -1                 # in which they were last put
        self._calls = 0
        self._in_files: set[str] = set()    # names of what lies in files
        self._gone: set[str] = set()        # names of what can no longer be read
        self._mappings: mapped.Mappings | None = None   # since the last `_refresh`, where asked

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
        taken = {id(p) for entry in self.session.optimizers.with_tensors() for p in entry.members()}
        self._put([slot for slot in self._slots.values() if id(slot.whole()) not in taken], 0, at_end=True)

    def slots_of(self, parameters: list[tuple[torch.nn.Parameter, NamedParameter]]) -> list[_Slot]:
        """For `put`. Of a parameter that had one before the same, which knows what was seen of it."""
        slots = []
        for parameter, named in parameters:
            slot = self._resting.get(id(parameter))
            if slot is None or slot.owner() is not parameter or slot.named.name != named.name:
                turn = (self._calls - 1 - len(self._resting)) % LOOK_EVERY      # all have been looked at just now
                slot = self._resting[id(parameter)] = _Slot(weakref.ref(parameter), "", "", named, turn)
            slots.append(slot)
        return slots

    def put(self, slots: list[_Slot], sub: int) -> None:
        self._put(slots, sub)

    # Which there are ----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        session = self.session
        key = (len(session.names.roots), *(e.shape_key for e in list(session.optimizers.entries.values())))
        if key == self._key and self._calls % LOOK_EVERY:
            return
        self._key, self._mappings = key, None
        members, known, self._slots = session_members(session), self._slots, {}
        for root in session.names.roots:
            for owner, table, own, tensor, named in root.tensors():
                # Where a step is a forward, all parameters are taken as it begins.
                if table == "_parameters" and (id(tensor) in members or session.forward is not None):
                    continue
                place = (id(owner), table, own)
                slot = known.get(place)
                if slot is None or slot.owner() is not owner or slot.named.name != named.name:
                    slot = _Slot(weakref.ref(owner), table, own, named, len(self._slots))
                elif slot.spec is not None and slot.mapped is not self._is_mapped(tensor):
                    slot.spec = None        # its memory is another: defined anew
                self._slots[place] = slot

    def _is_mapped(self, tensor: torch.Tensor) -> bool:
        if type(tensor) not in _PLAIN or not lies_flat(tensor):
            return False
        if self._mappings is None:
            self._mappings = mapped.Mappings()
        return _data_ptr(tensor) in self._mappings

    def _define(self, slot: _Slot, tensor: torch.Tensor) -> None:
        """What there is of the slot now; another definition where its type is another. A shape that has changed once is
        expected to do so again: a queue that grows is not a tensor for each of its lengths."""
        before, slot.spec = slot.spec, (tensor.dtype, tensor.shape, tensor.device)
        same = before is not None and before[::2] == slot.spec[::2] and len(before[1]) == tensor.dim()
        if slot.varies and same and slot.id != NOT_WANTED:
            return
        slot.seen, slot.varies = None, same
        slot.plain = not same and not self.session.on_device(tensor)
        slot.mapped = self._is_mapped(tensor)
        slot.id = self._id_of(slot, tensor)
        if slot.varies:
            slot.mark = _capture.TensorMark(slot.turn)      # which knows one shape
        elif READER is not None and ((slot.plain and not slot.mapped) or slot.id == NOT_WANTED):
            slot.mark.expect(READER, tensor, slot.id)

    def _id_of(self, slot: _Slot, tensor: torch.Tensor) -> int:
        session, named = self.session, slot.named
        if session.unread(named.name, tensor):
            return NOT_WANTED
        if not tensor.numel() or is_emptied(tensor):
            slot.spec = None        # its earlier values say nothing of the later ones
            return NOT_WANTED
        if self._lies_in_a_file(named.name, tensor) or (
                slot.mapped or self._is_protected(tensor)) and self._is_gone(slot, tensor):
            return NOT_WANTED
        if named.kind == "buffer" and is_constant(tensor, slot.owner(), slot.key):
            return NOT_WANTED
        return session.define(named.name, named.short_name, named.kind, named.module_kind, tensor.dtype, tensor.shape,
                              slot.varies, named.unit_axis, named.aliases,
                              **({} if slot.varies else part_of(slot.whole())))

    def _lies_in_a_file(self, name: str, tensor: torch.Tensor) -> bool:
        """A large frozen table, of which a step touches a few rows: a look at it would read the file. Said once."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or self.session.names_tensor(name):
            return False
        size = tensor.numel() * tensor.element_size()
        path = None
        if size >= mapped.LARGE:
            self._mappings = self._mappings or mapped.Mappings()
            path = self._mappings.file_behind(_data_ptr(tensor))
        if path is not None and name not in self._in_files:
            self._in_files.add(name)
            self.session.lost("unsupported", 1, f"{name}: {mapped.words(path, size)}")
        return path is not None

    # Now ----------------------------------------------------------------------------------------------------

    def _put(self, slots: list[_Slot], sub: int, at_end: bool = False) -> None:
        tensors: list[Any] = []
        for slot in slots:
            tensor = slot.whole()
            tensors.append(tensor if type(tensor) in _PLAIN else local(tensor))
        others = self._put_plain(slots, tensors, sub, at_end)
        if not others:
            return
        fresh, odd = [], []
        for i in others:
            slot, tensor = slots[i], tensors[i]
            if tensor is None:
                continue
            if slot.spec == (tensor.dtype, tensor.shape, tensor.device):
                odd.append((slot, tensor))
            else:
                self._define(slot, tensor)
                fresh.append((slot, tensor))
        if fresh:
            others = self._put_plain([slot for slot, _ in fresh], [tensor for _, tensor in fresh], sub, at_end)
            odd += [fresh[i] for i in others]
        self._put_others(odd, sub, at_end)

    def _put_plain(self, slots: list[_Slot], tensors: list[Any], sub: int, at_end: bool) -> Sequence[int]:
        """Plain host tensors like those that were defined. Returns the positions of all others."""
        if READER is None:
            return range(len(slots))
        others: list[int]
        ids, pointers, unchanged, others = _capture.look_again(
            READER, [slot.mark for slot in slots], tensors, self._calls, LOOK_EVERY)
        self._put_flat(ids, pointers, unchanged, sub, at_end)
        return others

    def _put_flat(self, ids: list[int], pointers: list[int], unchanged: list[int], sub: int, at_end: bool) -> None:
        if not ids:
            return
        if at_end:
            self.session.port.put_many(ids, pointers, sub, 0)
        else:
            self.session.port.put_many(ids, pointers, sub, 0, unchanged)

    def _put_others(self, given: list[tuple[_Slot, torch.Tensor]], sub: int, at_end: bool) -> None:
        """What only torch itself can read, or everything where there is no READER."""
        ids, pointers, unchanged = [], [], []
        turn = self._calls % LOOK_EVERY
        for slot, tensor in given:
            if slot.id == NOT_WANTED or is_emptied(tensor):
                continue
            if slot.mark.forget():
                slot.seen = None        # the row that would be repeated is that of another tensor
            if not slot.plain or not lies_flat(tensor):
                self._put_odd(slot, tensor, sub)
                continue
            pointer = _data_ptr(tensor)
            mark = _capture.fingerprint_if_there(pointer, tensor.nbytes)
            seen = (pointer, self._version(tensor), mark)
            same = seen == slot.seen
            again = _capture.WORTH_A_LOOK if same and slot.turn % LOOK_EVERY == turn else int(same)
            slot.seen = seen
            if slot.mapped and mark is not None and again == SAID_AGAIN and not self._is_read(slot.id, at_end):
                pointer = 0
            elif (slot.mapped or mark is None) and self._is_gone(slot, tensor):
                slot.seen = None
                continue
            ids.append(slot.id)
            pointers.append(pointer)
            unchanged.append(again)
        self._put_flat(ids, pointers, unchanged, sub, at_end)

    @staticmethod
    def _is_protected(tensor: torch.Tensor) -> bool:
        return (type(tensor) in _PLAIN and lies_flat(tensor)
                and _capture.fingerprint_if_there(_data_ptr(tensor), tensor.nbytes) is None)

    def _is_read(self, ident: int, at_end: bool) -> bool:
        """Is a tensor read even if it is what it was?"""
        return at_end or self.session.port is not self.session.run or self.session.raw_due(ident)

    def _is_gone(self, slot: _Slot, tensor: torch.Tensor) -> bool:
        """Can it no longer be read? Said once."""
        if is_there(tensor):
            return False
        if slot.named.name not in self._gone:
            self._gone.add(slot.named.name)
            self.session.lost("unsupported", 1, f"{slot.named.name}: {mapped.GONE}")
        return True

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
            slot.seen = None
            put_odd(session, slot.id, tensor, sub, 0, slot.named.name)
