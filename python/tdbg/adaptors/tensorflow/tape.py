"""`tf.GradientTape.gradient`: the loss of a loop of one's own and, where it has no optimizer, the step itself."""

import tensorflow as tf

from ..guard import say


def patch(patches, session_of):
    def watch_gradient(original):
        def gradient(tape, target, sources, *args, **kwargs):
            result = original(tape, target, sources, *args, **kwargs)
            session = _quietly(session_of)
            if session is not None:
                try:
                    session.loops.took_gradient(target, sources, result)
                except Exception as error:
                    session.guard.failed("a tape's gradient", error)
            return result
        return gradient

    patches.replace([tf.GradientTape], "gradient", watch_gradient)

    def watch_enter(original):
        def __enter__(tape):
            session = _quietly(session_of)
            if session is not None:
                try:
                    session.loops.tape_begins()
                except Exception as error:
                    session.guard.failed("a tape", error)
            return original(tape)
        return __enter__

    patches.replace([tf.GradientTape], "__enter__", watch_enter)


_said = set()


def _quietly(session_of):
    try:
        return session_of()
    except Exception as error:
        if type(error) not in _said:
            _said.add(type(error))
            say(f"nothing of a loop without Keras is captured: {type(error).__name__}: {error}")
        return None
