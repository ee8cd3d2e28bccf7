"""What of a graph can be had beside a run of a session without making that run another one.

A tensor that the run computes anyway is fetched with it. One that it does not needs more operations: they are let run
if they leave nothing behind (no draw from a generator, no element of a dataset, no assignment), need nothing that is
not fed and, where the run changes variables, read none: what they would read, nobody can say. Those that are made of
variables and feeds alone are had from a run of their own before.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_HOLDERS = {"VarHandleOp", "VariableV2", "Variable"}            # of a variable
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "IsVariableInitialized"}
_CHOOSES = {"Switch", "RefSwitch", "_SwitchN"}                  # the outputs not chosen have no value, nor what follows
_MEETS = {"Merge", "RefMerge"}
_RAISES = {"CheckNumerics", "CheckNumericsV2", "EnsureShape"}   # on purpose
_KEPT = 64                                                      # signatures of runs per graph

#: Graph -> _Outline
_outlines: weakref.WeakKeyDictionary[Any, _Outline] = weakref.WeakKeyDictionary()
_harmless: dict[str, bool] = {}     # type of an operation -> does it leave nothing behind?


class Split:
    """Of the tensors asked for, by name: `beside` are fetched with the run, `computed` are those of them that it
    computes anyway; `before` are fetched by a run of their own before it, with the same feeds; the rest are not to be
    had."""

    def __init__(self) -> None:
        self.beside: set[str] = set()
        self.computed: set[str] = set()
        self.before: set[str] = set()


def split(graph: Any, fetches: Any, feeds: Any, tensors: Iterable[Any]) -> Split:
    """:param fetches, feeds: of the run, as given to it
    :param tensors: of the graph, always the same ones for a graph that does not grow: the answer is kept
    :returns: a Split
    """
    run = _run(graph, fetches, feeds)
    key = frozenset(t.name for t in tensors)
    if key not in run.answers:
        run.answers[key] = run.split(tensors)
    return run.answers[key]


def computed(graph: Any, fetches: Any, feeds: Any) -> set[str]:
    """Names of the operations that a run computes, for those of `fetches` and `feeds`."""
    return _run(graph, fetches, feeds).reached


def _run(graph: Any, fetches: Any, feeds: Any) -> _Run:
    outline = _outlines.get(graph)
    if outline is None or outline.version != graph.version:
        outline = _outlines[graph] = _Outline(graph)
    key = frozenset(_operations(graph, fetches)), frozenset(_names(graph, feeds or {}))
    run = outline.runs.get(key)
    if run is None:
        if len(outline.runs) >= _KEPT:
            outline.runs.clear()
        run = outline.runs[key] = _Run(outline, *key)
    return run


def _operations(graph: Any, fetches: Any) -> Iterator[str]:
    for element in _elements(graph, fetches):
        yield (element if isinstance(element, tf.Operation) else element.op).name


def _names(graph: Any, feeds: Any) -> Iterator[str]:
    for feed in feeds:
        for element in _elements(graph, feed):
            yield element.name


def _elements(graph: Any, structure: Any) -> Iterator[Any]:
    for part in tf.nest.flatten(structure):
        if isinstance(part, (tf.SparseTensor, tf.IndexedSlices, tf.RaggedTensor)):
            yield from _elements(graph, tf.nest.flatten(part, expand_composites=True))
        elif part is not None:
            yield graph.as_graph_element(part)


class _Outline:
    def __init__(self, graph: Any) -> None:
        self.version = graph.version
        self.runs: dict[tuple[frozenset[str], frozenset[str]], _Run] = {}
        # name -> (type, [(where from, name of the tensor)], [waited for]), as they were made
        self.operations: dict[str, tuple[str, list[tuple[str, str]], list[str]]] = {}
        self.dead: set[str] = set()    # those that may have no value, though they are asked
        for op in graph.get_operations():
            inputs = [(t.op.name, t.name) for t in op.inputs]
            waits = [c.name for c in op.control_inputs]
            self.operations[op.name] = op.type, inputs, waits
            if op.type not in _harmless:
                _harmless[op.type] = _leaves_nothing(op)
            if op.type in _CHOOSES or (op.type not in _MEETS and (
                    any(name in self.dead for name, _ in inputs) or any(name in self.dead for name in waits))):
                self.dead.add(op.name)


class _Run:
    """Of which tensors are fetched, and which fed: what it computes, and whether it changes variables."""

    def __init__(self, outline: _Outline, fetched: frozenset[str], fed: frozenset[str]) -> None:
        self._operations, self._dead, self._fed = outline.operations, outline.dead, fed
        self.reached: set[str] = set()
        self._changes = False
        self.answers: dict[frozenset[str], Split] = {}
        ahead = list(fetched)
        while ahead:
            name = ahead.pop()
            if name in self.reached:
                continue
            self.reached.add(name)
            kind, inputs, waits = self._operations[name]
            held = {self._operations[i][0] for i, _ in inputs} & _HOLDERS
            self._changes |= bool(held) and not _harmless[kind]
            self._changes |= "VarHandleOp" in held and kind not in _READS
            ahead += [i for i, tensor in inputs if tensor not in fed]
            ahead += waits

    def split(self, tensors: Iterable[Any]) -> Split:
        reached, fed = self.reached, self._fed
        still: set[str] = set()     # made of variables, constants and feeds alone
        more: dict[str, bool] = {}      # what the run does not compute, and could -> does that read variables?
        for name, (kind, inputs, waits) in self._operations.items():
            needs = [i for i, tensor in inputs if tensor not in fed] + waits
            if not _harmless[kind]:
                continue
            if all(i in still for i in needs):
                still.add(name)
            if name not in reached and all(i in reached or i in more for i in needs):
                more[name] = kind in _READS or kind in ("VariableV2", "Variable") or any(more.get(i) for i in needs)
        answer = Split()
        for tensor in tensors:
            op = tensor.op.name
            if tensor.name in fed:
                answer.beside.add(tensor.name)
            elif op in self._dead or not tensor.graph.is_fetchable(tensor.op):
                continue
            elif op in reached:
                answer.beside.add(tensor.name)
                answer.computed.add(tensor.name)
            elif op in more and not (self._changes and more[op]):
                answer.beside.add(tensor.name)
            elif op in still:
                answer.before.add(tensor.name)
        return answer


def _leaves_nothing(op: Any) -> bool:
    if op.type in _HOLDERS or op.type in _READS:
        return True
    if op.type == "Placeholder" or op.type in _RAISES or not hasattr(tf.raw_ops, op.type):      # or a function's name
        return False
    definition = op.op_def
    return not definition.is_stateful and not any(a.is_ref for a in definition.input_arg)
