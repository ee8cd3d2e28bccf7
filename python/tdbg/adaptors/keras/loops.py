"""Training loops of one's own: what is seen of them is an optimizer that applies gradients, and a tape.

Where everything is executed at once (TensorFlow eagerly, torch), weights, gradients and the loss are put before the
update. Inside a `tf.function` of the script's own there are no values while it is traced and no outputs to add to: the
tensors are handed to a host function that runs before the update, at every call. XLA has no such thing.

A step closes as in the other adaptors (steps.py): when every optimizer that stepped in the last one has stepped again.
A loop without any optimizer (`w.assign_sub(lr * g)`) has a step per gradient that it takes.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..steps import TRAIN, Clock
from ..watch import ARMED, OFF
from . import collect

if TYPE_CHECKING:
    from .session import Session


def _weakly(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:       # of a class that allows none
        return lambda: owner


class Loops:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.clock = Clock(session.begin, lambda mode, skipped: session.close_step(skipped))
        # id of an optimizer, or of a loop's first variable -> it, weakly, and its number
        self._numbers: dict[int, tuple[Callable[[], Any], int]] = {}
        self._count = 0
        self._loss: Any = None
        self._collector: collect.Collector | None = None    # of the step that is under way, for layers
        # A step stays open until the next tape or update: a script's own values are its step's after the update, too.
        self.stays_open = False
        self.silent = False                 # inside of an optimizer, or of a function of Keras'
        self._in_graph = False
        # id of a loop's first variable -> is there an optimizer that may apply its gradients?
        self._has_optimizer: dict[int, bool] = {}

    def close(self) -> None:
        self.clock.close()

    def forget(self) -> None:
        """The watch is over."""
        self._numbers.clear()
        self._loss = self._collector = None

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        before, self.silent = self.silent, True
        try:
            yield
        finally:
            self.silent = before

    # Events -------------------------------------------------------------------------------------------------------

    def made_optimizer(self) -> None:
        self._has_optimizer.clear()

    def tape_begins(self) -> None:
        """Layers are watched from the first tape on, if the plan wants them; what is known before the first step."""
        session = self._session
        if self.stays_open and session.backend.place() is None and not self.silent and not session.elsewhere():
            self.close()
        if (session.state is ARMED and collect.current() is None and session.backend.place() is None
                and not session.backend.is_distributed()):
            session.ensure_open()

    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        """A layer was called, outside of any function of Keras'."""
        session = self._session
        if session.layers_wanted and not self.silent and not session.elsewhere() and session.backend.recording():
            if self._collector is None:
                self._collector = collect.Collector(session, session.backend, None, TRAIN)
            if self._collector.here():
                self._collector.layer(layer, args, kwargs, outputs)

    def took_gradient(self, target: Any, sources: Any, gradients: Sequence[Any]) -> None:
        """`GradientTape.gradient`. Where no optimizer is known, this is the step."""
        backend = self._session.backend
        if self._session.state is OFF or self.silent or collect.current() is not None or self._is_not_ours():
            return
        loss = target if backend.is_tensor(target) and not target.shape.rank else None
        self._loss = loss
        pairs = [(v, g) for v, g in zip(backend.flatten(sources), backend.flatten(gradients)) if backend.is_variable(v)]
        if pairs and not self._optimizer_of([v for v, _ in pairs]):
            self._step(None, [g for _, g in pairs], [v for v, _ in pairs])
            if not self._in_graph:
                self._has_stepped(self._number(pairs[0][0]))

    def _optimizer_of(self, variables: Sequence[Any]) -> bool:
        """Does an optimizer live that is built for one of them, or for nothing yet?"""
        key = id(variables[0])
        if key not in self._has_optimizer:
            kind = keras.optimizers.Optimizer
            found = [o for o in gc.get_objects() if issubclass(type(o), kind)]
            self._has_optimizer[key] = any(
                not o.built or any(v is w for v in variables for w in o._trainable_variables) for o in found)
        return self._has_optimizer[key]

    def applying(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> int | None:
        """An optimizer is about to apply gradients. Returns its number, for `applied`."""
        session = self._session
        if session.state is OFF or self._is_not_ours():
            return None
        if session.backend.name == "jax":
            session.say_once("a JAX loop of the script's own: nothing of it is captured (Keras' own fit on JAX is)")
            return None
        self._step(optimizer, gradients, variables)
        return self._number(optimizer)

    def _is_not_ours(self) -> Any:
        """Is it in another thread, such as a replica's?"""
        if self._session.backend.is_distributed():
            self._session.say_once(
                "a loop of the script's own under a tf.distribute strategy: nothing of it is captured "
                "(Keras' own fit under one is)"
            )
            return True
        return self._session.elsewhere()

    def applied(self, number: int | None) -> None:
        if number is not None and not self._in_graph:
            self._has_stepped(number)

    def _has_stepped(self, number: int) -> None:
        if not self.stays_open:
            self.clock.has_stepped(number)

    # One step -----------------------------------------------------------------------------------------------------

    def _number(self, owner: Any) -> int:
        known = self._numbers.get(id(owner))
        if known is None or known[0]() is not owner:
            # A script that trains one model after another must have their memory back: an optimizer holds variables.
            known = self._numbers[id(owner)] = _weakly(owner), self._count
            self._count += 1
        return known[1]

    def _step(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        session, backend = self._session, self._session.backend
        self._in_graph = backend.place() is not None
        session.opens_with(optimizer, TRAIN)
        if not session.ensure_open():
            return
        if self._in_graph and not backend.has_host_calls():
            session.say_once(
                "a tf.function with jit_compile=True that trains with a loop of its own: nothing of it is captured, "
                "because XLA calls no host function (Keras' own fit with jit_compile=True is captured)"
            )
            return
        session.learn_live(variables)
        number = self._number(optimizer if optimizer is not None else variables[0])
        if not self._in_graph and not self.clock.about_to_step(number):
            self._collector = None
            return
        collector, self._collector = self._collector, None
        if collector is None or not collector.here():
            collector = collect.Collector(session, backend, None, TRAIN)
        if optimizer is None:
            collector.raw_gradients(gradients, variables)
        else:
            collector.gradients(optimizer, gradients, variables)
        if self._loss is not None and (not self._in_graph or self._loss.graph is backend.place()):
            loss, self._loss = self._loss, None
            collector.add("loss", collect.unscaled(optimizer, loss, backend), "loss")
        extras = collector.take()
        if not self._in_graph:
            self._put({key: backend.numpy(tensor) for key, tensor in extras.items()}, len(collector.absent))
            return
        names, absent = list(extras), len(collector.absent)

        def host(*arrays: Any) -> None:
            try:
                if session.listening_in_function():
                    if self.clock.about_to_step(number):
                        self._put(dict(zip(names, arrays)), absent)
                    self._has_stepped(number)
            except BaseException as error:
                session.guard.failed("a step inside a tf.function", error)

        backend.call_host(host, [extras[name] for name in names])

    def _put(self, arrays: dict[str, Any], absent: int) -> None:
        session = self._session
        found: dict[int, list[tuple[Any, Any]]] = {}
        for key, array in arrays.items():
            if key.startswith("context/"):
                session.context.add(key, array)
            elif key not in (collect.ITERATION, collect.FINITE):
                name, _, repeated = key.partition(collect.AGAIN)
                found.setdefault(int(repeated) + 1 if repeated else 0, []).append(
                    (session.values.known(name), np.asarray(array))
                )
            elif key == collect.FINITE and not bool(array):
                self.clock.skipped = True
        for sub, pairs in found.items():
            session.values.put(pairs, sub)
        for model in session.trained_models():
            session.untrained.put(session.untrained.look(model, None, True))
        session.context.add("context/gradients_absent", absent)
