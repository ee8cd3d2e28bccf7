"""Small Keras trainings that say themselves what happened, by Keras' own means: the optimizer keeps its gradients in
variables, a callback copies weights before each batch. What an adaptor recorded is compared with that."""

import hashlib

import keras
import numpy as np
from keras import layers, ops

CLASSES = 3


def remembering(base):
    """A subclass of an optimizer that keeps what each update took."""
    class Remembering(base):
        def build(self, variables):
            super().build(variables)
            self.kept = [self.add_variable_from_reference(v, name="kept") for v in variables]

        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate)
            self.assign(self.kept[self._get_variable_index(variable)], gradient)
    Remembering.__name__ = base.__name__        # the optimizer's own name is made of it
    return Remembering


SGD = remembering(keras.optimizers.SGD)


def data(rows=64, features=8):
    rng = np.random.default_rng(3)
    return rng.random((rows, features), dtype=np.float32), rng.integers(0, CLASSES, rows).astype(np.int32)


def images(rows=32):
    rng = np.random.default_rng(4)
    return rng.random((rows, 12, 12, 2), dtype=np.float32), rng.integers(0, CLASSES, rows).astype(np.int32)


def dense(name="net", prefix=""):
    return keras.Sequential([keras.Input((8,)), layers.Dense(6, activation="relu", name=prefix + "hidden"),
                             layers.Dense(CLASSES, name=prefix + "scores")], name=name)


def convolutional():
    return keras.Sequential([
        keras.Input((12, 12, 2)), layers.Conv2D(4, 3, activation="relu", name="conv1"),
        layers.BatchNormalization(name="norm"), layers.MaxPooling2D(name="pool"),
        layers.Conv2D(5, 3, use_bias=False, name="conv2"), layers.ReLU(name="relu"), layers.Flatten(name="flat"),
        layers.Dropout(0.2, seed=5, name="drop"), layers.Dense(CLASSES, name="scores")], name="cnn")


def compiled(model, optimizer=None, **options):
    model.compile(optimizer or SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"], **options)
    return model


class Watch(keras.callbacks.Callback):
    """Weights before each batch, and after the last; what the optimizer's variables say after each batch."""

    def __init__(self, after=None):
        super().__init__()
        self.weights, self.gradients, self.logs, self.after = [], [], [], after

    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.weights.append([np.array(ops.convert_to_numpy(v)) for v in self.model.trainable_variables])

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        kept = getattr(self.model.optimizer, "kept", ())
        self.gradients.append([np.array(ops.convert_to_numpy(v)) for v in kept])
        self.logs.append({k: float(v) for k, v in (logs or {}).items()})
        if self.after:
            self.after(len(self.logs) - 1)


def digest(model, history=None):
    """Everything that a training leaves behind."""
    found = hashlib.sha256()
    for variable in (*model.weights, *getattr(getattr(model, "optimizer", None), "variables", ())):
        found.update(np.ascontiguousarray(ops.convert_to_numpy(variable)).tobytes())
    if history is not None:
        found.update(repr({k: [float(x) for x in v] for k, v in sorted(history.history.items())}).encode())
    return found.hexdigest()


def fresh(seed=7):
    """As if nothing had happened yet: names are counted again, random numbers begin again."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
