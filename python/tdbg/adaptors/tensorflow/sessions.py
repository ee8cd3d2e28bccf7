"""Sessions of TensorFlow 1 (`tf.compat.v1.train.MonitoredSession`): a run of the session that computes an optimizer's
update is a TRAIN step. Names are the graph's, as smdebug's SessionHook has them.

Weights are read by a session run of their own before the update: fetched with it, they may be those before or after.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..guard import pass_on, say
from ..steps import TRAIN
from .graphs import computed, split

if TYPE_CHECKING:
    from ..patches import Patches

v1 = tf.compat.v1
#: Graph -> what optimizers were asked in it.
_graphs: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


class _Known:
    def __init__(self) -> None:
        # By name: a tensor or an operation holds its graph, which would never die.
        self.gradients: dict[str, None] = {}    # tensors, in order
        self.updates: set[str] = set()    # operations


def _known(graph: Any) -> _Known:
    return _graphs.setdefault(graph, _Known())


def patch(patches: Patches, session_of: Callable[[], Any]) -> None:
    def watch_apply(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_gradients(optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            update = original(optimizer, pairs, *args, **kwargs)
            try:
                if not tf.executing_eagerly() and isinstance(update, (tf.Operation, tf.Tensor)):
                    known = _known(update.graph)
                    known.updates.add(update.name.partition(":")[0])
                    for gradient, _ in pairs:
                        if isinstance(gradient, tf.Tensor) and gradient.graph is update.graph:
                            known.gradients[gradient.name] = None
            except BaseException as error:
                _failed(session_of, "an optimizer of TensorFlow 1", error)
            return update
        return apply_gradients

    patches.replace([v1.train.Optimizer], "apply_gradients", watch_apply)

    def watch_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(session: Any, session_creator: Any = None, hooks: Any = None, *args: Any, **kwargs: Any) -> None:
            try:
                hooks = [*(hooks or ()), Hook(session_of)]
            except BaseException as error:
                _failed(session_of, "a MonitoredSession", error)
            original(session, session_creator, hooks, *args, **kwargs)
        return __init__

    patches.replace([v1.train.MonitoredSession], "__init__", watch_init)


def _failed(session_of: Callable[[], Any], site: str, error: BaseException) -> None:
    try:
        session_of().guard.failed(site, error)
    except AttributeError:      # there is no session
        pass_on(error)
        say(f"could not capture ({site}: {error}); training goes on")


class Hook(v1.train.SessionRunHook):  # type: ignore[misc, name-defined]
    """A step is opened when its run has come back: one that fails, as the last of a dataset does, is none."""

    def __init__(self, session_of: Callable[[], Any]) -> None:
        self._session_of = session_of
        self._steps = False
        self._read: list[tuple[Any, Any]] = []  # [(entry, value)]: variables as the run found them

    def before_run(self, context: Any) -> Any:
        self._steps, self._read = False, []
        try:
            return self._before(context)
        except BaseException as error:
            _failed(self._session_of, "a session's run", error)
            return None

    def _before(self, context: Any) -> Any:
        session = self._session_of()
        if session is None or session.elsewhere():
            return None
        graph, arguments = context.session.graph, context.original_args
        known = _known(graph)
        if not known.updates or known.updates.isdisjoint(computed(graph, arguments.fetches, arguments.feed_dict)):
            return None
        if not session.ensure_open():
            return None
        self._steps = True
        if not session.forecast.due(TRAIN, session.next_step(TRAIN)):
            return None
        variables = [v for v in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
                     if session.values.entry(v.name, _kind(v.name)) is not None]
        if variables:
            values = context.session.run(variables)
            self._read = [(session.values.known(v.name), value) for v, value in zip(variables, values)]
        wanted = {name: graph.get_tensor_by_name(name) for name in known.gradients
                  if session.values.entry(name, "gradient") is not None}
        for loss in graph.get_collection(v1.GraphKeys.LOSSES):
            if session.values.entry(loss.name, "loss") is not None:
                wanted[loss.name] = loss
        beside = split(graph, arguments.fetches, arguments.feed_dict, wanted.values()).beside if wanted else ()
        wanted = {name: tensor for name, tensor in wanted.items() if name in beside}
        return v1.train.SessionRunArgs(wanted) if wanted else None

    def after_run(self, context: Any, values: Any) -> None:
        if not self._steps:
            return
        session = self._session_of()
        try:
            if session is not None and session.begin(TRAIN):
                session.values.put(self._read + [(session.values.known(name), value)
                                                 for name, value in (values.results or {}).items()])
            if session is not None:
                session.close_step()
        except BaseException as error:
            _failed(self._session_of, "the end of a session's run", error)


def _kind(name: str) -> str:
    return "bias" if "bias" in name.rsplit("/", 1)[-1] else "weight"
