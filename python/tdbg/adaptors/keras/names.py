"""What things are called: smdebug's names for the variables and layers of a Keras model, their kinds and unit axes.

    dense/weights/dense/kernel:0      a variable: <layer>/weights/<its path below the model>:0
    gradients/dense/kernelGrad        its gradient
    dense/outputs, dense/inputs       a layer's tensors; dense/outputs_0, ... where there are several in one step

Keras 3 writes the model's name in front of some paths (a Sequential's, a subclass's) and of others not (a functional
model's); here it never is, except where two variables would have one name.
"""

from __future__ import annotations

import itertools
import re
import weakref
from typing import Any, Generic, TypeVar

_ACTIVATIONS = {
    "relu": "relu",
    "relu6": "relu",
    "leaky_relu": "leaky_relu",
    "tanh": "tanh",
    "hard_tanh": "tanh",
    "sigmoid": "sigmoid",
    "hard_sigmoid": "sigmoid",
    "log_sigmoid": "sigmoid",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "mish": "mish",
    "elu": "elu",
    "selu": "elu",
    "celu": "elu",
    "softmax": "softmax",
    "log_softmax": "softmax",
}
_LAYERS = {"Dense": "linear", "EinsumDense": "linear", "Embedding": "embedding", "BaseConv": "conv",
           "BaseConvTranspose": "conv", "BaseDepthwiseConv": "conv", "BaseSeparableConv": "conv", "BasePooling": "pool",
           "BaseGlobalPooling": "pool", "BaseAdaptivePooling": "pool", "BatchNormalization": "norm",
           "LayerNormalization": "norm", "GroupNormalization": "norm", "UnitNormalization": "norm",
           "RMSNormalization": "norm", "SpectralNormalization": "norm", "Dropout": "dropout", "BaseDropout": "dropout",
           "SpatialDropout": "dropout", "RNN": "rnn", "LSTM": "rnn", "GRU": "rnn", "SimpleRNN": "rnn",
           "LSTMCell": "rnn", "GRUCell": "rnn", "SimpleRNNCell": "rnn", "MultiHeadAttention": "attention",
           "GroupedQueryAttention": "attention", "Attention": "attention", "AdditiveAttention": "attention",
           "ReLU": "relu", "LeakyReLU": "leaky_relu", "PReLU": "leaky_relu", "ELU": "elu", "Softmax": "softmax"}


def _class_kind(layer: Any) -> str:
    for cls in type(layer).__mro__:
        if cls.__name__ in _LAYERS:
            return _LAYERS[cls.__name__]
    return ""


def activation_kind(layer: Any) -> str:
    """The kind of the function that a layer applies last; "" for none, or one that we have no word for."""
    function = getattr(layer, "activation", None)
    name = getattr(function, "__name__", "") or type(function).__name__
    return _ACTIVATIONS.get(name.lower(), "")


def output_kind(layer: Any) -> str:
    """relu, tanh, ... where the layer ends in such a function; else conv, linear, attention, ... or ""."""
    return ("" if _class_kind(layer) == "rnn" else activation_kind(layer)) or _class_kind(layer)



def output_unit_axis(layer: Any, rank: int) -> int:
    """Which axis of an output numbers the units (channels, features); -1: none."""
    if rank < 2:
        return -1
    return 1 if getattr(layer, "data_format", None) == "channels_first" and rank > 2 else rank - 1


def parameter_unit_axis(layer: Any, variable: Any) -> int:
    """Weights and gradients: the axis of the output units. Keras keeps them last, PyTorch first."""
    rank = len(variable.shape)
    if rank == 0:
        return -1
    name = type(layer).__name__
    if "Transpose" in name and variable.name == "kernel":
        return rank - 2
    if _class_kind(layer) == "embedding":
        return 0
    return rank - 1


class Named:
    """One variable under its canonical name."""

    __slots__ = ("name", "gradient", "short_name", "kind", "module_kind", "unit_axis")

    def __init__(self, name: str, gradient: Any, short_name: str, kind: str, module_kind: str,
                 unit_axis: int) -> None:
        self.name, self.gradient, self.short_name = name, gradient, short_name
        self.kind, self.module_kind, self.unit_axis = kind, module_kind, unit_axis


def variable_kind(variable: Any) -> str:
    leaf = _path(variable).rsplit("/", 1)[-1]
    return "bias" if "bias" in leaf or leaf == "beta" else "weight"


def _path(variable: Any) -> str:
    """Keras variables have a path; TensorFlow's own have a name, with a number that graphs give."""
    return variable.path if hasattr(variable, "path") else re.sub(r":\d+$", "", variable.name)


_T = TypeVar("_T")


class _ByIdentity(Generic[_T]):
    """Object -> value, by identity and weakly: variables compare by value and have no hash."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _T]] = {}

    def get(self, key: Any) -> _T | None:
        found = self._entries.get(id(key))
        return found[1] if found is not None and found[0]() is key else None

    def put(self, key: Any, value: _T) -> _T:
        self._entries[id(key)] = (weakref.ref(key), value)
        return value


class Names:
    """The names given so far. What has a name keeps it, whatever else appears."""

    def __init__(self) -> None:
        self._variables: _ByIdentity[Named] = _ByIdentity()
        self._layers: _ByIdentity[str] = _ByIdentity()
        self._taken: dict[str, Any] = {}    # name -> reference to whose it is

    def learn(self, model: Any) -> None:
        """Names the variables of `model` that have none yet; it may have been built since it was last looked at."""
        for layer in model._flatten_layers(include_self=True, recursive=True):
            for variable in (*layer._trainable_variables, *layer._non_trainable_variables):
                if self._variables.get(variable) is None:
                    self._name(variable, layer, model.name)

    def knows(self, variable: Any) -> bool:
        return self._variables.get(variable) is not None

    def of(self, variable: Any) -> Named:
        """The Named of a Keras variable or of a tf.Variable."""
        return self._variables.get(variable) or self._name(variable, None, "")

    def _name(self, variable: Any, layer: Any, root: str) -> Named:
        path = _path(variable)
        relative = path[len(root) + 1:] if root and path.startswith(root + "/") else path
        top = relative.split("/")[0] if "/" in relative else root
        full = relative if "/" in relative or not top else f"{top}/{relative}"
        if not top:             # a variable of no model; most of these are called "Variable"
            unique = self._free(full, "", variable, "variable ")
            full += "_" + unique[len("model_"):-1] if unique else ""
        base = f"{top}/weights/{full}:0" if top else f"weights/{full}:0"
        prefix = self._free(base, root, variable)
        axis = parameter_unit_axis(layer, variable) if layer is not None else len(variable.shape) - 1
        kind = variable_kind(variable)
        if layer is not None and any(v is variable for v in layer._non_trainable_variables):
            kind = "buffer"         # made so, as moving averages are; a frozen weight is made to be trained
        return self._variables.put(variable, Named(
            prefix + base, f"gradients/{prefix}{full}Grad", prefix + relative, kind,
            _class_kind(layer) if layer is not None else "", axis))

    def layer(self, layer: Any, root: str = "") -> str:
        """The label of a layer: its name, with the model's in front where another layer has the same."""
        label = self._layers.get(layer)
        if label is None:
            label = self._layers.put(layer, self._free(layer.name, root, layer, "layer ") + layer.name)
        return label

    def _free(self, name: str, root: str, owner: Any, space: str = "") -> str:
        """What to put in front of `name`, so that it is nobody else's: nothing, the model's name, or that and a number.
        What became of an owner that is gone does not matter: a name is one tensor's for the whole run."""
        prefixes = itertools.chain(
            [""], [f"{root}/"] if root else [], (f"{root or 'model'}_{n}/" for n in itertools.count(1))
        )
        for prefix in prefixes:
            reference = self._taken.get(space + prefix + name)
            if reference is None or reference() is owner:
                break
        self._taken[space + prefix + name] = weakref.ref(owner)
        return prefix
