"""One training under watch. JAX' functions are pure and compiled: a loop computes gradients (`jax.value_and_grad`), has
an optimizer make updates of them (`GradientTransformation.update`), and applies those (`optax.apply_updates`). Where
these three are called, the values are at hand.

Inside of `jax.jit` they are tracers. A callback there would be one more use of the gradients, XLA would fuse the rest
otherwise, and the training's last bits would be others (in 6 of 80 combinations of model, optimizer and loop that were
tried). So the training's own program is compiled as it is. Beside it, a second one is compiled of the same function,
with callbacks (`jitted.py`); in a step that is due it runs first, on the same arguments, and what it returns is
dropped.

A step is an `apply_updates`. Only values of one and the same trace are put together: a tracer of another one must never
be used.
"""

from __future__ import annotations

import functools
import platform
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax.extend.core import get_opaque_trace_state

from ..guard import say
from ..numbering import Numbering
from ..ranks import of_environment
from ..session import LoopSession
from ..steps import Clock
from ..values import Values
from ..watch import OFF, OPEN
from . import jitted, trees

#: Losses that are kept until an update: whoever computes more trains nothing with them.
MAX_LOSSES = 64
#: Of final weights whose optimizer is gone, the last ones' together: a search over parameters makes many.
KEPT_BYTES = 64 << 20


class _Pending(threading.local):
    """What the calling thread has computed and not applied yet: two that train at once have nothing to do with each
    other."""

    def __init__(self) -> None:
        self.losses: list[tuple[str, Any, Any]] = []    # (name, value, trace) since the last update was applied
        self.update: tuple[int, Any, Any, Any] | None = None    # (serial, gradients, state, trace)


class Session(LoopSession):
    """Threads: a compiled function calls its callback in a thread of XLA's; `_lock` keeps two of them apart."""

    clock: Clock
    accepts = None          # parameters are values: a model that is handed over cannot be found again in them

    def __init__(self, open_run: Callable[..., Any], options: dict[str, Any] | None = None) -> None:
        super().__init__("optax", open_run, options)
        self.clock = Clock(self._begin, self._end)
        self.numbering = Numbering()
        self.values: Any = None
        self._lock = threading.RLock()
        self._inside = threading.local()        # .update: an optimizer's update runs in this thread, and calls others
        # .of: the jitted.Traced that this thread traces; none: nothing is traced
        self.tracing = threading.local()
        self._pending = _Pending()
        self._wrappers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._serials: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._owner: dict[str, int] = {}                    # name of a parameter -> the optimizer that first had it
        self._final: dict[int, list[tuple[Any, Any]]] = {}  # serial -> [(entry, array)] after the last update

    # What is replaced ---------------------------------------------------------------------------------------

    def install(self) -> None:
        self.outside = get_opaque_trace_state()
        self.patches.replace([jax], "jit", lambda original: jitted.watching(original, self))
        self.patches.replace([jax, _module(jax.value_and_grad)], "value_and_grad", self._watch_gradients)
        self.patches.replace([optax.GradientTransformation], "update", lambda original: _Update(original, self))
        self.patches.replace([optax, _module(optax.apply_updates)], "apply_updates", self._watch_apply)

    def _watch_gradients(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def value_and_grad(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            made = original(fun, *args, **kwargs)
            has_aux = kwargs.get("has_aux", args[1] if len(args) > 1 else False)

            def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
                result = made(*args, **kwargs)
                if session.listening:
                    session.guarded("a loss", session._saw_loss, result[0][0] if has_aux else result[0])
                return result

            return functools.wraps(made)(value_and_grad_f)

        return value_and_grad

    def watched_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """`update` of a transformation, which tells us of its gradients. The same one for the same: a function that is
        given to jax.jit is compiled once."""
        known: Callable[..., Any] | None = self._wrappers.get(id(update))
        if known is not None:
            return known
        session = self

        def watched(updates: Any, state: Any, params: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not session.listening or getattr(session._inside, "update", False):
                return update(updates, state, params, *args, **kwargs)
            session.guarded("gradients", session._saw_gradients, update, updates, state)
            session._inside.update = True
            try:
                return update(updates, state, params, *args, **kwargs)
            finally:
                session._inside.update = False

        functools.update_wrapper(watched, update)
        self._wrappers[id(update)] = watched     # it holds `update`: no other has its id meanwhile
        return watched

    def _watch_apply(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self

        def apply_updates(params: Any, updates: Any) -> Any:
            result = original(params, updates)
            if session.listening and not getattr(session._inside, "update", False):
                session.guarded("an update", session._applied, params, result)
            return result

        return apply_updates

    # Events -------------------------------------------------------------------------------------------------

    def _saw_loss(self, value: Any) -> None:
        if getattr(value, "shape", None) == () and len(self._pending.losses) < MAX_LOSSES:
            self._pending.losses.append(("loss", value, get_opaque_trace_state()))

    def _saw_gradients(self, update: Callable[..., Any], gradients: Any, state: Any) -> None:
        if self._pending.update is not None:
            self.say_once(
                "optax: updates that the script applies by other means than optax.apply_updates are not captured"
            )
        serial = self._serials.get(update)
        if serial is None:
            serial = self._serials[update] = self._count
            self._count += 1
        self._pending.update = serial, gradients, state, get_opaque_trace_state()

    def _applied(self, params: Any, new: Any) -> None:
        """`apply_updates` has made `new` of `params`. Traced or not: what is wanted of it goes to the host."""
        pending = self._pending
        update, pending.update = pending.update, None
        losses, pending.losses = pending.losses, []
        here = get_opaque_trace_state()
        if update is None or update[3] != here:
            self.say_once("optax: updates that are not computed in the function that applies them are not captured")
            return
        if any(type(leaf).__name__ == "BatchTracer" for leaf in jax.tree_util.tree_leaves(params)):
            self.say_once("optax: updates under jax.vmap are not captured")
            return
        if jax.process_count() > 1:
            self.say_once("optax: a training of several processes is not captured")
            return
        if not self.ensure_open():
            return
        traced = getattr(self.tracing, "of", None)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(new)):
            if traced is None:
                self.say_once(
                    "optax: updates in a function that was given to jax.jit before tdbg watched are not captured"
                )
                return
            if not traced.instrumented:
                traced.saw_update(serial_of=update[0], looped=here != traced.outside)
                return
        serial, gradients, state, _ = update
        keys, tensors = self._wanted(serial, params, gradients, state, new,
                                     [(name, value) for name, value, trace in losses if trace == here])

        def host(*arrays: Any) -> None:
            if self.state is OPEN:
                with self._lock:
                    self.guarded("a step", self._put, serial, keys, arrays)

        if any(isinstance(leaf, jax.core.Tracer) for leaf in [*tensors, *jax.tree_util.tree_leaves(params)]):
            jax.debug.callback(host, *tensors)
        else:
            host(*tensors)

    def _wanted(self, serial: int, params: Any, gradients: Any, state: Any, new: Any,
                losses: list[tuple[str, Any]]) -> tuple[list[tuple[str, Any]], list[Any]]:
        """([(what it is, Entry)], the tensors): of all that is at hand what the plan ever wants."""
        keys: list[tuple[str, Any]] = []
        tensors: list[Any] = []

        def want(what: str, name: str, tensor: Any, kind: str) -> None:
            entry = self.values.entry(name, kind)
            if entry is not None:
                keys.append((what, entry))
                tensors.append(tensor)

        found = trees.named(params)
        for name, tensor in found:
            want("value", self._full(serial, name), tensor, trees.kind(name))
        for name, tensor in trees.named(gradients):
            want("value", "gradient/" + self._full(serial, name), tensor, "gradient")
        for name, slot, tensor in trees.state_of(state, {name: tuple(tensor.shape) for name, tensor in found}):
            want("value", f"optimizer/{self._full(serial, name)}/{slot}", tensor, "optimizer")
        for name, tensor, _ in self.numbering.names([(name, value, 0) for name, value in losses], owner=serial):
            want("value", name, tensor, "loss")
        self.numbering.next_optimizer(serial)
        if self.plan.get("record_end", True):
            for name, tensor in trees.named(new):
                want("final", self._full(serial, name), tensor, trees.kind(name))
        return keys, tensors

    def _full(self, serial: int, name: str) -> str:
        """Two models may call their parameters the same: the second one's have its optimizer's number in front."""
        return name if self._owner.setdefault(name, serial) == serial else f"{serial}/{name}"

    def forget_trace(self) -> None:
        """What a function that was traced left is of no use to anybody, and must not be used."""
        self._pending.losses, self._pending.update = [], None

    # Steps --------------------------------------------------------------------------------------------------

    def passes(self, serials: list[int]) -> None:
        """Steps in which nothing is due: they are counted."""
        with self._lock:
            for serial in serials:
                self.clock.about_to_step(serial)
                self.clock.has_stepped(serial)

    def _put(self, serial: int, keys: list[tuple[str, Any]], arrays: tuple[Any, ...]) -> None:
        due = self.clock.about_to_step(serial)
        now, final = [], []
        for (what, entry), array in zip(keys, arrays, strict=True):
            if what == "final":
                final.append((entry, np.array(array)))      # a copy: the memory is XLA's
            elif due:
                now.append((entry, np.asarray(array)))
        self.values.put(now)
        self._keep(serial, final)
        self.clock.has_stepped(serial)

    def _keep(self, serial: int, final: list[tuple[Any, Any]]) -> None:
        """Weights as they are now, for the end of the run."""
        self._final[serial] = final
        if len(self._final) > 1:
            living, room = {serial, *self._serials.values()}, KEPT_BYTES
            for gone in [s for s in reversed(self._final) if s not in living]:
                room -= sum(array.nbytes for _, array in self._final[gone])
                if room < 0:
                    del self._final[gone]

    def _begin(self, mode: int) -> bool:
        due = self.begin_step(mode)
        self.waiting.write()
        return due

    def _end(self, mode: int, skipped: bool) -> None:
        self.context.flush()
        self.port.end_step(skipped)
        self.step_is_over()
        self.take_request()

    # A Framework's ------------------------------------------------------------------------------------------

    def adaptor(self) -> str:
        return f"optax {optax.__version__}"

    def rank(self) -> tuple[int, int]:
        return of_environment() or (0, 1)

    def watch(self, models: list[Any]) -> None:
        if models:
            say("attach: with JAX whatever optax updates is recorded; `model` is not used")

    def _opened(self) -> None:
        super()._opened()
        self.values = Values(self.run)
        self.context.topic(
            "versions", {"jax": jax.__version__, "optax": optax.__version__, "python": platform.python_version()}
        )

    def record_value(self, name: str, tensor: Any, collection: str) -> None:
        self.values.record(self, name, np.array(tensor), collection)

    def record_scalar(self, name: str, value: Any, collection: str) -> None:
        number, ident = float(value), self.context.id("scalar/" + name, collection)
        self.soon(lambda: self.port.put_scalars([ident], [number], 0))

    def _last_words(self) -> None:
        jax.effects_barrier()           # steps that were dispatched, and have not run yet
        with self._lock:
            self.clock.close()
            if self.begin_end():
                for final in self._final.values():
                    self.values.put(final)

    def disarm(self) -> None:
        self.state = OFF
        self.patches.undo()
        self._pending = _Pending()          # of all threads
        self._final.clear()


class _Update:
    """Takes the place of `GradientTransformation.update`, which is a field of a named tuple."""

    def __init__(self, original: Any, session: Session) -> None:
        self._original, self._session = original, session

    def __get__(self, transformation: Any, owner: Any = None) -> Any:
        if transformation is None:
            return self
        update = self._original.__get__(transformation, owner)
        try:
            return self._session.watched_update(update) if self._session.listening else update
        except TypeError:               # nothing of its kind can be referred to weakly
            return update


def _module(function: Any) -> Any:
    """Where it is defined."""
    return sys.modules[function.__module__]
