"""`jax.jit`, so that a function which trains is compiled a second time, with callbacks: the training's own program is
not touched."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

from ..steps import TRAIN
from ..watch import OFF


class Traced:
    """One tracing of a function.

    :ivar instrumented: with callbacks
    :ivar updates: the optimizers whose updates are applied in it, in order
    :ivar loops: some are in a loop of JAX': how often, is known only while it runs
    """

    def __init__(self, instrumented: bool) -> None:
        self.instrumented = instrumented
        self.updates: list[int] = []
        self.loops = False
        self.outside: Any = None

    def saw_update(self, serial_of: int, looped: bool) -> None:
        self.updates.append(serial_of)
        self.loops |= looped


class Jitted:
    """Takes the place of what jax.jit returns: `made`, whose attributes it has.

    :param shadow: makes the function with callbacks, once it is known that this one trains
    """

    def __init__(self, session: Any, fun: Any, made: Any, state: dict[str, Any], shadow: Callable[[], Any]) -> None:
        self._session, self._fun, self._made, self._state, self._make_shadow = session, fun, made, state, shadow
        self._shadow: Any = None
        self.__wrapped__ = getattr(made, "__wrapped__", made)
        self.__name__, self.__doc__ = getattr(made, "__name__", "jitted"), getattr(made, "__doc__", None)

    def __getattr__(self, name: str) -> Any:
        if name == "_made":         # of one that is being copied
            raise AttributeError(name)
        return getattr(self._made, name)

    def __reduce__(self) -> Any:
        return self._made.__reduce__()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session, state = self._session, self._state
        if session.state is OFF:
            return self._made(*args, **kwargs)
        if get_opaque_trace_state() != session.outside:
            return self._inside(getattr(session.tracing, "of", None), args, kwargs)
        if state["donates"] and not state["traced"]:
            session.guarded("tracing a function", self._made.trace, *args, **kwargs)     # the call finds it traced
        trains = bool(state["updates"])
        if trains:
            session.guarded("a step", self._watch, args, kwargs)
            return self._made(*args, **kwargs)
        traced = state["traced"]
        result = self._made(*args, **kwargs)
        if state["updates"] and not traced and not state["donates"]:
            session.guarded("a step", self._watch, args, kwargs)        # its first call, which said that it trains
        return result

    def _inside(self, outer: Traced | None, args: Any, kwargs: Any) -> Any:
        """Called in a function that is being traced. What JAX knows of an earlier tracing it does not trace again."""
        if outer is not None and outer.instrumented:
            return self._fun(*args, **kwargs)
        before = 0 if outer is None else len(outer.updates)
        result = self._made(*args, **kwargs)
        if outer is not None and len(outer.updates) == before:
            outer.updates += self._state["updates"]
            outer.loops |= self._state["loops"]
        return result

    def _watch(self, args: Any, kwargs: Any) -> None:
        session, state = self._session, self._state
        if not session.ensure_open():
            return
        if not state["loops"] and not session.forecast.due(TRAIN, session.next_step(TRAIN)):
            session.passes(state["updates"])
            return
        if self._shadow is None:
            self._shadow = self._make_shadow()
        self._shadow(*args, **kwargs)
        jax.effects_barrier()       # the next step's may begin before it has ended: it does not wait for this one's


def watching(original: Callable[..., Any], session: Any) -> Callable[..., Any]:
    def jit(fun: Any = None, /, **options: Any) -> Any:
        if fun is None or not callable(fun):
            return (lambda fun: jit(fun, **options)) if fun is None else original(fun, **options)
        if not session.listening:
            return original(fun, **options)
        state: dict[str, Any] = {"updates": [], "loops": False, "traced": False,
                                 "donates": bool(options.get("donate_argnums") or options.get("donate_argnames"))}

        def traced(instrumented: bool) -> Callable[..., Any]:
            @functools.wraps(fun)
            def body(*args: Any, **kwargs: Any) -> Any:
                before = getattr(session.tracing, "of", None)
                if not session.listening:
                    return fun(*args, **kwargs)
                if before is not None:          # one in another is a part of that
                    known = len(before.updates)
                    result = fun(*args, **kwargs)
                    state.update(updates=before.updates[known:], loops=before.loops, traced=True)
                    return result
                own = session.tracing.of = Traced(instrumented)
                own.outside = get_opaque_trace_state()
                try:
                    return fun(*args, **kwargs)
                finally:
                    session.tracing.of = None
                    session.forget_trace()
                    if not instrumented:
                        state.update(updates=own.updates, loops=own.loops, traced=True)
            return body

        def shadow() -> Any:
            return original(traced(True), **{k: v for k, v in options.items() if not k.startswith("donate_")})

        return Jitted(session, fun, original(traced(False), **options), state, shadow)

    return jit
