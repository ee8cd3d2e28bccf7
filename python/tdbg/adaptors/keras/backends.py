"""What differs between Keras' backends: which objects are tensors, where they may be taken from, how they are read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..steps import TRAIN
from .collect import ROWS, SAME, SUM

if TYPE_CHECKING:
    from . import collect


def _flatten(value: Any) -> Any:
    """The leaves of any structure that Keras passes around."""
    from keras.src import tree
    return tree.flatten(value)


def _never() -> bool:
    return False


class TensorFlow:
    name = "tensorflow"
    compiling = staticmethod(_never)    # is a compiler tracing the function that calls this? It must not see our code
    extras = True           # the step is a function to which outputs can be added
    # several replicas: can the places be patched where outputs are merged, and gradients summed?
    merges = sums = False

    def __init__(self) -> None:
        import tensorflow as tf
        self._tf = tf
        self._graph = tf.compat.v1.get_default_graph
        self.version = tf.__version__
        from tensorflow.python.eager import record
        from tensorflow.python.ops import control_flow_util
        self._record, self._in_xla = record, control_flow_util.GraphOrParentsInXlaContext
        self.flatten = _flatten

    def place(self) -> Any:
        return None if self._tf.executing_eagerly() else self._graph()

    def is_tensor(self, value: Any) -> bool:
        if not isinstance(value, self._tf.Tensor) or value.dtype in (
            self._tf.string,
            self._tf.variant,
            self._tf.resource,
        ):
            return False
        eager = hasattr(value, "_numpy")
        return eager if self._tf.executing_eagerly() else not eager and value.graph is self._graph()

    def replicas(self) -> int:
        return int(self._tf.distribute.get_strategy().num_replicas_in_sync)

    def is_distributed(self) -> bool:
        """Is this in the scope of a strategy that runs replicas, each in a thread of its own?"""
        tf = self._tf.distribute
        return tf.has_strategy() and not isinstance(tf.get_strategy(), tf.OneDeviceStrategy)

    def native(self, variable: Any) -> Any:
        """TensorFlow's own variable of one of Keras'."""
        return variable.value if hasattr(variable, "path") else variable

    def is_packable(self, tensor: Any, largest: int) -> bool:
        """Is it of known shape, of at most `largest` bytes, and float32 or a count?"""
        return (tensor.dtype in (self._tf.float32, self._tf.int64) and tensor.shape.is_fully_defined()
                and 0 < tensor.shape.num_elements() * tensor.dtype.size <= largest)

    def concatenate(self, tensors: Sequence[Any]) -> Any:
        """The bytes of all, one behind the other, as float32."""
        tf = self._tf
        return tf.concat(
            [tf.reshape(t if t.dtype == tf.float32 else tf.bitcast(t, tf.float32), [-1]) for t in tensors], 0
        )

    def merge(self, outputs: dict[tuple[str, str], Any], strategy: Any) -> dict[str, Any]:
        """name -> one tensor, of a collect.PerReplica as the strategy returns it. In the place where Keras makes one of
        its own outputs."""
        found = {}
        for (how, name), value in outputs.items():
            parts = strategy.experimental_local_results(value)
            if how is SAME or len(parts) == 1:
                found[name] = parts[0]
            elif how is ROWS:
                found[name] = self._tf.concat(parts, 0)
            else:
                total = self._tf.add_n(parts)
                found[name] = total if how is SUM else total / len(parts)
        return found

    def takes_operations(self, model: Any) -> bool:
        """May an operation of ours be put into the graph of the model's train function?"""
        inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if (model.run_eagerly or self._tf.config.functions_run_eagerly() or model.jit_compile
                or model.distribute_strategy.num_replicas_in_sync > 1
                or getattr(inner, "gradient_accumulation_steps", None)):
            return False
        from ..tensorflow import operation
        return not operation.why_not()

    def is_of_tracing(self, error: Exception) -> bool:
        """In a call that traced its function: can this be an error of anything but a graph that runs?"""
        return not isinstance(error, self._tf.errors.OpError)

    def differentiation(self, collector: collect.Collector) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def read(self, variable: Any) -> Any:
        return self._tf.convert_to_tensor(variable.value if hasattr(variable, "path") else variable)

    def dense(self, gradient: Any) -> Any:
        return self._tf.convert_to_tensor(gradient) if isinstance(gradient, self._tf.IndexedSlices) else gradient

    def cast(self, value: Any, like: Any) -> Any:
        return self._tf.cast(value, like.dtype)

    def is_variable(self, value: Any) -> bool:
        return isinstance(value, self._tf.Variable) or hasattr(value, "path") and hasattr(value, "assign")

    def recording(self) -> bool:
        """Is a tape recording?"""
        return bool(self._record.could_possibly_record())

    def has_host_calls(self) -> bool:
        """Can the graph that is being made call a host function? XLA's cannot."""
        return not self._in_xla(self._graph())

    def call_host(self, function: Callable[..., Any], tensors: Sequence[Any]) -> None:
        """`function` with the arrays, at this place of every execution of the graph, in its order with updates."""
        self._tf.numpy_function(function, tensors, [], stateful=True)

    def numpy(self, tensor: Any) -> Any:
        """A view of host memory where the tensor lies there. Belongs to the tensor."""
        return tensor._numpy() if hasattr(tensor, "_numpy") else np.asarray(tensor)


class Jax:
    name = "jax"
    compiling = staticmethod(_never)
    extras = True

    def processes(self) -> tuple[int, int]:
        """(rank, how many) of the processes that run one program together (keras.distribution.initialize). Asks the
        devices: not before the training does."""
        return self._jax.process_index(), self._jax.process_count()

    def shardings(self, mode: int, state: Any) -> tuple[Any, Any, Any, Any]:
        """What Keras' `_get_state_sharding_spec` returns, of the state that a function is given: trainable, other, the
        optimizer's and metrics' variables; to evaluate takes no optimizer's, to predict the first two."""
        trainable, other, *rest = ([value.sharding for value in part] for part in state)
        optimizer, metrics = rest if mode == TRAIN else ([], rest[0] if rest else [])
        return trainable, other, optimizer, metrics

    def is_here(self, value: Any) -> bool:
        """Does this process have the whole of it, so that looking costs no word with the others?"""
        return not self.is_tensor(value) or value.is_fully_addressable or value.is_fully_replicated

    def __init__(self) -> None:
        import jax
        self._jax = jax
        self.version = jax.__version__
        self.flatten = _flatten
        try:
            from jax._src.core import trace_ctx
            self._context: Any = trace_ctx if hasattr(trace_ctx, "trace") else None
        except ImportError:
            self._context = None

    def takes_operations(self, model: Any) -> bool:
        return False

    def is_of_tracing(self, error: Exception) -> bool:
        return False

    def place(self) -> Any:
        return None if self._context is None else self._context.trace

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._jax.Array) and not self._jax.dtypes.issubdtype(
            value.dtype, self._jax.dtypes.prng_key
        )

    def replicas(self) -> int:
        return 1

    def is_distributed(self) -> bool:
        return False

    @contextlib.contextmanager
    def differentiation(self, collector: collect.Collector) -> Iterator[None]:
        """Tensors inside a function that is differentiated leave it as its auxiliary results."""
        jax, value_and_grad, grad = self._jax, self._jax.value_and_grad, self._jax.grad

        def watched(function: Callable[..., Any], argnums: int = 0, has_aux: bool = False,
                    **options: Any) -> Callable[..., Any]:
            @functools.wraps(function)
            def inner(*args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, Any]]:
                with collector.inside() as extras:
                    out = function(*args, **kwargs)
                value, aux = out if has_aux else (out, None)
                return value, (aux, extras)

            differentiated = value_and_grad(inner, argnums, has_aux=True, **options)

            def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
                (value, (aux, extras)), gradients = differentiated(*args, **kwargs)
                collector.merge(extras)
                return ((value, aux) if has_aux else value), gradients
            return call

        def watched_grad(function: Callable[..., Any], argnums: int = 0, has_aux: bool = False,
                         **options: Any) -> Callable[..., Any]:
            both = watched(function, argnums, has_aux, **options)

            def call(*args: Any, **kwargs: Any) -> Any:
                value, gradients = both(*args, **kwargs)
                return (gradients, value[1]) if has_aux else gradients
            return call

        jax.value_and_grad, jax.grad = watched, watched_grad
        try:
            yield
        finally:
            jax.value_and_grad, jax.grad = value_and_grad, grad

    def read(self, variable: Any) -> Any:
        return variable.value if hasattr(variable, "path") else variable

    def is_variable(self, value: Any) -> bool:
        return hasattr(value, "path") and hasattr(value, "assign")

    def recording(self) -> bool:
        return False

    def has_host_calls(self) -> bool:
        return False

    def dense(self, gradient: Any) -> Any:
        return gradient

    def cast(self, value: Any, like: Any) -> Any:
        return self._jax.numpy.asarray(value, like.dtype)

    def numpy(self, tensor: Any) -> Any:
        return np.asarray(tensor)


class Torch:
    name = "torch"
    extras = False          # everything happens at once, and updates are in place: read before it is too late

    def __init__(self) -> None:
        import torch
        self._torch = torch
        self.compiling = torch.compiler.is_compiling
        self.version = torch.__version__
        self.flatten = _flatten

    def takes_operations(self, model: Any) -> bool:
        return False

    def place(self) -> None:
        return None

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor) and value.layout is self._torch.strided

    def replicas(self) -> int:
        return 1

    def is_distributed(self) -> bool:
        return False

    def read(self, variable: Any) -> Any:
        value = variable.value if hasattr(variable, "path") else variable
        return value.detach() if isinstance(value, self._torch.Tensor) else value

    def is_variable(self, value: Any) -> bool:
        return hasattr(value, "path") and hasattr(value, "assign")

    def recording(self) -> bool:
        return bool(self._torch.is_grad_enabled())

    def dense(self, gradient: Any) -> Any:
        return gradient.to_dense() if gradient is not None and gradient.layout is not self._torch.strided else gradient

    def cast(self, value: Any, like: Any) -> Any:
        return value

    def numpy(self, tensor: Any) -> Any:
        """bfloat16, which NumPy does not know, comes as ml_dtypes'."""
        tensor = tensor.detach().cpu().contiguous()
        if tensor.dtype is self._torch.bfloat16:
            import ml_dtypes
            return tensor.view(self._torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()


def make(name: str) -> Any:
    """The backend that Keras was configured with; None for one that we do not know (OpenVINO trains nothing)."""
    cls = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}.get(name)
    return None if cls is None else cls()
