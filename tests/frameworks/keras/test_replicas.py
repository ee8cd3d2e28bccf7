"""Several replicas (`tf.distribute.MirroredStrategy`): what is recorded is of all of them, once."""

import contextlib
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers

import tdbg
from tdbg.modes import ModeKeys as modes

from .test_fit import BACKEND, EVERYTHING, RAW, check_values, recorded
from .trainings import SGD, Watch, compiled, convolutional, data, dense, digest, fresh, images

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")
ROOT = pathlib.Path(__file__).resolve().parents[3]
ROWS = 60       # batches of 12 are alike in 2 and 3 replicas


def strategy(replicas):
    """Without collective operations, whose sums are in no fixed order."""
    import tensorflow as tf
    return tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(replicas)],
                                          cross_device_ops=tf.distribute.ReductionToOneDevice())


def fit(replicas=2, make=dense, inputs=data, watch=None, optimizer=SGD, rows=ROWS, **options):
    """(model, digest). Not shuffled: which replica has which rows is known."""
    fresh()
    with strategy(replicas).scope() if replicas else contextlib.nullcontext():
        model = compiled(make(), optimizer(0.1), **options)
    x, y = inputs(rows)
    history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0, validation_data=(x[:12], y[:12]),
                        callbacks=[watch] if watch else None)
    return model, digest(model, history)


def scaled(rate):
    return keras.optimizers.LossScaleOptimizer(SGD(rate), initial_scale=1024.0)


@pytest.mark.parametrize("replicas, optimizer", [
    (1, SGD), (2, SGD), (3, SGD), (2, lambda rate: SGD(rate, clipnorm=0.05)), (3, scaled)],
    ids=["1", "2", "3", "2 clipped", "3 scaled"])
def test_values_are_those_of_all_replicas_and_the_training_is_the_same(tmp_path, replicas, optimizer):
    watch = Watch()
    (model, state), trial = recorded(lambda: fit(replicas, watch=watch, optimizer=optimizer), tmp_path / "run", EVERYTHING)
    assert [trial.mode(s).name for s in trial.steps()] == (["TRAIN"] * 5 + ["EVAL"]) * 2
    check_values(trial, model, watch)
    x, y = data(ROWS)
    for n, step in enumerate(trial.steps(mode=modes.TRAIN)):
        rows, value = slice(n % 5 * 12, n % 5 * 12 + 12), lambda name: trial[name].value(step, mode=modes.TRAIN)
        np.testing.assert_array_equal(value("inputs"), x[rows])
        np.testing.assert_array_equal(value("labels").ravel(), y[rows])
        np.testing.assert_array_equal(value("scores/outputs"), value("predictions"))
        w, b = watch.weights[n][:2]
        np.testing.assert_allclose(value("hidden/outputs"), np.maximum(x[rows] @ w + b, 0), rtol=1e-5, atol=1e-6)
        assert value("accuracy") == np.float32(watch.logs[n]["accuracy"])
        assert value("context/batch_size") == 12 and value("context/optimizer_step/" + model.optimizer.name) == n
    # Keras' log is the mean over the epoch's batches.
    assert trial["loss"].value(0) == pytest.approx(watch.logs[0]["loss"], rel=1e-6)
    assert np.mean([trial["loss"].value(s) for s in range(5)]) == pytest.approx(watch.logs[4]["loss"], rel=1e-6)
    assert trial["val_loss"].value(5) == pytest.approx(trial["loss"].value(5), rel=1e-6)
    if replicas == 3:
        assert state == fit(replicas, optimizer=optimizer)[1]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "convolutional"])
def test_a_training_of_three_replicas_is_the_same_watched_or_not(tmp_path, policy):
    def train():
        try:
            if policy == "convolutional":
                return fit(3, convolutional, images, optimizer=keras.optimizers.Adam)[1]
            make = lambda: (keras.mixed_precision.set_global_policy(policy), dense())[1]
            return fit(3, make)[1]
        finally:
            keras.mixed_precision.set_global_policy("float32")

    bare = train()
    third = {"collections": {"outputs": {"save_interval": 3, "summaries": False}}}      # two functions are traced
    for n, config in enumerate((EVERYTHING, third)):
        state, trial = recorded(train, tmp_path / f"run{n}", config)
        assert state == bare
        assert trial["context/loss_scale"].steps()[:2] == [0, 1] if policy == "mixed_float16" else True
        assert trial["scores/outputs"].steps(kind="raw")[:2] == ([0, 1] if n == 0 else [0, 3])


def test_an_update_that_all_replicas_skip_is_a_skipped_step(tmp_path):
    def train():
        fresh()
        with strategy(2).scope():
            model = compiled(dense(), scaled(0.1))
        x, y = data(48)
        x[12:24] = 1e38      # the second batch overflows
        model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
        return digest(model)

    state, trial = recorded(train, tmp_path / "run")
    assert trial["context/skipped"].steps() == [1]
    assert [trial["context/loss_scale"].value(s) for s in range(4)] == [1024, 1024, 512, 512]
    np.testing.assert_array_equal(trial["hidden/weights/hidden/kernel:0"].value(1), trial["hidden/weights/hidden/kernel:0"].value(2))
    assert state == train()


def test_what_is_no_part_of_a_batch_has_no_whole_and_is_said(tmp_path, capfd):
    class Codes(layers.Layer):
        """Its output is no batch: two rows, whatever there is of input."""
        def call(self, x):
            return keras.ops.mean(x) * keras.ops.ones((2, 3))

    def make():
        x = keras.Input((8,))
        return keras.Model(x, layers.Dense(3, name="scores")(x) + keras.ops.mean(Codes(name="codes")(x)), name="net")

    (_, state), trial = recorded(lambda: fit(2, make), tmp_path / "run", EVERYTHING)
    assert "codes/outputs" in capfd.readouterr().err
    assert "codes/outputs" not in trial.tensor_names() and "scores/outputs" in trial.tensor_names()
    assert state == fit(2, make)[1]


def test_single_batches_evaluations_and_predictions_of_replicas(tmp_path):
    x, y = data(ROWS)

    def train():
        fresh()
        with strategy(2).scope():
            model = compiled(dense())
        losses = [model.train_on_batch(x[i:i + 12], y[i:i + 12], return_dict=True)["loss"] for i in (0, 12)]
        return losses, model.evaluate(x, y, batch_size=12, verbose=0), model.predict(x, batch_size=12, verbose=0), digest(model)

    (losses, evaluation, scores, state), trial = recorded(train, tmp_path / "run", EVERYTHING)
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 2 + ["EVAL"] * 5 + ["PREDICT"] * 5
    np.testing.assert_array_equal(np.concatenate([trial["predictions"].value(s) for s in range(7, 12)]), scores)
    np.testing.assert_array_equal(np.concatenate([trial["scores/outputs"].value(s) for s in range(7, 12)]), scores)
    assert np.mean([trial["loss"].value(s) for s in range(2, 7)]) == pytest.approx(evaluation[0], rel=1e-6)
    again = train()
    assert state == again[3] and losses == again[0] and evaluation == again[1] and np.array_equal(scores, again[2])


def test_several_batches_per_call_of_replicas(tmp_path):
    singly = fit(2)[1]
    (_, state), trial = recorded(lambda: fit(2, steps_per_execution=2), tmp_path / "run")
    assert [trial.mode(s).name for s in trial.steps()] == (["TRAIN"] * 5 + ["EVAL"]) * 2
    assert state == fit(2, steps_per_execution=2)[1] and singly


def test_a_keras_that_merges_replicas_elsewhere_is_left_alone_and_that_is_said(tmp_path, capfd, monkeypatch):
    from tdbg.adaptors.keras import backends
    monkeypatch.setattr(backends.TensorFlow, "merges", property(lambda self: False, lambda self, value: None), raising=True)
    with tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config=RAW):
        _, state = fit(2)
    assert "several replicas" in capfd.readouterr().err
    assert state == fit(2)[1]
    trial = tdbg.open(str(tmp_path / "run"))
    assert [trial.mode(s).name for s in trial.steps(kind="any")] == (["TRAIN"] * 5 + ["EVAL"]) * 2
    assert {loss.cause for loss in trial.dropped()} == {"unsupported"}


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "tf.function"])
def test_a_loop_of_ones_own_over_replicas_is_left_alone_and_that_is_said(tmp_path, capfd, graph):
    import tensorflow as tf
    x, y = data(ROWS)

    def train():
        fresh()
        over = strategy(2)
        with over.scope():
            model, optimizer = dense(), SGD(0.1)
            optimizer.build(model.trainable_variables)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

        def step(inputs, labels):
            with tf.GradientTape() as tape:
                value = loss(labels, model(inputs, training=True)) / 12
            optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))

        run = lambda a, b: over.run(step, args=(a, b))
        run = tf.function(run) if graph else run
        for a, b in over.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(12)):
            run(a, b)
        model.compile(optimizer, loss)
        model.fit(x[:12], y[:12], verbose=0)
        return digest(model)

    state, trial = recorded(train, tmp_path / "run")
    assert capfd.readouterr().err.count("under a tf.distribute strategy") == 1
    assert trial.steps() == [0], "of fit"
    assert state == train()


SCRIPT = """
import tensorflow as tf
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
import keras, numpy as np
keras.utils.set_random_seed(0)
keras.mixed_precision.set_global_policy("mixed_float16")
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, name="scores", dtype="float32")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(np.random.rand(64, 8).astype("float32"), np.random.randint(0, 3, 64), batch_size=16, verbose=0)
print(np.sum([np.abs(v.numpy()).sum() for v in model.weights]))
"""


def test_a_script_that_knows_nothing_of_tdbg(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    program = os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg"))
    command = [sys.executable, str(tmp_path / "train.py")]
    bare, done = (subprocess.run([*before, *command], env=os.environ, capture_output=True, text=True, timeout=240)
                  for before in ([], [program, "run", "--dir", str(tmp_path / "run"), "--"]))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "could not capture" not in done.stderr
    assert done.stdout.splitlines()[:1] == bare.stdout.splitlines()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not trial.dropped() and [trial.mode(s).name for s in trial.steps(kind="any")] == ["TRAIN"] * 4
    assert trial["gradients/scores/kernelGrad"].steps(kind="any") == [0, 1, 2, 3]
    assert trial["context/loss_scale"].value(3) == 2 ** 15
