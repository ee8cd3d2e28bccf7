"""Keras in the conformance suite, on the backend that KERAS_BACKEND names: a perceptron of two layers under `fit`, four steps
with momentum, then the evaluation of the epoch. How values leave a compiled step by themselves is the backend's affair: `Kept`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from frameworks.conformance.framework import STEPS, Framework, Step, Trained  # noqa: E402
from keras import layers  # noqa: E402
from keras.src.optimizers import base_optimizer, loss_scale_optimizer  # noqa: E402
from keras.src.trainers import trainer as base_trainer  # noqa: E402

BACKEND = keras.backend.backend()
BATCH = 4
VARIABLES = ("hidden/kernel", "hidden/bias", "scores/kernel", "scores/bias")
GRADIENTS = {path: f"gradients/{path}Grad" for path in VARIABLES}
TREES = "there are no trees"
WAITS = "{} waits in them for threads that were not forked, with tdbg or without"

if BACKEND == "tensorflow":
    import tensorflow as tf

    VERSION = f"TensorFlow {tf.__version__}"
    REPLACED = ((tf.GradientTape, "gradient"),)

    class Kept:
        """Copies of tensors of a compiled step. TensorFlow's own variables, which Keras does not count as the model's."""

        def __init__(self, **shapes):
            self._variables = {name: tf.Variable(tf.zeros(shape), trainable=False) for name, shape in shapes.items()}

        def keep(self, name, tensor):
            if self._variables[name].shape == tensor.shape:     # while Keras builds the model, it may have none
                self._variables[name].assign(tensor)

        def __getitem__(self, name):
            return self._variables[name].numpy()

elif BACKEND == "jax":
    import jax

    VERSION = f"JAX {jax.__version__}"
    REPLACED = ((jax, "value_and_grad"), (jax, "grad"))

    class Kept:
        """Copies of tensors of a compiled step, which tells them to this process while it runs."""

        def __init__(self, **_):
            self._arrays = {}

        def keep(self, name, tensor):
            jax.debug.callback(lambda value: self._arrays.update({name: np.array(value)}), tensor)

        def __getitem__(self, name):
            jax.effects_barrier()
            return self._arrays[name]

else:
    import torch

    VERSION = f"PyTorch {torch.__version__}"
    REPLACED = ()

    class Kept:
        """Copies of tensors; nothing is compiled."""

        def __init__(self, **_):
            self._arrays = {}

        def keep(self, name, tensor):
            if not tensor.is_meta:      # while Keras builds the model
                self._arrays[name] = tensor.detach().clone().numpy()

        def __getitem__(self, name):
            return self._arrays[name]


class Remembering(keras.optimizers.SGD):
    """Keeps the gradients that each update takes."""

    def __init__(self, kept, *arguments, **options):
        super().__init__(*arguments, **options)
        self._remembered = kept

    def update_step(self, gradient, variable, learning_rate):
        path = self._trainable_variables[self._get_variable_index(variable)].path
        self._remembered.keep("_".join(path.split("/")[-2:]), gradient)
        super().update_step(gradient, variable, learning_rate)


class Net(keras.Model):
    def __init__(self, kept):
        super().__init__(name="net")
        self._kept = kept
        self.hidden, self.scores = layers.Dense(5, activation="relu", name="hidden"), layers.Dense(2, name="scores")

    def call(self, x):
        a = self.hidden(x)
        b = self.scores(a)
        self._kept.keep("a", a)
        self._kept.keep("b", b)
        return b

    def compute_loss(self, *arguments, **options):
        value = super().compute_loss(*arguments, **options)
        self._kept.keep("loss", value)
        return value


class Keras(Framework):
    title = f"Keras 3 on {VERSION.split()[0]}"
    record = "" if BACKEND == "tensorflow" else BACKEND
    adaptor = "keras"
    model_class = keras.Model
    second = "same run"
    late = "step"
    default = ("weights", "biases", "gradients", "losses", "metrics")
    replaced = ((next(c for c in keras.Model.__mro__ if "make_train_function" in c.__dict__), "make_train_function"),
                (base_optimizer.BaseOptimizer, "__init__"), (base_optimizer.BaseOptimizer, "apply"),
                (loss_scale_optimizer.LossScaleOptimizer, "apply"),
                (loss_scale_optimizer.LossScaleOptimizer, "stateless_apply"), (base_trainer.Trainer, "_compute_loss"),
                (keras.callbacks.CallbackList, "on_epoch_end"), (keras.layers.Layer, "__call__"), *REPLACED)
    names = {
        "weights": ["hidden/weights/hidden/kernel:0", "scores/weights/scores/kernel:0"],
        "biases": ["hidden/weights/hidden/bias:0", "scores/weights/scores/bias:0"],
        "gradients": ["gradients/hidden/kernelGrad", "gradients/hidden/biasGrad", "gradients/scores/kernelGrad",
                      "gradients/scores/biasGrad"],
        "losses": ["loss"],
        "metrics": ["accuracy", "val_accuracy", "val_loss"],
        "outputs": ["hidden/outputs", "scores/outputs"],
        "inputs": ["inputs", "hidden/inputs", "scores/inputs"],
        "labels": ["labels"],
        "predictions": ["predictions"],
        "optimizer_variables": ["sgd/iteration:0", "sgd/learning_rate:0", "sgd/net_hidden_kernel_momentum:0",
                                "sgd/net_hidden_bias_momentum:0", "sgd/net_scores_kernel_momentum:0",
                                "sgd/net_scores_bias_momentum:0"],
    }
    absent = {"hyperparameters": "a script's own; the optimizer's are in the context", "feature_importance": TREES,
              "average_shap": TREES, "full_shap": TREES, "trees": TREES,
              **({} if BACKEND == "torch" else {"forked children": WAITS.format(VERSION.split()[0])})}

    def version(self):
        return f"{keras.__version__} on {VERSION}"

    def train(self, steps=STEPS, after_step=None):
        keras.backend.clear_session()
        keras.utils.set_random_seed(11)
        kept = Kept(a=(BATCH, 5), b=(BATCH, 2), loss=(), hidden_kernel=(3, 5), hidden_bias=(5,), scores_kernel=(5, 2),
                    scores_bias=(2,))
        model = Net(kept)
        model.compile(Remembering(kept, 0.1, momentum=0.9, name="sgd"),
                      keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        x = np.random.randn((steps + 1) * BATCH, 3).astype(np.float32)
        y = np.random.randint(0, 2, (steps + 1) * BATCH).astype(np.int32)
        model(x[:BATCH])        # what is not built yet has nothing to be copied
        model.optimizer.build(model.trainable_variables)
        recorded = []

        def values(batch, logs):
            rows = slice(batch * BATCH, (batch + 1) * BATCH)
            return {"inputs": x[rows], "hidden/inputs": x[rows], "hidden/outputs": kept["a"], "scores/inputs": kept["a"],
                    "scores/outputs": kept["b"], "predictions": kept["b"], "labels": y[rows], "loss": kept["loss"],
                    "accuracy": np.float32(logs["accuracy"])}

        class Watching(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                synchronize(model)
                self.before = {**weights(model), **{v.path + ":0": copy(v) for v in model.optimizer.variables}}

            def on_train_batch_end(self, batch, logs=None):
                gradients = {name: kept[path.replace("/", "_")] for path, name in GRADIENTS.items()}
                recorded.append(Step("TRAIN", {**self.before, **gradients, **values(batch, logs)}))
                if after_step:
                    after_step(batch)

            def on_test_batch_end(self, batch, logs=None):
                recorded.append(Step("EVAL", values(steps, logs)))

            def on_epoch_end(self, epoch, logs=None):
                recorded[-1].values.update((k, np.float64(v)) for k, v in logs.items() if k.startswith("val_"))

        rest = steps * BATCH
        history = model.fit(x[:rest], y[:rest], batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Watching()],
                            validation_data=(x[rest:], y[rest:]))
        return Trained(recorded, result(recorded, history, model), weights(model))

    def train_untrained(self):
        keras.backend.clear_session()
        keras.utils.set_random_seed(13)
        model = keras.Sequential([keras.Input((3,)), layers.Dense(3, use_bias=False, name="still", trainable=False),
                                  layers.Dense(3, use_bias=False, name="moved", trainable=False),
                                  layers.BatchNormalization(name="norm"), layers.Dense(2, name="scores")])
        model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
        norm, moved = model.get_layer("norm"), model.get_layer("moved")
        variables = {"still/weights/still/kernel:0": model.get_layer("still").kernel, "moved/weights/moved/kernel:0": moved.kernel,
                     "norm/weights/norm/moving_mean:0": norm.moving_mean,
                     "norm/weights/norm/moving_variance:0": norm.moving_variance}
        found = {name: [] for name in variables}

        class Changing(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                synchronize(model)
                for name, variable in variables.items():
                    found[name].append(copy(variable))

            def on_train_batch_end(self, batch, logs=None):
                if batch == 1:
                    synchronize(model)
                    moved.kernel.assign(copy(moved.kernel) + 1)
                    norm.moving_variance.assign(copy(norm.moving_variance) + np.array([0, np.inf, 0], np.float32))

        model.fit(np.random.randn(STEPS * BATCH, 3).astype(np.float32), np.ones((STEPS * BATCH, 2), np.float32), batch_size=BATCH,
                  shuffle=False, verbose=0, callbacks=[Changing()])
        return found

    def second_name(self, name):
        if name.startswith("gradients/"):
            return name.replace("gradients/", "gradients/net/")
        return "net/" + name if name.startswith(("hidden/", "scores/")) else name

    def train_two(self):
        return self._two_in_one_step() if BACKEND == "tensorflow" else self._two_in_turn()

    def _two_in_turn(self):
        """A generator and a discriminator, each a model of its own, batch by batch: a step is a step of one of them."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(12)
        kept = Kept()
        models, recorded = [], []
        for name, shape in (("judged", (3, 1)), ("made", (2, 3))):
            model = keras.Sequential([keras.Input((shape[0],)), layers.Dense(shape[1], name=name)], name=f"{name}_model")
            model.compile(Remembering(kept, 0.1), keras.losses.MeanSquaredError())
            models.append((model, name, shape))
        for _ in range(STEPS // 2):
            for model, name, shape in models:
                values = weights(model)
                model.train_on_batch(np.random.randn(BATCH, shape[0]).astype(np.float32), np.ones((BATCH, shape[1]), np.float32))
                values.update({f"gradients/{name}/{leaf}Grad": kept[f"{name}_{leaf}"] for leaf in ("kernel", "bias")})
                recorded.append(Step("TRAIN", values))
        return [Trained(recorded, b"".join(result(recorded, None, model) for model, _, _ in models),
                        {k: v for model, _, _ in models for k, v in weights(model).items()})]

    def _two_in_one_step(self):
        """A generator and a discriminator in one `train_step`, with an optimizer each: one step is a step of both."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(12)
        kept = Kept(made_kernel=(2, 3), made_bias=(3,), judged_kernel=(3, 1), judged_bias=(1,))
        parts = [(layers.Dense(1, name="judged"), Remembering(kept, 0.1)), (layers.Dense(3, name="made"), Remembering(kept, 0.1))]
        (judge, _), (generator, _) = parts

        class Gan(keras.Model):
            def __init__(self):
                super().__init__(name="gan")
                self.judge, self.generator = judge, generator

            def call(self, x):
                return self.judge(self.generator(x))

            def train_step(self, batch):
                for layer, optimizer in parts:
                    with tf.GradientTape() as tape:
                        value = self.compute_loss(*batch, self(batch[0], training=True))
                    optimizer.apply_gradients(zip(tape.gradient(value, layer.trainable_weights), layer.trainable_weights))
                return {"loss": value}

        model, recorded = Gan(), []
        model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
        x, y = np.random.randn(STEPS * BATCH, 2).astype(np.float32), np.ones((STEPS * BATCH, 1), np.float32)
        model(x[:BATCH])

        class Watching(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                self.before = weights(model)

            def on_train_batch_end(self, batch, logs=None):
                gradients = {f"gradients/{n}/{leaf}Grad": kept[f"{n}_{leaf}"] for n in ("judged", "made")
                             for leaf in ("kernel", "bias")}
                recorded.append(Step("TRAIN", {**self.before, **gradients}))

        history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Watching()])
        return [Trained(recorded, result(recorded, history, model), weights(model))]


def synchronize(model):
    """On JAX, weights and the rest are in a state of the loop's own until somebody asks."""
    if BACKEND == "jax":
        model.jax_state_sync()


def copy(variable):
    return np.array(keras.ops.convert_to_numpy(variable))


def weights(model):
    found = {"/".join(v.path.split("/")[-2:]): copy(v) for v in model.trainable_variables}
    return {f"{path.split('/')[0]}/weights/{path}:0": value for path, value in found.items()}


def result(recorded, history, model):
    """The next random numbers tell in which state those are."""
    arrays = [copy(v) for v in (*model.weights, *(model.optimizer.variables if model.optimizer else ()))]
    arrays += [v for step in recorded for v in step.values.values()]
    arrays += [np.float64(v) for _, values in sorted(history.history.items()) for v in values] if history else []
    arrays += [copy(keras.random.uniform((8,))), np.random.rand(8)]
    arrays += [tf.random.uniform((8,)).numpy()] if BACKEND == "tensorflow" else []
    arrays += [torch.rand(8).numpy()] if BACKEND == "torch" else []
    return b"".join(a.tobytes() for a in arrays)
