"""What a step is: custom train_steps, several batches per call, accumulated gradients, loss scales, data that ends, a
second `fit`, two models, exceptions."""

import keras
import numpy as np
import pytest
from keras import layers

import tdbg
from tdbg.modes import ModeKeys as modes

from .test_fit import BACKEND, EVERYTHING, RAW, check_values, fit, names_of, recorded
from .trainings import SGD, Watch, compiled, data, dense, digest, fresh

tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")


def test_several_batches_per_call_are_steps_of_their_own(tmp_path):
    if BACKEND == "torch":
        pytest.skip("Keras has no steps_per_execution on torch")
    watch = Watch()
    fit(watch=watch, epochs=1, batch_size=8, validate=False)
    (_, state), trial = recorded(lambda: fit(epochs=1, batch_size=8, validate=False, steps_per_execution=3), tmp_path / "run")
    assert trial.steps() == list(range(8)), "8 batches in calls of 3, 3 and 2"
    fresh()
    check_values(trial, compiled(dense()), watch)
    assert state == fit(epochs=1, batch_size=8, validate=False, steps_per_execution=3)[1]


def test_calls_in_which_nothing_is_due_take_their_batches_at_once(tmp_path):
    if BACKEND == "torch":
        pytest.skip("Keras has no steps_per_execution on torch")
    config = {"summaries": {"every": 4}, "rules": [], "collections": {"gradients": {"save_interval": 4}}}
    (_, state), trial = recorded(lambda: fit(epochs=2, batch_size=8, validate=False, steps_per_execution=3), tmp_path / "run", config)
    assert trial.steps(mode=modes.TRAIN, kind="any") == [0, 4, 8, 12]
    assert trial["gradients/scores/kernelGrad"].steps(mode=modes.TRAIN) == [0, 4, 8, 12]
    assert state == fit(epochs=2, batch_size=8, validate=False, steps_per_execution=3)[1]


@tensorflow_only
@pytest.mark.parametrize("operations", [True, False], ids=["operations", "outputs"])
def test_at_most_two_functions_are_traced(tmp_path, monkeypatch, operations):
    """Where tensors leave the step as its outputs, there is one without them for the steps that do not record them."""
    if not operations:
        from tdbg.adaptors.tensorflow import operation
        monkeypatch.setattr(operation, "why_not", lambda: "this is a test")
    traced = []
    class Model(keras.Sequential):
        def train_step(self, batch):
            traced.append(1)
            return super().train_step(batch)
    make = lambda: Model([keras.Input((8,)), layers.Dense(6, activation="relu", name="hidden"), layers.Dense(3, name="scores")])
    outputs = {"outputs": {"save_interval": 3, "summaries": False}}
    fit(make, validate=False)
    bare = len(traced)      # a function that makes variables in its first call is traced again without that
    for n, (config, more) in enumerate((({"collections": outputs}, 0 if operations else 1), (RAW, 0),
                                        ({"collections": outputs, "summaries": {"every": 2}, "rules": []}, 1))):
        traced.clear()
        _, trial = recorded(lambda: fit(make, validate=False), tmp_path / f"run{n}", config)
        assert len(traced) == bare + more, config
        if "outputs" in config["collections"]:
            assert trial["hidden/outputs"].steps(kind="raw") == [0, 3, 6]


def test_the_gradients_that_accumulate_are_one_update(tmp_path):
    watch = Watch()
    optimizer = lambda: SGD(0.1, gradient_accumulation_steps=4)
    (model, state), trial = recorded(
        lambda: fit(watch=watch, epochs=1, batch_size=8, validate=False, optimizer=optimizer()), tmp_path / "run")
    assert trial.steps() == [0, 1], "8 batches, 4 to an update"
    for n, step in enumerate((0, 1)):
        for k, (weight, gradient) in enumerate(names_of(model)):
            np.testing.assert_array_equal(trial[weight].value(step), watch.weights[4 * n][k])
            np.testing.assert_array_equal(trial[gradient].value(step), watch.gradients[4 * n + 3][k])
    assert trial["loss"].value(0) == pytest.approx(watch.logs[3]["loss"], rel=1e-6), "the mean over its batches"
    assert trial["context/micro_steps"].value(1) == 4
    assert state == fit(epochs=1, batch_size=8, validate=False, optimizer=optimizer())[1]


@pytest.mark.parametrize("options", [{"clipnorm": 0.05}, {"clipvalue": 0.01}, {"global_clipnorm": 0.1},
                                     {"loss_scale_factor": 128.0}], ids=str)
def test_gradients_are_those_that_the_update_takes(tmp_path, options):
    watch = Watch()
    (model, state), trial = recorded(lambda: fit(watch=watch, epochs=1, validate=False, optimizer=SGD(0.1, **options)),
                                     tmp_path / "run")
    check_values(trial, model, watch)
    first = next(iter(watch.logs))["loss"]
    assert trial["loss"].value(0) == pytest.approx(first, rel=1e-6), "unscaled"


def test_an_update_skipped_under_a_loss_scale_is_a_skipped_step(tmp_path):
    x, y = data()
    x[16:32] = 1e38     # the second batch overflows

    def train():
        fresh()
        optimizer = keras.optimizers.LossScaleOptimizer(SGD(0.1), initial_scale=1024.0)
        model = compiled(dense(), optimizer)
        watch = Watch()
        model.fit(x, y, batch_size=16, shuffle=False, epochs=1, verbose=0, callbacks=[watch])
        return model, watch, digest(model)

    (model, watch, state), trial = recorded(train, tmp_path / "run")
    assert trial.steps(kind="any") == [0, 1, 2, 3]
    assert trial["context/skipped"].steps() == [1]
    assert trial["context/loss_scale"].value(0) == 1024 and trial["context/loss_scale"].value(2) == 512
    for k, (weight, gradient) in enumerate(names_of(model)):
        np.testing.assert_array_equal(trial[weight].value(1), trial[weight].value(2))
    assert state == train()[2]


def test_a_train_step_of_ones_own_with_two_optimizers_is_one_step(tmp_path):
    if BACKEND != "tensorflow":
        pytest.skip("written with TensorFlow's tape")
    import tensorflow as tf

    class Pair(keras.Model):
        def __init__(self):
            super().__init__(name="pair")
            self.a, self.b = layers.Dense(4, name="a"), layers.Dense(3, name="b")

        def compile(self):
            super().compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            self.first, self.second = SGD(0.1), SGD(0.01)

        def call(self, x):
            return self.b(self.a(x))

        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape(persistent=True) as tape:
                value = self.compute_loss(x, y, self(x, training=True))
            for optimizer, layer in ((self.first, self.a), (self.second, self.b)):
                optimizer.apply_gradients(zip(tape.gradient(value, layer.trainable_weights), layer.trainable_weights))
            return {"loss": value, "double": value * 2}

    def train():
        fresh()
        model = Pair()
        model.compile()
        x, y = data()
        history = model.fit(x, y, batch_size=16, verbose=0)
        return model, digest(model, history)

    (_, state), trial = recorded(train, tmp_path / "run", EVERYTHING)
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.tensor_names(collection="gradients") == [f"gradients/{n}Grad" for n in ("a/bias", "a/kernel", "b/bias", "b/kernel")]
    assert trial["double"].value(2) == 2 * trial["loss"].value(2)
    assert {"context/lr/sgd/0", "context/lr/sgd_1/0"} <= set(trial.tensor_names(regex="context/lr"))
    assert trial["a/outputs"].value(3).shape == (16, 4)
    assert state == train()[1]


def test_data_of_unknown_length_ends_without_a_step_too_many(tmp_path):
    x, y = data()

    def generator():
        for i in range(0, 48, 16):
            yield x[i:i + 16], y[i:i + 16]

    def train():
        fresh()
        model = compiled(dense())
        if BACKEND == "tensorflow":
            import tensorflow as tf
            batches = tf.data.Dataset.from_generator(generator, output_signature=(
                tf.TensorSpec((None, 8), tf.float32), tf.TensorSpec((None,), tf.int32)))
        else:
            batches = generator()
        history = model.fit(batches, epochs=2 if BACKEND == "tensorflow" else 1, verbose=0, validation_data=(x, y))
        return digest(model, history)

    state, trial = recorded(train, tmp_path / "run")
    epochs = 2 if BACKEND == "tensorflow" else 1
    assert [trial.mode(s).name for s in trial.steps()] == (["TRAIN"] * 3 + ["EVAL"] * 2) * epochs
    assert state == train()


def test_train_on_batch_test_on_batch_and_predict(tmp_path):
    x, y = data()

    def train():
        fresh()
        model = compiled(dense())
        losses = []
        for i in range(0, 48, 16):
            losses.append(model.train_on_batch(x[i:i + 16], y[i:i + 16], return_dict=True)["loss"])
        losses.append(model.test_on_batch(x[:16], y[:16], return_dict=True)["loss"])
        return model, losses, model.predict(x[:40], batch_size=16, verbose=0), digest(model)

    (_, losses, scores, state), trial = recorded(train, tmp_path / "run", EVERYTHING)
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 3 + ["EVAL"] + ["PREDICT"] * 3
    recorded_losses = [trial["loss"].value(s) for s in range(4)]
    np.testing.assert_array_equal(recorded_losses, np.float32(losses))
    found = np.concatenate([trial["predictions"].value(s) for s in (4, 5, 6)])
    np.testing.assert_array_equal(found, scores)
    assert trial["hidden/outputs"].value(6).shape == (8, 6)
    again = train()
    assert state == again[3] and np.array_equal(scores, again[2])


def test_a_second_fit_goes_on_where_the_first_ended_and_a_second_model_has_its_own_names(tmp_path):
    x, y = data()

    def train():
        fresh()
        one, two = compiled(dense("one")), compiled(dense("two"))
        for model in (one, one, two):
            model.fit(x, y, batch_size=32, verbose=0)
        return digest(one) + digest(two)

    state, trial = recorded(train, tmp_path / "run")
    assert trial.steps() == list(range(6))
    assert trial["hidden/weights/hidden/kernel:0"].steps() == [0, 1, 2, 3]
    assert trial["two/hidden/weights/hidden/kernel:0"].steps() == [4, 5]
    assert trial["gradients/two/hidden/kernelGrad"].steps() == [4, 5]
    assert state == train()


def test_an_exception_of_the_training_comes_out_as_it_is(tmp_path):
    class Own(Exception):
        pass

    def stop(step):
        if step == 1:
            raise Own("enough")

    with pytest.raises(Own, match="enough"):
        recorded(lambda: fit(watch=Watch(stop)), tmp_path / "run")
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.steps() == [0, 1] and trial.state == "ended"


def test_a_mistake_in_a_train_step_is_raised_as_without(tmp_path, capfd):
    class Wrong(keras.Sequential):
        def train_step(self, *batch):
            raise ZeroDivisionError("my own")

    with pytest.raises(ZeroDivisionError, match="my own"):
        recorded(lambda: fit(lambda: Wrong([keras.Input((8,)), layers.Dense(3)])), tmp_path / "run")


def test_attached_while_it_trains_the_rest_is_recorded(tmp_path):
    watches = []

    def attach(step):
        if step == 1:
            watches.append(tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config=RAW))

    watch = Watch(attach)
    model, state = fit(watch=watch, epochs=1, validate=False)
    watches[0].close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.steps() == [0, 1], "of four"
    watch.weights, watch.gradients = watch.weights[2:], watch.gradients[2:]
    check_values(trial, model, watch)
    assert state == fit(epochs=1, validate=False)[1]


def test_frozen_layers_and_moving_averages_at_every_step(tmp_path):
    def make():
        model = keras.Sequential([keras.Input((8,)), layers.Dense(6, name="frozen"), layers.BatchNormalization(name="norm"),
                                  layers.Dense(3, name="scores")])
        model.get_layer("frozen").trainable = False
        return model

    (_, state), trial = recorded(lambda: fit(make, epochs=1, validate=False), tmp_path / "run")
    assert trial["frozen/weights/frozen/kernel:0"].steps() == [0, 1, 2, 3]
    assert trial["norm/weights/norm/moving_mean:0"].steps() == [0, 1, 2, 3]
    assert trial["norm/weights/norm/gamma:0"].steps() == [0, 1, 2, 3]
    assert state == fit(make, epochs=1, validate=False)[1]
