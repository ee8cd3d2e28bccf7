"""smdebug's hook for sessions of TensorFlow 1 (`tf.compat.v1`), as one of the session's own hooks: a run is a step.

    hook = SessionHook("run", include_collections=["weights", "gradients"])
    train = hook.wrap_optimizer(optimizer).minimize(loss)
    with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train)

Names are the graph's (`gradients/MatMul_grad/tuple/control_dependency_1:0`); a variable's is its own (`layer/w:0`), not
that of the operation that reads it. Variables are read before a run, all else is what the run itself computed.
"""

from __future__ import annotations

import logging
import re
import threading
import weakref
from typing import Any, cast

import numpy as np
import tensorflow as tf

from ..adaptors.ranks import of_tensorflow
from ..adaptors.session import NOT_WANTED
from ..adaptors.tensorflow.attach import stand_down
from ..adaptors.tensorflow.graphs import split
from ..exceptions import SMDebugTypeError
from .base import BaseHook
from .collection import Collection, CollectionKeys

v1 = tf.compat.v1
logger = logging.getLogger("smdebug")
#: What the tensors of a collection are; those of others are just that.
_KINDS = {
    CollectionKeys.WEIGHTS: "weight",
    CollectionKeys.BIASES: "bias",
    CollectionKeys.GRADIENTS: "gradient",
    CollectionKeys.LOSSES: "loss",
    CollectionKeys.METRICS: "metric",
    CollectionKeys.OPTIMIZER_VARIABLES: "optimizer",
    CollectionKeys.INPUTS: "input",
    CollectionKeys.OUTPUTS: "output",
    CollectionKeys.LAYERS: "output",
}
#: Variables are in these by what they are, and their expressions are tried on variables only.
_OF_VARIABLES = {CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.OPTIMIZER_VARIABLES}


class TensorFlowCollection(Collection):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # name -> tensor or variable; of several graphs with that name, the last
        self._elements: dict[str, Any] = {}

    def add(self, arg: Any) -> None:
        """Adds a tensor or a variable of the graph, all outputs of an operation, or a list or set of any of them."""
        if isinstance(arg, (list, tuple, set)):
            for one in arg:
                self.add(one)
        elif isinstance(arg, tf.Operation):
            self.add(list(arg.outputs))
        elif isinstance(arg, tf.IndexedSlices):
            self.add(arg.values)
        elif isinstance(arg, (tf.Tensor, tf.Variable)) and _graph_of(arg) is not None:
            self._elements[arg.name] = arg
            self.add_tensor_name(arg.name)
        else:
            logger.warning(
                "collection %s: a tensor, variable or operation of a graph is accepted, not %s; nothing is added",
                self.name,
                type(arg).__name__,
            )

    def add_for_mode(self, arg: Any, mode: Any = None) -> None:
        """As `add`: which tensors a run has decides in which modes they are saved."""
        self.add(arg)


class _Watched:
    """A tensor of the graph that the plan wants."""

    __slots__ = ("name", "kind", "collections", "tensor", "variable", "ident")

    def __init__(self, name: str, kind: str, collections: list[str], tensor: Any, variable: Any) -> None:
        self.name, self.kind, self.collections = name, kind, collections
        self.tensor, self.variable = tensor, variable
        self.ident: int | None = None    # before its shape is known


class SessionHook(BaseHook, v1.train.SessionRunHook):  # type: ignore[misc, name-defined]
    """Its arguments are BaseHook's. A step is a run of a session that has this hook, of the mode that `set_mode` said;
    one that fails is none. The script's own scalars and tensors belong to the next run.

    Threads: runs of other threads than the first one's are passed over.
    """

    framework = "tensorflow"
    _collection_class = TensorFlowCollection
    _INIT_STEP = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # graph -> {name: _Watched}; of the sessions that were begun
        self._watching: dict[Any, dict[str, _Watched]] = {}
        # Of the run that goes on.
        self._beside: list[_Watched] = []
        self._before: list[tuple[_Watched, Any]] = []
        self._open_mode: Any = None
        self._thread: int | None = None
        try:
            stand_down("the script has a hook of its own")
        except ImportError:
            pass                    # no Keras, and nothing that it watches

    # What the script says ---------------------------------------------------------------------------------------

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Finds what `optimizer`, a tf.compat.v1.train.Optimizer, works on: the gradients that it is given to apply, as
        it is given them, and its own variables. Returns it."""
        if not isinstance(optimizer, v1.train.Optimizer):
            logger.warning(
                "wrap_optimizer(%s): gradients are found of a tf.compat.v1.train.Optimizer; those of another are "
                "named by set_gradients and set_optimizer_variables",
                type(optimizer).__name__,
            )
            return optimizer
        apply, reference = optimizer.apply_gradients, weakref.ref(self)

        def apply_gradients(grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
            pairs = list(grads_and_vars)
            update = apply(pairs, *arguments, **options)
            hook = reference()
            if hook is not None and not hook._closed and not tf.executing_eagerly():
                hook._watched("an optimizer", hook.set_gradients, None, pairs)
                hook._watched("an optimizer", lambda: hook.set_optimizer_variables(optimizer.variables()))
            return update

        optimizer.apply_gradients = apply_gradients     # of this one, not of its class
        return optimizer

    def set_gradients(self, gradients: Any = None, gradients_and_variables: Any = None) -> None:
        """Which tensors are gradients, where no wrapped optimizer says it: a list of them, or of (gradient,
        variable)."""
        found = gradients if gradients is not None else [g for g, _ in gradients_and_variables or ()]
        self.get_collection(CollectionKeys.GRADIENTS).add([g for g in found if g is not None])

    def set_optimizer_variables(self, optimizer_variables: Any) -> None:
        """Which variables are an optimizer's own (momentum), where no wrapped one says it."""
        self.get_collection(CollectionKeys.OPTIMIZER_VARIABLES).add(list(optimizer_variables))

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """As `get_collection(collection_name).add(variable)`."""
        self.get_collection(collection_name).add(variable)

    # What is wanted ---------------------------------------------------------------------------------------------

    def get_collection(self, name: str, create: bool = True) -> TensorFlowCollection:
        return cast(TensorFlowCollection, super().get_collection(name, create))

    def _document(self) -> dict[str, Any]:
        document = super()._document()
        for c in document["collections"]:
            if c["name"] == CollectionKeys.BIASES:
                c["include_regex"] = []     # its variables say so themselves, and nothing else is one
        return document

    def _of_graph(self, graph: Any) -> dict[str, _Watched]:
        """{name: _Watched} of everything in the graph that the plan wants."""
        def collection(name: str) -> TensorFlowCollection:
            return cast(TensorFlowCollection, self.collection_manager.get(name))

        for variable in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES):
            is_bias = any(re.search(p, variable.name) for p in collection(CollectionKeys.BIASES).include_regex)
            collection(CollectionKeys.BIASES if is_bias else CollectionKeys.WEIGHTS).add(variable)
        collection(CollectionKeys.LOSSES).add(graph.get_collection(v1.GraphKeys.LOSSES))
        found: dict[str, _Watched | None] = {}
        for variable in graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES):
            self._want(found, variable)     # first: a tensor of that name is the variable
        for c in self.get_collections().values():
            for element in getattr(c, "_elements", {}).values():
                if element.graph is graph:
                    self._want(found, element)
        for operation in graph.get_operations():
            for tensor in operation.outputs:
                self._want(found, tensor)
        return {name: watched for name, watched in found.items() if watched is not None}

    def _want(self, found: dict[str, _Watched | None], element: Any) -> None:
        name = element.name
        if name in found:
            return
        found[name] = None
        tensor = element.graph.as_graph_element(element)
        if tensor.op.type == "Identity" and "Variable" in tensor.op.inputs[0].op.type:
            return                          # what reads a variable is the variable
        dtype = tensor.dtype.base_dtype
        if dtype.is_quantized or not (dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex):
            return
        collections = [c.name for c in self.get_collections().values() if name in c.tensor_names]
        kind = next((_KINDS[c] for c in collections if c in _KINDS), "tensor")
        if self._run.wants(name, kind, "", 0, collections):
            watched = found[name] = _Watched(name, kind, collections, tensor, isinstance(element, tf.Variable))
            if tensor.shape.is_fully_defined():
                self._define(watched, dtype.name, tensor.shape, False)

    def _define(self, watched: _Watched, dtype: str, shape: Any, varies: bool) -> None:
        key = watched.name, dtype, len(shape) if varies else tuple(shape)
        watched.ident = self._id(key, lambda: self._run.define(
            watched.name, watched.name, watched.kind, "", dtype, list(shape), varies, -1, [], watched.collections))

    # What a session calls ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self._closed:
            return
        if CollectionKeys.TENSORFLOW_SUMMARIES in self.include_collections:
            self.get_collection(CollectionKeys.TENSORFLOW_SUMMARIES).add(
                [part for summary in v1.get_default_graph().get_collection(v1.GraphKeys.SUMMARIES)
                 for part in list(summary.op.inputs)[1:2]])     # what it is of: (tag, value)
        self._prepare()                         # what cannot be meant is raised here
        self._watching.clear()                  # the graph of a session before is not kept

    def before_run(self, run_context: Any) -> Any:
        self._beside, self._before = [], []
        if self._closed or self._thread not in (None, threading.get_ident()):
            return None
        self._watched("a session's run", self._run_begins, run_context)
        return v1.train.SessionRunArgs([w.tensor for w in self._beside]) if self._beside else None

    def _run_begins(self, context: Any) -> None:
        if not self._ensure_run():
            return
        self._thread = threading.get_ident()
        self._cancel_step()
        self._open_mode = self.mode
        if not self._begin_step():
            return
        graph = context.session.graph
        wanted = self._watching.get(graph)
        if wanted is None:
            wanted = self._watching[graph] = self._of_graph(graph)
        arguments = context.original_args
        how = split(graph, arguments.fetches, arguments.feed_dict, [w.tensor for w in wanted.values()])
        due = [w for w in wanted.values() if (w.ident is None or (w.ident != NOT_WANTED and self._run.due(w.ident)))
               and (w.kind != "gradient" or w.name in how.computed)]    # nothing is differentiated for us
        before = [w for w in due if w.variable or w.tensor.name in how.before]
        if before:
            values = context.session.run([w.tensor for w in before], arguments.feed_dict)
            self._before = list(zip(before, values))
        self._beside = [w for w in due if not w.variable and w.tensor.name in how.beside]

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not self._open or self._thread != threading.get_ident():
            return
        self._watched("the end of a session's run", self._run_ends, run_values.results)

    def _run_ends(self, results: Any) -> None:
        try:
            if self._due:
                for watched, value in [*self._before, *zip(self._beside, results or ())]:
                    self._put(watched, np.asarray(value, order="C"))
                self.last_saved_step = self.step
        finally:
            self._beside, self._before = [], []
            self._end_step()

    def _cancel_step(self) -> None:
        """The run before never came back: it was no step."""
        if self._open:
            self._open = self._due = False
            self._run.cancel_step()

    def _put(self, watched: _Watched, array: Any) -> None:
        if watched.ident is None or watched.tensor.shape.rank is None:
            self._define(watched, array.dtype.name, array.shape, True)
        if watched.ident != NOT_WANTED and array.size:
            strides = [s // array.itemsize for s in array.strides]
            self._run.put_ptr(watched.ident, array.ctypes.data, array.dtype.name, list(array.shape), strides, 0, 0)

    def _end_step(self, last: bool = False) -> None:
        if not self._open:
            return
        super()._end_step(last)
        # The next one's number, as smdebug's hook has it between runs.
        self.step += 1
        self.mode_steps[self._open_mode] += 1
        self.mode_steps[type(self.mode).GLOBAL] = self.step

    # ------------------------------------------------------------------------------------------------------------

    def close(self, reason: str = "completed", message: str = "") -> None:
        if not self._closed:
            self._cancel_step()
        super().close(reason, message)
        self._watching.clear()
        for c in self.get_collections().values():
            getattr(c, "_elements", {}).clear()     # they would keep the graph

    cleanup = close

    def _rank(self) -> tuple[int, int]:
        return of_tensorflow()

    def _adaptor(self) -> str:
        return f"tensorflow {tf.__version__} session, smdebug hook"

    def _to_numpy(self, value: Any) -> Any:
        if isinstance(value, (tf.Tensor, tf.Variable)) and _graph_of(value) is not None:
            raise SMDebugTypeError(
                f"{value.name} is a tensor of the graph and has no value here: fetch it, or add it to a collection"
            )
        return value


def _graph_of(element: Any) -> Any:
    """The graph of a tensor or variable; None where it is of none."""
    try:
        return element.graph
    except (AttributeError, RuntimeError):
        return None
