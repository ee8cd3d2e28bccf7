"""Loops of the script's own on TensorFlow: tapes, tf.functions, updates by hand, sessions of TensorFlow 1."""

import gc
import weakref

import keras
import numpy as np
import pytest

import tdbg

from .test_fit import BACKEND, EVERYTHING, RAW, recorded
from .trainings import SGD, data, dense, digest, fresh

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")


def loop(kind, steps=4):
    """(weights before, gradients, losses of each step, digest) of a loop with a tape."""
    import tensorflow as tf
    fresh()
    model, optimizer = dense(), None if kind == "by hand" else SGD(0.1)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = data()
    weights, gradients, losses = [], [], []

    def step(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(inputs, training=True))
        found = tape.gradient(loss, model.trainable_variables)
        if optimizer is None:
            for v, g in zip(model.trainable_variables, found):
                v.assign_sub(0.1 * g)
        else:
            optimizer.apply_gradients(zip(found, model.trainable_variables))
        return loss, found

    run = tf.function(step) if kind == "tf.function" else step
    for n in range(steps):
        weights.append([np.array(v) for v in model.trainable_variables])
        loss, found = run(tf.constant(x[n * 16:n * 16 + 16]), tf.constant(y[n * 16:n * 16 + 16]))
        gradients.append([np.array(g) for g in found])
        losses.append(float(loss))
    return weights, gradients, losses, digest(model)


@pytest.mark.parametrize("kind", ["eager", "tf.function", "by hand"])
def test_a_loop_with_a_tape(tmp_path, kind):
    (weights, gradients, losses, state), trial = recorded(lambda: loop(kind), tmp_path / "run", EVERYTHING)
    assert trial.steps() == [0, 1, 2, 3]
    names = ["hidden/kernel", "hidden/bias", "scores/kernel", "scores/bias"]
    for step in range(4):
        assert trial["loss"].value(step) == np.float32(losses[step])
        for k, name in enumerate(names):
            np.testing.assert_array_equal(trial[f"{name.split('/')[0]}/weights/{name}:0"].value(step), weights[step][k])
            np.testing.assert_array_equal(trial[f"gradients/{name}Grad"].value(step), gradients[step][k])
        assert trial["hidden/outputs"].value(step).shape == (16, 6)
    assert state == loop(kind)[3]


def test_a_loop_that_is_over_leaves_its_optimizer_to_the_script(tmp_path):
    gone = []

    def train():
        import tensorflow as tf
        model, optimizer = dense(), SGD(0.1)
        gone.append(weakref.ref(optimizer))
        x, _ = data()
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(tf.constant(x[:16])) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    def is_gone():
        train()
        gc.collect()
        return gone.pop()() is None

    fresh()
    bare = is_gone()
    with tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config={"rules": []}):
        assert is_gone() == bare


def test_a_model_that_nobody_trains_takes_no_names_away(tmp_path):
    fresh()
    idle = dense()
    idle.add(keras.layers.ReLU())       # larger, and its layers are called as those of what is trained
    _, trial = recorded(lambda: loop("eager"), tmp_path / "run", EVERYTHING)
    assert "hidden/weights/hidden/kernel:0" in trial.tensor_names() and idle.built


def test_a_function_that_xla_compiles_is_left_alone_and_that_is_said(tmp_path, capfd):
    import tensorflow as tf

    def train():
        fresh()
        model, optimizer = dense(), keras.optimizers.SGD(0.1)
        x, y = data()
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        @tf.function(jit_compile=True)
        def step(inputs, labels):
            with tf.GradientTape() as tape:
                loss = loss_function(labels, model(inputs))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        for _ in range(2):
            step(tf.constant(x), tf.constant(y))
        return digest(model)

    with tdbg.attach(framework="keras", dir=str(tmp_path / "run"), config=RAW):
        state = train()
    assert "jit_compile=True" in capfd.readouterr().err
    assert state == train()


def test_a_monitored_session(tmp_path):
    import tensorflow as tf
    v1 = tf.compat.v1

    def train():
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            x = tf.constant(data()[0])
            w = v1.get_variable("layer/w", [8, 1], initializer=v1.random_uniform_initializer(seed=2))
            loss = v1.losses.mean_squared_error(tf.ones([64, 1]), tf.matmul(x, w))
            optimizer = v1.train.GradientDescentOptimizer(0.1)
            pairs = optimizer.compute_gradients(loss)
            train_op = optimizer.apply_gradients(pairs, global_step=v1.train.get_or_create_global_step())
            seen = []
            with v1.train.MonitoredSession() as session:
                for _ in range(3):
                    before, gradient = session.run([w, pairs[0][0]])
                    value, _ = session.run([loss, train_op])
                    seen.append((before, gradient, value))
                return seen, session.run(w).tobytes(), w.name, pairs[0][0].name, loss.name

    (seen, state, weight, gradient, loss), trial = recorded(train, tmp_path / "run")
    assert trial.steps() == [0, 1, 2], "runs that update; the others are none"
    assert weight == "layer/w:0"
    for step, (before, found, value) in enumerate(seen):
        np.testing.assert_array_equal(trial[weight].value(step), before)
        np.testing.assert_array_equal(trial[gradient].value(step), found)
        assert trial[loss].value(step) == value
    assert state == train()[1]


def test_a_sessions_run_that_fails_is_no_step(tmp_path):
    import tensorflow as tf
    v1 = tf.compat.v1

    def train():
        with tf.Graph().as_default():
            x = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(tf.ones([4, 8])).repeat(3)).get_next()
            w = v1.get_variable("layer/w", [8, 1], initializer=v1.zeros_initializer())
            loss = v1.losses.mean_squared_error(tf.ones([4, 1]), tf.matmul(x, w))
            update = tf.group(v1.train.GradientDescentOptimizer(0.1).minimize(loss), name="with_others")
            with v1.train.MonitoredSession() as session:
                while not session.should_stop():
                    session.run(update)

    _, trial = recorded(train, tmp_path / "run")
    assert trial.steps() == [0, 1, 2], "the dataset's end is none"


def test_losses_that_a_sessions_run_cannot_have_do_not_stop_it(tmp_path):
    import tensorflow as tf
    v1 = tf.compat.v1

    def train():
        with tf.Graph().as_default():
            unfed = v1.placeholder(tf.float32, [None, 1], name="unfed")
            draw = v1.random_uniform([64, 1], seed=4)
            w = v1.get_variable("layer/w", [8, 1], initializer=v1.random_uniform_initializer(seed=2))
            outputs = tf.matmul(tf.constant(data()[0]), w)
            loss = v1.losses.mean_squared_error(tf.ones([64, 1]), outputs, scope="trained")
            v1.losses.mean_squared_error(unfed, unfed, scope="needs")
            v1.losses.mean_squared_error(tf.ones([64, 1]), draw, scope="draws")
            train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            with v1.train.MonitoredSession() as session:
                for _ in range(3):
                    session.run(train_op)
                return session.run([w, draw])

    (w, draw), trial = recorded(train, tmp_path / "run")
    assert trial.tensor_names(collection="losses") == ["trained/value:0"] and len(trial["trained/value:0"].steps()) == 3
    for ours, bare in zip((w, draw), train()):
        np.testing.assert_array_equal(ours, bare)
