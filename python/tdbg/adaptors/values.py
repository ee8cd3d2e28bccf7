"""Passes a framework's tensors to the run: defines them, keeps their ids, and puts them in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .session import NOT_WANTED, LoopSession

NUMBERS = ("loss", "metric")      # kinds


class Entry:
    """A name that the plan wants. Ids belong to a dtype and shape; most tensors have one for the whole training."""

    __slots__ = ("name", "kind", "module_kind", "short", "unit_axis", "collections", "variable", "id", "dtype", "shape")

    def __init__(self, name: str, kind: str, module_kind: str, short: str, unit_axis: int, collections: Sequence[str],
                 variable: Any) -> None:
        self.name, self.kind, self.module_kind, self.short = name, kind, module_kind, short or name
        self.unit_axis, self.collections, self.variable = unit_axis, list(collections), variable
        self.id = self.dtype = self.shape = None


class Values:
    """:param run: the open run
    :param number_shape: of losses and metrics without an axis
    """

    def __init__(self, run: Any, number_shape: tuple[int, ...] = ()) -> None:
        self._run, self._number_shape = run, number_shape
        self._entries: dict[str, Entry | None] = {}    # name -> Entry, or None: not wanted

    def entry(self, name: str, kind: str, module_kind: str = "", short: str = "", unit_axis: int = -1,
              collections: Sequence[str] = (), variable: bool = False) -> Entry | None:
        """The Entry of `name`; None where the plan never wants it."""
        try:
            return self._entries[name]
        except KeyError:
            pass
        wanted = self._run.wants(name, kind, module_kind, 0, list(collections))
        entry = Entry(name, kind, module_kind, short, unit_axis, collections, variable) if wanted else None
        self._entries[name] = entry
        return entry

    def record(self, session: LoopSession, name: str, array: Any, collection: str) -> None:
        """`record_value` of a session whose tensors come as NumPy arrays. `array` must stay as it is: it may wait for a
        step."""
        entry = self.entry(name, "", "", name, -1, (collection,), True)
        if entry is None:
            session.say_not_kept(name, collection)
        else:
            session.soon(lambda: self.put([(entry, array)]))

    def known(self, name: str) -> Any:
        return self._entries.get(name)

    def put(self, arrays: Iterable[tuple[Entry, Any]], sub: int = 0) -> None:
        """`arrays`: [(Entry, NumPy array)]. Read during the call; what is not due is skipped by the run."""
        ids: list[int] = []
        addresses: list[int] = []
        kept: list[Any] = []
        for entry, array in arrays:
            array = np.asarray(array)           # a scalar of NumPy's has no memory of its own to point to
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            if array.shape != entry.shape or array.dtype is not entry.dtype:
                first = entry.id is None
                if first or array.dtype != entry.dtype or not entry.variable:
                    self._define(entry, array)
                elif entry.id is not None and entry.id != NOT_WANTED and array.size:
                    strides = [s // array.itemsize for s in array.strides]
                    self._run.put_ptr(entry.id, array.__array_interface__["data"][0], array.dtype.name,
                                      list(array.shape), strides, sub)
                    continue
            if entry.id is not None and entry.id != NOT_WANTED and array.size:
                ids.append(entry.id)
                addresses.append(array.__array_interface__["data"][0])
                kept.append(array)
        if ids:
            self._run.put_many(ids, addresses, sub)

    def put_untrained(self, found: Iterable[tuple[Entry, Any, bool]]) -> None:
        """`found`: [(Entry, NumPy array or None, is it unchanged?)], as Run.put_many takes them."""
        ids: list[int] = []
        addresses: list[int] = []
        unchanged: list[bool] = []
        for entry, array, same in found:
            if array is not None and (array.shape != entry.shape or array.dtype is not entry.dtype):
                self._define(entry, array)
            if entry.id is not None and entry.id != NOT_WANTED:
                ids.append(entry.id)
                addresses.append(0 if array is None else array.__array_interface__["data"][0])
                unchanged.append(same)
        if ids:
            self._run.put_many(ids, addresses, 0, 0, unchanged)

    def _define(self, entry: Entry, array: Any) -> None:
        axis = entry.unit_axis if entry.unit_axis < array.ndim else -1
        shape = list(array.shape or (self._number_shape if entry.kind in NUMBERS else ()))
        entry.id = self._run.define(entry.name, entry.short, entry.kind, entry.module_kind, array.dtype.name, shape,
                                    entry.variable, axis, [], entry.collections)
        entry.dtype, entry.shape = array.dtype, array.shape

    def due(self, names: Iterable[str]) -> bool:
        """Is any of them due in the open step?"""
        entries = (self._entries.get(name) for name in names)
        return any(e is not None and e.id is not None and e.id != NOT_WANTED and self._run.due(e.id) for e in entries)
