"""What is replaced in Keras: the methods that make a model's functions, optimizers' `apply`, the loss, layers' calls."""

import functools
import gc

import keras

from ..steps import EVAL
from . import collect
from .functions import STEPS, Watched, metric


def _trainer():
    return keras.Model.__mro__[0] if not hasattr(keras.Model, "make_train_function") else next(
        c for c in keras.Model.__mro__ if "make_train_function" in c.__dict__)


def patch(patches, session):
    """Puts the adaptor into Keras; what this version of Keras does not have is returned, as texts."""
    from keras.src.optimizers import base_optimizer, loss_scale_optimizer
    from keras.src.trainers import trainer as base_trainer
    missing, compiling = [], session.backend.compiling      # torch.compile takes it for a constant, and leaves the rest out
    if not hasattr(keras.Model, "make_train_function"):
        return ["Model.make_train_function"]
    trainer = _trainer()
    for mode, (_, function, make) in STEPS.items():
        patches.replace([trainer], make, functools.partial(_making, session, mode, function))

    def watch_apply(original):
        def apply(optimizer, grads, trainable_variables=None):
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
            except Exception as error:
                session.guard.failed("an optimizer's gradients", error)
            if number is None:
                return original(optimizer, grads, trainable_variables)
            with session.loops.silence():       # what an inner optimizer does meanwhile is no other step
                result = original(optimizer, grads, trainable_variables)
            session.loops.applied(number)
            return result
        return apply

    def watch_init(original):
        def __init__(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            session.loops.made_optimizer()
        return __init__

    patches.replace([base_optimizer.BaseOptimizer], "__init__", watch_init)

    def watch_stateless(original):
        def stateless_apply(optimizer, optimizer_variables, grads, trainable_variables):
            collector = collect.current()
            if collector is not None:
                try:
                    from keras.src import backend
                    mapping = [*zip(optimizer._trainable_variables, trainable_variables),
                               *zip(optimizer.variables, optimizer_variables)]
                    with backend.StatelessScope(state_mapping=mapping):
                        _applying(collector, optimizer, list(grads), None)
                except Exception as error:
                    session.guard.failed("an optimizer's gradients", error)
            return original(optimizer, optimizer_variables, grads, trainable_variables)
        return stateless_apply

    def watch_loss(original):
        def _compute_loss(model, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            value = original(model, x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
            if compiling():
                return value
            collector = collect.current()
            if collector is not None and collector.model is model:
                try:
                    if collector.here():
                        collector.predictions(y_pred)
                    collector.loss(value)
                except Exception as error:
                    session.guard.failed("a loss", error)
            return value
        return _compute_loss

    if session.backend.name == "tensorflow":
        missing += _patch_replicas(patches, session)
    patches.replace([base_optimizer.BaseOptimizer, loss_scale_optimizer.LossScaleOptimizer], "apply", watch_apply)
    patches.replace([loss_scale_optimizer.LossScaleOptimizer], "stateless_apply", watch_stateless)
    patches.replace([base_trainer.Trainer], "_compute_loss", watch_loss)

    def watch_epoch(original):
        def on_epoch_end(callbacks, epoch, logs=None):
            try:
                _epoch_ended(session, logs)
            except Exception as error:
                session.guard.failed("the end of an epoch", error)
            return original(callbacks, epoch, logs)
        return on_epoch_end

    patches.replace([keras.callbacks.CallbackList], "on_epoch_end", watch_epoch)
    return missing


def _patch_replicas(patches, session):
    """Under a strategy with several replicas: where one output is made of the replicas', and gradients are summed. Returns
    what is missing."""
    from keras.src.backend.tensorflow import optimizer, trainer
    from keras.src.losses import loss

    def watch_reduce(original):
        def reduce_per_replica(values, strategy, reduction):
            if not (isinstance(values, tuple) and len(values) == 2 and isinstance(values[1], collect.PerReplica)):
                return original(values, strategy, reduction)
            return original(values[0], strategy, reduction), session.backend.merge(values[1], strategy)
        return reduce_per_replica

    def watch_sum(original):
        def _all_reduce_sum_gradients(optimizer, grads_and_vars):
            pairs = original(optimizer, grads_and_vars)
            collector = collect.current()
            if collector is not None:
                try:
                    collector.reduced(pairs)
                except Exception as error:
                    session.guard.failed("gradients of several replicas", error)
            return pairs
        return _all_reduce_sum_gradients

    def watch_unscale(original):
        def unscale_loss_for_distribution(value):
            result = original(value)
            collector = collect.current()
            if collector is not None:
                try:
                    collector.unscaled_loss(value, result)
                except Exception as error:
                    session.guard.failed("a replica's loss", error)
            return result
        return unscale_loss_for_distribution

    patches.replace([loss], "unscale_loss_for_distribution", watch_unscale)
    session.backend.merges = hasattr(trainer, "reduce_per_replica")
    session.backend.sums = "_all_reduce_sum_gradients" in vars(optimizer.TFOptimizer)
    patches.replace([trainer], "reduce_per_replica", watch_reduce)
    patches.replace([optimizer.TFOptimizer], "_all_reduce_sum_gradients", watch_sum)
    return [] if session.backend.merges else ["trainer.reduce_per_replica"]


def patch_layers(patches, session):
    """From here on every layer's call is looked at: where it is traced, or on the torch backend at every step."""
    compiling = session.backend.compiling

    def watch_call(original):
        def __call__(layer, *args, **kwargs):
            outputs = original(layer, *args, **kwargs)
            if compiling():
                return outputs
            try:
                (collect.current() or session.loops).layer(layer, args, kwargs, outputs)
            except Exception as error:
                session.guard.failed("a layer's outputs", error)
            return outputs
        return __call__

    patches.replace([keras.layers.Layer], "__call__", watch_call)


def _applying(collector, optimizer, grads, variables):
    """Returns what is to be applied in place of `grads`."""
    if variables is None:
        variables = optimizer._trainable_variables
    # An inner optimizer (of a LossScaleOptimizer) applies what the outer one has been asked already.
    if any(getattr(o, "inner_optimizer", None) is optimizer for o in collector.optimizers):
        return grads
    return collector.gradients(optimizer, grads, variables)


def _epoch_ended(session, logs):
    """`val_loss`, `val_accuracy`, ...: in the last step of the evaluation that they are of."""
    if session.run is None or session.elsewhere() or session.open_mode != EVAL:
        return
    for name, value in (logs or {}).items():
        if name.startswith("val_"):
            session.values.put(metric(session, name, value))
    session.close_step()


def _keras_own(session, function):
    """Keras' own function, out of what an earlier watch left around it; None where this session watches it already."""
    if isinstance(function, Watched):
        return None if function._session is session else function._bare
    return function if callable(function) else None


def catch_up(session):
    """Attached while a model trains: its functions are watched from the next batch on. Walks over the live objects."""
    for model in [o for o in gc.get_objects() if issubclass(type(o), keras.Model)]:
        for mode, (_, attribute, make) in STEPS.items():
            present = _keras_own(session, getattr(model, attribute, None))
            if present is not None:
                original = getattr(type(model), make)
                setattr(model, attribute, Watched(session, model, mode, present,
                                                  getattr(original, "__wrapped__", original)))


def _making(session, mode, attribute, original):
    def make(model, force=False):
        present = getattr(model, attribute, None)
        if force or present is None:
            original(model, force)
            present = getattr(model, attribute, None)
        try:
            present = _keras_own(session, present)
            if present is not None:
                setattr(model, attribute, Watched(session, model, mode, present, original))
        except Exception as error:
            session.guard.failed(f"{attribute}", error)
        return getattr(model, attribute, None)
    return make
