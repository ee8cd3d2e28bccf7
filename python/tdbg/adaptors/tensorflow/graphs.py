"""What of a graph can be had beside a run of a session without making that run another one.

A tensor that the run computes anyway is fetched with it. One that it does not needs more operations: they are let run if
they leave nothing behind (no draw from a generator, no element of a dataset, no assignment), need nothing that is
not fed and, where the run changes variables, read none: what they would read, nobody can say. Those that are made of
variables and feeds alone are had from a run of their own before.
"""

import weakref

import tensorflow as tf

_HOLDERS = {"VarHandleOp", "VariableV2", "Variable"}            # of a variable
_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "IsVariableInitialized"}
_CHOOSES = {"Switch", "RefSwitch", "_SwitchN"}                  # the outputs not chosen have no value, nor what follows
_MEETS = {"Merge", "RefMerge"}
_RAISES = {"CheckNumerics", "CheckNumericsV2", "EnsureShape"}   # on purpose
_KEPT = 64                                                      # signatures of runs per graph

#: Graph -> _Outline
_outlines = weakref.WeakKeyDictionary()
_harmless = {}              # type of an operation -> does it leave nothing behind?


class Split:
    """Of the tensors asked for, by name: `beside` are fetched with the run, `before` in one of their own before it, with the
    same feeds; the rest are not to be had."""

    def __init__(self):
        self.beside, self.before = set(), set()


def split(graph, fetches, feeds, tensors):
    """:param fetches, feeds: of the run, as given to it
    :param tensors: of the graph, always the same ones for a graph that does not grow: the answer is kept
    :returns: a Split
    """
    outline = _outlines.get(graph)
    if outline is None or outline.version != graph.version:
        outline = _outlines[graph] = _Outline(graph)
    fetched = frozenset(_operations(graph, fetches))
    fed = frozenset(_names(graph, feeds or {}))
    key = fetched, fed, frozenset(t.name for t in tensors)
    answer = outline.answers.get(key)
    if answer is None:
        if len(outline.answers) >= _KEPT:
            outline.answers.clear()
        answer = outline.answers[key] = outline.split(fetched, fed, tensors)
    return answer


def _operations(graph, fetches):
    for element in _elements(graph, fetches):
        yield (element if isinstance(element, tf.Operation) else element.op).name


def _names(graph, feeds):
    for feed in feeds:
        for element in _elements(graph, feed):
            yield element.name


def _elements(graph, structure):
    for part in tf.nest.flatten(structure):
        if isinstance(part, (tf.SparseTensor, tf.IndexedSlices, tf.RaggedTensor)):
            yield from _elements(graph, tf.nest.flatten(part, expand_composites=True))
        elif part is not None:
            yield graph.as_graph_element(part)


class _Outline:
    def __init__(self, graph):
        self.version, self.answers = graph.version, {}
        self._operations = {}       # name -> (type, [(where from, name of the tensor)], [waited for]), as they were made
        self._dead = set()          # those that may have no value, though they are asked
        for op in graph.get_operations():
            inputs = [(t.op.name, t.name) for t in op.inputs]
            waits = [c.name for c in op.control_inputs]
            self._operations[op.name] = op.type, inputs, waits
            if op.type not in _harmless:
                _harmless[op.type] = _leaves_nothing(op)
            if op.type in _CHOOSES or (op.type not in _MEETS and (
                    any(name in self._dead for name, _ in inputs) or any(name in self._dead for name in waits))):
                self._dead.add(op.name)

    def _reached(self, fetched, fed):
        """What a run computes, and whether it changes variables."""
        reached, ahead, changes = set(), list(fetched), False
        while ahead:
            name = ahead.pop()
            if name in reached:
                continue
            reached.add(name)
            kind, inputs, waits = self._operations[name]
            held = {self._operations[i][0] for i, _ in inputs} & _HOLDERS
            changes |= bool(held) and not _harmless[kind]
            changes |= "VarHandleOp" in held and kind not in _READS
            ahead += [i for i, tensor in inputs if tensor not in fed]
            ahead += waits
        return reached, changes

    def split(self, fetched, fed, tensors):
        reached, changes = self._reached(fetched, fed)
        still = set()       # made of variables, constants and feeds alone
        more = {}           # what the run does not compute, and could -> does that read variables?
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
            elif op in reached or (op in more and not (changes and more[op])):
                answer.beside.add(tensor.name)
            elif op in still:
                answer.before.add(tensor.name)
        return answer


def _leaves_nothing(op):
    if op.type in _HOLDERS or op.type in _READS:
        return True
    if op.type == "Placeholder" or op.type in _RAISES or not hasattr(tf.raw_ops, op.type):      # or a function's name
        return False
    definition = op.op_def
    return not definition.is_stateful and not any(a.is_ref for a in definition.input_arg)
