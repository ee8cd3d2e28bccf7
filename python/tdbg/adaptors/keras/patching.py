"""What is replaced in Keras: the methods that make a model's functions, optimizers' `apply`, the loss, layers'
calls."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras

from ..steps import EVAL
from . import collect
from .building import STEPS
from .functions import Watched
from .recording import metric

if TYPE_CHECKING:
    from ..patches import Patches
    from .session import Session


def _trainer() -> Any:
    return keras.Model.__mro__[0] if not hasattr(keras.Model, "make_train_function") else next(
        c for c in keras.Model.__mro__ if "make_train_function" in c.__dict__)


def patch(patches: Patches, session: Session) -> list[str]:
    """Puts the adaptor into Keras; what this version of Keras does not have is returned, as texts."""
    from keras.src.optimizers import base_optimizer, loss_scale_optimizer
    from keras.src.trainers import trainer as base_trainer
    if not hasattr(keras.Model, "make_train_function"):
        return ["Model.make_train_function"]
    for mode, (_, function, make) in STEPS.items():
        patches.replace([_trainer()], make, functools.partial(_making, session, mode, function))
    optimizer, scaling = base_optimizer.BaseOptimizer, loss_scale_optimizer.LossScaleOptimizer
    patches.replace([optimizer], "__init__", functools.partial(_watch_init, session))
    missing = _patch_replicas(patches, session) if session.backend.name == "tensorflow" else []
    patches.replace([optimizer, scaling], "apply", functools.partial(_watch_apply, session))
    patches.replace([scaling], "stateless_apply", functools.partial(_watch_stateless, session))
    patches.replace([base_trainer.Trainer], "_compute_loss", functools.partial(_watch_loss, session))
    patches.replace([keras.callbacks.CallbackList], "on_epoch_end", functools.partial(_watch_epoch, session))
    return missing


def patch_layers(patches: Patches, session: Session) -> None:
    """From here on every layer's call is looked at: where it is traced, or on the torch backend at every step."""
    patches.replace([keras.layers.Layer], "__call__", functools.partial(_watch_call, session))


def _patch_replicas(patches: Patches, session: Session) -> list[str]:
    """Under a strategy with several replicas: where one output is made of the replicas', and gradients are summed.
    Returns what is missing."""
    from keras.src.backend.tensorflow import optimizer, trainer
    from keras.src.losses import loss
    patches.replace([loss], "unscale_loss_for_distribution", functools.partial(_watch_unscale, session))
    session.backend.merges = hasattr(trainer, "reduce_per_replica")
    session.backend.sums = "_all_reduce_sum_gradients" in vars(optimizer.TFOptimizer)
    patches.replace([trainer], "reduce_per_replica", functools.partial(_watch_reduce, session))
    patches.replace([optimizer.TFOptimizer], "_all_reduce_sum_gradients", functools.partial(_watch_sum, session))
    return [] if session.backend.merges else ["trainer.reduce_per_replica"]


# What stands in place of Keras' functions: each calls the original, whatever happens to us
# -------------------------------
#
# torch.compile takes `session.backend.compiling` for a constant, and leaves out what follows it.


def _watch_apply(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    compiling = session.backend.compiling

    def apply(optimizer: Any, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        if compiling():
            return original(optimizer, grads, trainable_variables)
        collector, number = collect.current(), None
        try:
            grads = list(grads)
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
            variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
            if collector is not None:
                grads = _applying(collector, optimizer, grads, variables)
            elif not session.loops.silent:
                number = session.loops.applying(optimizer, grads, variables)
        except BaseException as error:
            session.guard.failed("an optimizer's gradients", error)
        if number is None:
            return original(optimizer, grads, trainable_variables)
        with session.loops.silence():       # what an inner optimizer does meanwhile is no other step
            result = original(optimizer, grads, trainable_variables)
        session.loops.applied(number)
        return result
    return apply


def _watch_init(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        session.loops.made_optimizer()
    return __init__


def _watch_stateless(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def look(collector: collect.Collector, optimizer: Any, optimizer_variables: Any, grads: Sequence[Any],
             trainable_variables: Any) -> None:
        from keras.src import backend
        mapping = [*zip(optimizer._trainable_variables, trainable_variables),
                   *zip(optimizer.variables, optimizer_variables)]
        with backend.StatelessScope(state_mapping=mapping):
            _applying(collector, optimizer, list(grads), None)

    def stateless_apply(
        optimizer: Any, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any
    ) -> Any:
        collector = collect.current()
        if collector is not None:
            session.guarded(
                "an optimizer's gradients", look, collector, optimizer, optimizer_variables, grads, trainable_variables
            )
        return original(optimizer, optimizer_variables, grads, trainable_variables)
    return stateless_apply


def _watch_loss(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    compiling = session.backend.compiling

    def look(collector: collect.Collector, y_pred: Any, value: Any) -> None:
        if collector.here():
            collector.predictions(y_pred)
        collector.loss(value)

    def _compute_loss(model: keras.Model, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None,
                      training: bool = True) -> Any:
        value = original(model, x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        if compiling():
            return value
        collector = collect.current()
        if collector is not None and collector.model is model:
            session.guarded("a loss", look, collector, y_pred, value)
        return value
    return _compute_loss


def _watch_epoch(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_end(callbacks: Any, epoch: int, logs: dict[str, Any] | None = None) -> Any:
        session.guarded("the end of an epoch", _epoch_ended, session, logs)
        return original(callbacks, epoch, logs)
    return on_epoch_end


def _watch_reduce(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_per_replica(values: Any, strategy: Any, reduction: Any) -> Any:
        if not (isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], collect.PerReplica)):
            return original(values, strategy, reduction)
        return original(values[0], strategy, reduction), session.backend.merge(values[1], strategy)
    return reduce_per_replica


def _watch_sum(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def _all_reduce_sum_gradients(optimizer: Any, grads_and_vars: Any) -> Any:
        pairs = original(optimizer, grads_and_vars)
        collector = collect.current()
        if collector is not None:
            session.guarded("gradients of several replicas", collector.reduced, pairs)
        return pairs
    return _all_reduce_sum_gradients


def _watch_unscale(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale_loss_for_distribution(value: Any) -> Any:
        result = original(value)
        collector = collect.current()
        if collector is not None:
            session.guarded("a replica's loss", collector.unscaled_loss, value, result)
        return result
    return unscale_loss_for_distribution


def _watch_call(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    compiling = session.backend.compiling

    def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = original(layer, *args, **kwargs)
        if compiling():
            return outputs
        try:
            (collect.current() or session.loops).layer(layer, args, kwargs, outputs)
        except BaseException as error:
            session.guard.failed("a layer's outputs", error)
        return outputs
    return __call__


def _applying(collector: collect.Collector, optimizer: Any, grads: Sequence[Any],
              variables: Sequence[Any] | None) -> Sequence[Any]:
    """Returns what is to be applied in place of `grads`."""
    if variables is None:
        variables = optimizer._trainable_variables
    # An inner optimizer (of a LossScaleOptimizer) applies what the outer one has been asked already.
    if any(getattr(o, "inner_optimizer", None) is optimizer for o in collector.optimizers):
        return grads
    return collector.gradients(optimizer, grads, variables)


def _epoch_ended(session: Session, logs: dict[str, Any] | None) -> None:
    """`val_loss`, `val_accuracy`, ...: in the last step of the evaluation that they are of."""
    if session.run is None or session.elsewhere() or session.open_mode != EVAL:
        return
    numbers = {name: value for name, value in (logs or {}).items() if name.startswith("val_")}
    for name, value in numbers.items():
        session.values.put(metric(session, name, value))
    for listener in session.on_validation_end:
        listener(numbers)
    session.close_step()


def _keras_own(session: Session, function: Any) -> Callable[..., Any] | None:
    """Keras' own function, out of what an earlier watch left around it; None where this session watches it already."""
    if isinstance(function, Watched):
        return None if function.session is session else function.bare
    return function if callable(function) else None


def catch_up(session: Session) -> None:
    """Attached while a model trains: its functions are watched from the next batch on. Walks over the live objects."""
    for model in [o for o in gc.get_objects() if issubclass(type(o), keras.Model)]:
        for mode, (_, attribute, make) in STEPS.items():
            present = _keras_own(session, getattr(model, attribute, None))
            if present is not None:
                original = getattr(type(model), make)
                setattr(model, attribute, Watched(session, model, mode, present,
                                                  getattr(original, "__wrapped__", original)))


def _making(session: Session, mode: int, attribute: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def make(model: keras.Model, force: bool = False) -> Any:
        present = getattr(model, attribute, None)
        if force or present is None:
            original(model, force)
            present = getattr(model, attribute, None)
        try:
            present = _keras_own(session, present)
            if present is not None:
                setattr(model, attribute, Watched(session, model, mode, present, original))
        except BaseException as error:
            session.guard.failed(f"{attribute}", error)
        return getattr(model, attribute, None)
    return make
