"""`tf.GradientTape.gradient`: the loss of a loop of one's own and, where it has no optimizer, the step itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ...words import error_text
from ..guard import pass_on, say

if TYPE_CHECKING:
    from ..patches import Patches


def patch(patches: Patches, session_of: Callable[[], Any]) -> None:
    def watch_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tape, target, sources, *args, **kwargs)
            session = _quietly(session_of)
            if session is not None:
                try:
                    session.loops.took_gradient(target, sources, result)
                except BaseException as error:
                    session.guard.failed("a tape's gradient", error)
            return result
        return gradient

    patches.replace([tf.GradientTape], "gradient", watch_gradient)

    def watch_enter(original: Callable[..., Any]) -> Callable[..., Any]:
        def __enter__(tape: Any) -> Any:
            session = _quietly(session_of)
            if session is not None:
                try:
                    session.loops.tape_begins()
                except BaseException as error:
                    session.guard.failed("a tape", error)
            return original(tape)
        return __enter__

    patches.replace([tf.GradientTape], "__enter__", watch_enter)


_said: set[type] = set()


def _quietly(session_of: Callable[[], Any]) -> Any:
    try:
        return session_of()
    except Exception as error:
        pass_on(error)
        if type(error) not in _said:
            _said.add(type(error))
            say(f"nothing of a loop without Keras is captured: {error_text(error)}")
        return None
