"""What a step function is asked for beside its result, while it is traced (or, where nothing is traced, while it runs).

A `Collector` is current from the begin to the end of a model's train_step, test_step or predict_step, in the thread
that runs it. Patched functions of Keras (optimizers' `apply`, `compute_loss`, `Layer.__call__`) hand it tensors; what
is wanted becomes an extra output of the function. In a graph those tensors have no values, and one that belongs to an
inner graph (the body of a loop, a branch) must not be taken out of it: `place` tells them apart.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .names import Named
    from .session import Session
    from .tap import Tap

#: Names of extra outputs that are no tensors of the training.
BATCH, ITERATION, FINITE = "context/batch", "iteration", "finite"
#: Between a name and its number, where a step has several tensors of that name.
AGAIN = "\n"
# : How one tensor is made of those of several replicas: all have the same, it is their sum or mean, each has its rows
# of a batch.
SAME, SUM, MEAN, ROWS = "same", "sum", "mean", "rows"

_here = threading.local()


class PerReplica(dict[tuple[str, str], Any]):
    """(SAME, SUM, MEAN or ROWS, name) -> what each replica returns as an extra output. Keras would take the mean of
    it."""


def current() -> Collector | None:
    """The collector of this thread's step function; None outside of one."""
    return getattr(_here, "collector", None)


class Collector:
    """:param backend: see backends.py.
    :param only: names that are taken; None: all that are wanted.
    :param tap: a Tap, where gradients are recorded on their way to the update.
    """

    def __init__(self, session: Session, backend: Any, model: Any, mode: int, only: set[str] | None = None,
                 tap: Tap | None = None) -> None:
        self.session, self.backend, self.model, self.mode = session, backend, model, mode
        self._only, self._tap = only, tap
        self.tensors: dict[str, Any] = {}    # name -> tensor; the second of a name has AGAIN and 1 behind it
        self._into = self.tensors
        self._place = backend.place()
        self._calls: list[tuple[Any, Any, Any, Any]] = []    # (layer, inputs, outputs), named when all are known
        self.absent: list[str] = []    # names of variables without a gradient
        self.unseen: set[str] = set()    # labels of layers in inner graphs
        self.optimizers: list[Any] = []
        # called when an optimizer is about to change the weights, where nothing is traced
        self.before_update: Callable[[], None] | None = None
        self.replicas = backend.replicas()
        self._merged: dict[str, str] = {}    # name -> SUM, MEAN or ROWS, where several replicas have different ones
        # id of a variable -> its Named, of gradients that are yet to be summed over replicas
        self._awaited: dict[int, Named] = {}
        self._rows: Any = None    # length of the batch, where the graph knows it
        self.apart: list[str] = []  # names of tensors of which each replica has another one, and there is no whole

    @contextlib.contextmanager
    def active(self) -> Iterator[Collector]:
        before = current()
        _here.collector = self
        try:
            yield self
        finally:
            _here.collector = before

    @contextlib.contextmanager
    def inside(self) -> Iterator[dict[str, Any]]:
        """A function that is differentiated: its tensors leave it by the dictionary that this yields."""
        place, into = self._place, self._into
        self._place, self._into = self.backend.place(), {}
        try:
            yield self._into
            self.name_layers()
        finally:
            self._place, self._into = place, into

    def merge(self, found: dict[str, Any]) -> None:
        """Tensors that came out of a differentiated function."""
        for key, tensor in found.items():
            name, n = key, 0
            while key in self._into:
                n += 1
                key = f"{name.partition(AGAIN)[0]}{AGAIN}{n}"
            self._into[key] = tensor

    def take(self) -> dict[str, Any]:
        """What was found so far; the next call gives what came after."""
        self.name_layers()
        found, self.tensors = self.tensors, {}
        self._into = self.tensors
        return found

    def outputs(self) -> dict[Any, Any]:
        """What was found, as a step function returns it."""
        if self.replicas == 1:
            return self.tensors
        if not self.backend.merges:
            raise NotImplementedError("several replicas, whose tensors this version of Keras does not let us merge")
        return PerReplica(
            {(self._merged.get(key.partition(AGAIN)[0], SAME), key): t for key, t in self.tensors.items()}
        )

    def here(self) -> bool:
        """May tensors of this place be handed over?"""
        return self.backend.place() is self._place

    def add(self, name: str, tensor: Any, kind: str, module_kind: str = "", short: str = "", unit_axis: int = -1,
            collections: Sequence[str] = (), variable: bool = False,
            merged: str = SAME) -> str | None:
        """Takes a tensor, if it is wanted. Returns its key among what was found; None if it is not."""
        if not self.backend.is_tensor(tensor):
            return None
        if self.session.entry(name, kind, module_kind, short, unit_axis, collections, variable) is None:
            return None
        if self.replicas > 1 and merged is not SAME:
            if merged is ROWS and not self._has_rows(tensor):
                self.apart.append(name)
                return None
            self._merged[name] = merged
        key, n = name, 0
        while key in self._into:
            n += 1
            key = f"{name}{AGAIN}{n}"
        if self._only is not None and key not in self._only:
            return None
        self._into[key] = tensor
        return key

    def _add_gradient(self, named: Named, gradient: Any, merged: str = SAME) -> str | None:
        return self.add(named.gradient, gradient, "gradient", named.module_kind, unit_axis=named.unit_axis,
                        merged=merged)

    def _add_weight(self, named: Named, variable: Any) -> str | None:
        return self.add(named.name, self.backend.read(variable), named.kind, named.module_kind, named.short_name,
                        named.unit_axis)

    def _has_rows(self, tensor: Any) -> bool:
        """Does its first axis count the rows of the batch, as far as the graph knows?"""
        return len(tensor.shape) > 0 and tensor.shape[0] == self._rows

    def number(self, name: str, tensor: Any) -> None:
        """One number of the training context."""
        if self.session.context.enabled and name not in self._into:
            self._into[name] = tensor

    # What the patched functions report --------------------------------------------------------------------------

    def batch(self, x: Any, y: Any) -> None:
        """`x`, `y`: what the step function was given, any structure of tensors."""
        tree = self.backend.flatten
        tensors = [t for t in tree(x) if self.backend.is_tensor(t)]
        whole = tensors and (self.replicas == 1 or len(tensors[0].shape) > 0)
        if whole and self.replicas > 1:
            self._rows, self._merged[BATCH] = tensors[0].shape[0], ROWS
        if whole and self.session.context.enabled:
            self.tensors[BATCH] = tensors[0]
        self._several("inputs", tensors, "input", ["model_input"])
        self._several("labels", [t for t in tree(y) if self.backend.is_tensor(t)], "label")

    def predictions(self, y_pred: Any) -> None:
        found = [t for t in self.backend.flatten(y_pred) if self.backend.is_tensor(t)]
        if not any(key.startswith("predictions") for key in self._into):
            self._several("predictions", found, "prediction")

    def _several(self, name: str, tensors: Sequence[Any], kind: str, collections: Sequence[str] = ()) -> None:
        for n, tensor in enumerate(tensors):
            label = name if len(tensors) == 1 else f"{name}_{n}"
            self.add(label, tensor, kind, collections=collections, variable=True,
                     unit_axis=-1 if len(tensor.shape) < 2 else len(tensor.shape) - 1, merged=ROWS)

    def loss(self, value: Any) -> None:
        if self.here() and self.backend.is_tensor(value) and "loss" not in self._into:
            self.add("loss", value, "loss", merged=SUM)     # each replica's is its share of the whole

    def unscaled_loss(self, share: Any, value: Any) -> None:
        """`value`: a replica's own loss, of which its share of the whole, `share`, has been known until now. TensorFlow
        leaves the factor and its inverse out where nobody asks for what is between them; with it the last bit may
        differ."""
        if self.replicas > 1 and self._into.get("loss") is share and self.backend.is_tensor(value):
            self._into["loss"], self._merged["loss"] = value, MEAN

    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        if layer is self.model:
            return
        if not self.here():
            self.unseen.add(layer.name)
            return
        self._calls.append((self._into, layer, (args, kwargs), outputs))

    def name_layers(self) -> None:
        """Outputs and inputs are named when it is known how many there are. Call at the end of the place they are
        of."""
        found: dict[tuple[str, str], tuple[Any, list[Any]]] = {}
        into = self._into
        for own, layer, inputs, outputs in self._calls:
            if own is not into:
                continue
            label = self.session.names.layer(layer, self.model.name if self.model is not None else "")
            for kind, value in (("input", inputs), ("output", outputs)):
                tensors = [t for t in self.backend.flatten(value) if self.backend.is_tensor(t)]
                found.setdefault((kind, label), (layer, []))[1].extend(tensors)
        self._calls = [call for call in self._calls if call[0] is not into]
        for (kind, label), (layer, tensors) in found.items():
            self.session.layer_tensors(self, kind, label, layer, tensors)

    def gradients(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        """`optimizer` is about to apply `gradients`; the variables still have the values they were computed with.
        Returns the gradients to apply: the same values."""
        if not self.here():
            return gradients
        session, backend = self.session, self.backend
        variables = list(variables)
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        if self.model is not None:
            session.names.learn(self.model)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        # In a branch of the graph the sum over the replicas cannot be looked at.
        wait = self.replicas > 1 and backend.sums and inner is optimizer and not inner.gradient_accumulation_steps
        final = gradients if wait else final_gradients(optimizer, gradients, variables, backend)
        passed = list(gradients)
        for n, (variable, gradient) in enumerate(zip(variables, final)):
            named, key, weight = session.names.of(variable), None, None
            if gradient is None:
                self.absent.append(named.gradient)
            elif wait:
                self._awaited[id(backend.native(variable))] = named
            else:
                key = self._add_gradient(named, gradient, merged=SUM)
            if session.wants_weight(named):
                weight = self._add_weight(named, variable)
            if (self._tap is not None and key is not None and gradient is gradients[n]
                    and not inner.gradient_accumulation_steps):
                # The weight first: the update then writes where nobody reads any more.
                passed[n] = self._tap.through(key, gradient, None if weight is None else (weight, self._into[weight]))
        if session.state_wanted:
            for variable in optimizer.variables:
                self.add(variable.path + ":0", backend.read(variable), "optimizer")
        if session.context.enabled:
            label = optimizer.name
            rate = getattr(inner, "learning_rate", None)
            if rate is not None:
                self.number(f"context/lr/{label}/0", backend.read(rate) if hasattr(rate, "path") else rate)
            self.number(f"context/optimizer_step/{label}", backend.read(inner._iterations))
            if optimizer is not inner and optimizer.built:
                self.number("context/loss_scale", backend.read(optimizer.dynamic_scale))
        if inner.gradient_accumulation_steps and inner.built and ITERATION not in self._into:
            self._into[ITERATION] = backend.read(inner._iterations)
        if optimizer is not inner:
            self._into[FINITE] = optimizer.check_finite(gradients)
        if self.before_update is not None:
            self.before_update()
        return passed

    def reduced(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """(gradient, variable): what an optimizer has summed over the replicas and will update with."""
        if not self._awaited or not self.here():
            return
        for gradient, variable in pairs:
            named = self._awaited.pop(id(variable), None)
            if named is not None and gradient is not None:
                self._add_gradient(named, self.backend.dense(gradient))

    def raw_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Gradients of a loop that has no optimizer."""
        for variable, gradient in zip(variables, gradients):
            named = self.session.names.of(variable)
            if gradient is None:
                self.absent.append(named.gradient)
            else:
                self._add_gradient(named, self.backend.dense(gradient))
            if self.session.wants_weight(named):
                self._add_weight(named, variable)


def unscaled(optimizer: Any, loss: Any, backend: Any) -> Any:
    """The loss of a loop of one's own, whose gradient is taken of `optimizer.scale_loss(loss)`."""
    if optimizer is None:
        return loss
    scale = getattr(optimizer, "loss_scale_factor", None)
    if hasattr(optimizer, "inner_optimizer"):
        scale = backend.read(optimizer.dynamic_scale) if optimizer.built else optimizer.initial_scale
    return loss if scale is None else loss / backend.cast(scale, loss)


def final_gradients(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any],
                    backend: Any) -> Sequence[Any]:
    """The gradients as the update takes them: unscaled, averaged over the accumulated ones, clipped. The optimizer does
    the same arithmetic itself, where it cannot be looked at (in a branch); in a graph it is done once."""
    gradients = [backend.dense(g) for g in gradients]
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    scale = None
    if inner is not optimizer:
        scale = backend.read(optimizer.dynamic_scale) if optimizer.built else optimizer.initial_scale
    elif optimizer.loss_scale_factor is not None:
        scale = optimizer.loss_scale_factor
    if scale is not None:
        gradients = [g if g is None else g / backend.cast(scale, g) for g in gradients]
    steps = inner.gradient_accumulation_steps
    if steps and inner.built:
        sums = [inner._accumulated_gradients[inner._get_variable_index(v)] for v in variables]
        gradients = [g if g is None or s is None else (g + backend.read(s)) / steps for g, s in zip(gradients, sums)]
    if any(getattr(inner, name, None) for name in ("clipnorm", "global_clipnorm", "clipvalue")):
        present = [g for g in gradients if g is not None]
        clipped = iter(inner._clip_gradients(present))
        gradients = [g if g is None else next(clipped) for g in gradients]
    return gradients
