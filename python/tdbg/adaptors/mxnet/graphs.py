"""Blocks inside hybridized ones. Such a block runs a graph, and those below it are never called with arrays again.

But they were called once: while the graph was made, with symbols. Their symbols' names are those of the graph's nodes,
so which node is which block's input and output is known exactly. The values come from the graph's monitor, which MXNet
can set on a compiled graph but not take away again: in steps in which something is due, a second copy of the graph
runs, the one with the monitor. It has no static memory (the monitor sees next to nothing there), and runs the same
operators.
"""

from __future__ import annotations

import collections
import ctypes
import re
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mxnet.base import NDArrayHandle, py_str
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ..guard import say
from ..structure import every
from . import arrays

if TYPE_CHECKING:
    from mxnet.gluon import Block

    from .session import Session


def symbols(value: Any) -> Any:
    return every(Symbol, value, dicts=False)


def _spellings(entry: str) -> Iterator[str]:
    """The monitor numbers the outputs of operators that do not name them."""
    yield entry
    match = re.fullmatch(r"(.*)_output(\d*)", entry)
    if match:
        yield f"{match.group(1)}_{match.group(2) or 0}"


class _Graph:
    """What is known of one block's graph."""

    def __init__(self) -> None:
        # (symbol, reference to the block, "input" or "output", k)
        self.traced: list[tuple[Any, Any, str, int]] = []
        self.counts: dict[tuple[int, str], int] = {}  # (id of the block, what) -> how many in one run of the graph
        # (node's output, which node of this name) -> [(block, what, k)]
        self.places: dict[tuple[str, int], list[tuple[Any, str, int]]] | None = None
        self.unclear: list[Any] = []    # blocks that cannot be told apart
        self.plain: Any = None
        self.monitored: Any = None

    def add(self, block: Block, what: str, value: Any) -> None:
        key = (id(block), what)
        for symbol in symbols(value):
            number = self.counts.get(key, 0)
            self.counts[key] = number + len(symbol.list_outputs())
            self.traced.append((symbol, weakref.ref(block), what, number))

    def resolve(self, whole: Any) -> None:
        """Once the graph is made. A block that is called twice in it has two nodes of one name; which is which is known
        where one is computed from the other: it then has the other below it."""
        self.places = {}
        total = collections.Counter(whole.get_internals().list_outputs())
        for symbol, ref, what, number in self.traced:
            for k, entry in enumerate(symbol.list_outputs()):
                which = 0
                if total[entry] > 1:
                    which = symbol.get_internals().list_outputs().count(entry) - 1
                self.places.setdefault((entry, which), []).append((ref, what, number + k))
        self.traced = []
        for entry, count in total.items():
            if count > 1 and not all((entry, which) in self.places for which in range(count)):
                for which in range(count):
                    self.unclear += [ref for ref, _, _ in self.places.pop((entry, which), ())]


class Graphs:
    def __init__(self, session: Session) -> None:
        self.session = session
        self._graphs: weakref.WeakKeyDictionary[Any, _Graph] = weakref.WeakKeyDictionary()
        # the places that the monitor looks up, while a graph runs
        self._running: dict[tuple[str, int], list[Any]] | None = None
        self._fired: dict[str, int] = {}    # how many nodes of a name have run in it
        self._said: weakref.WeakSet[Any] = weakref.WeakSet()

    def entered(self, block: Block) -> None:
        """`block` is called with arrays: if it makes a graph in there, it is a new one."""
        if not getattr(block, "_cached_graph", True):
            self._graphs[block] = _Graph()

    def traced(self, owner: Any, block: Block, args: Any, out: Any) -> None:
        """`block` was called with symbols while the graph of `owner` was made."""
        graph = self._graphs.get(owner)
        if graph is not None:
            graph.add(block, "input", args)
            graph.add(block, "output", out)

    def begins(self, block: Block, args: Any) -> _Graph | None:
        """A hybridized block is about to run its graph. What to hand to `ended`, or None."""
        if self._running is not None:
            return None
        if block._cached_op is None:
            inputs = list(arrays.flat(args))
            with inputs[0].context:
                block._build_cache(*args)                # what the call itself would do first
        graph = self._graphs.get(block)
        if graph is None:
            self._unseen(block)
            return None
        if graph.places is None:
            graph.resolve(block._cached_graph[1])
        wanted = self._wanted(graph)
        if any(self._is_wanted(ref) for ref in graph.unclear):
            self._lost(
                block, "it calls a block several times, side by side: inside its graph those cannot be told apart"
            )
        if not wanted:
            return None
        if getattr(block, "_backend", None):
            self._lost(block, "its graph was handed to a backend: blocks inside it are not seen")
            return None
        if graph.plain is not block._cached_op:
            self._build(block, graph, args)
        self._inputs(wanted, args)
        self._running, self._fired = wanted, {}
        block._cached_op = graph.monitored
        return graph

    def ended(self, block: Block, graph: _Graph) -> None:
        self._running = None
        if block._cached_op is graph.monitored:
            block._cached_op = graph.plain
        tensors = self.session.blocks
        for ref_, what, number in self._last(graph):
            watched = tensors.watched(ref_)
            if watched is not None and what in watched.wants:
                tensors.count(watched, what, number)

    @staticmethod
    def _last(graph: _Graph) -> list[tuple[Any, str, int]]:
        totals: dict[tuple[int, str], int] = {}
        blocks: dict[tuple[int, str], tuple[Any, str]] = {}
        for places in (graph.places or {}).values():
            for ref, what, _ in places:
                block = ref()
                if block is not None:
                    key = (id(block), what)
                    totals[key], blocks[key] = graph.counts[key], (block, what)
        return [(*blocks[key], total) for key, total in totals.items()]

    def _wanted(self, graph: _Graph) -> dict[tuple[str, int], list[Any]]:
        """{(spelling of a node's output, which): [(block, watched, what, number in the step)]}."""
        tensors = self.session.blocks
        wanted: dict[tuple[str, int], list[Any]] = {}
        for (entry, which), places in (graph.places or {}).items():
            rows = []
            for ref, what, number in places:
                block = ref()
                watched = None if block is None else tensors.watched(block)
                if watched is not None and what in watched.wants:
                    rows.append((block, watched, what, tensors.number(watched, what) + number))
            if rows:
                for spelling in _spellings(entry):
                    wanted[spelling, which] = rows
        return wanted

    def _build(self, block: Block, graph: _Graph, args: Any) -> None:
        plain, flags = block._cached_op, block._flags
        static = ("static_alloc", "static_shape")
        try:
            block._cached_op = None
            block._flags = [f for f in flags if f[0] not in static]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")         # said when the first one was made
                block._build_cache(*args)
            graph.monitored = block._cached_op
        finally:
            block._cached_op, block._flags = plain, flags
        graph.plain = plain
        graph.monitored._register_op_hook(self._seen, False)

    def _inputs(self, wanted: dict[tuple[str, int], list[Any]], args: Any) -> None:
        """What the graph's own inputs are to the blocks inside it; the monitor shows outputs only."""
        inputs = list(arrays.flat(args))
        names = ["data"] if len(inputs) == 1 else [f"data{i}" for i in range(len(inputs))]
        for name, array in zip(names, inputs):
            for block, watched, what, number in wanted.pop((name, 0), ()):
                self.session.blocks.put(block, watched, what, number, array)

    def _seen(self, name: Any, operator: Any, handle: Any) -> None:
        """Called by MXNet for each operator's output."""
        array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)     # ours to free, wanted or not
        if self._running is None:
            return                          # a backward pass through the monitored graph
        name = py_str(name)
        which = self._fired[name] = self._fired.get(name, -1) + 1
        try:
            for block, watched, what, number in self._running.get((name, which), ()):
                self.session.blocks.put(block, watched, what, number, array)
        except BaseException as error:
            self.session.failed_inside(f"output {name} of a graph", error)

    def _is_wanted(self, ref: Any) -> bool:
        block = ref()
        return block is not None and self.session.blocks.watched(block) is not None

    def _unseen(self, block: Block) -> None:
        if any(self.session.blocks.watched(b) for b in block._children.values()):
            self._lost(
                block,
                "its graph was made before tdbg was attached: blocks inside it are not seen; attach earlier, "
                "or call hybridize() again",
            )

    def _lost(self, block: Block, why: str) -> None:
        if block not in self._said:
            self._said.add(block)
            say(f"{block.name}: {why}")
            self.session.lost("unsupported", 1, f"blocks inside {block.name}")
