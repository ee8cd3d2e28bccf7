"""smdebug's hook for Keras under its own names: what it saves, when, and what the values are."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from . import hooks  # noqa: E402, I001: before smdebug, which it makes importable

import smdebug.tensorflow as smd  # noqa: E402
from smdebug.trials import create_trial  # noqa: E402

from .test_fit import check_values  # noqa: E402
from .trainings import Watch, compiled, data, dense, digest, fresh  # noqa: E402


@pytest.fixture
def hook(tmp_path):
    yield from hooks.maker(smd.KerasHook, tmp_path / "run")


def fit(*callbacks):
    fresh()
    model, (x, y) = compiled(dense()), data()
    history = model.fit(x, y, batch_size=16, verbose=0, callbacks=list(callbacks), validation_data=(x[:16], y[:16]))
    return model, digest(model, history)


def test_what_the_hook_says_is_saved_is_saved_and_the_training_is_the_same(hook, tmp_path):
    bare = fit()[1]
    h, watch = hook(include_collections=["weights", "biases", "gradients"], save_config=smd.SaveConfig(save_interval=1)), Watch()
    h.save_scalar("mine", 0.25)
    model, state = fit(watch, h)
    h.save_tensor("late", np.arange(3))
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert state == bare and trial.steps(mode=smd.modes.TRAIN) == [0, 1, 2, 3] and trial.steps(mode=smd.modes.EVAL) == [0]
    check_values(trial, model, watch)
    assert trial.tensor_names(collection="metrics") == ["accuracy", "val_accuracy", "val_loss"]
    assert trial.tensor_names(collection="losses") == ["loss"] and trial.tensor("scalar/mine").steps() == [0]
    np.testing.assert_array_equal(trial.tensor("late").value(trial.tensor("late").steps()[0]), np.arange(3))


def test_what_smdebug_wants_wrapped_stays_what_it_is(hook):
    h, optimizer, tape = hook(), keras.optimizers.SGD(), object()
    assert h.wrap_optimizer(optimizer) is optimizer and h.register_model(dense()) is None and h.wrap_tape(tape) is tape


def loop(model, optimizer, tape, after, graph=False):
    """Six updates of a loop of one's own; after(n, gradient of the first weight) behind each. Returns the weights."""
    x, y = data(16)

    def step(x, y):
        with tape(tf.GradientTape()) as opened:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x)))
        gradients = opened.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return gradients[0]

    step = tf.function(step) if graph else step
    for n in range(6):
        after(n, step(x, y))
    return model.get_weights()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("wrapped", ["tape", "optimizer", "model", "nothing"])
def test_a_step_of_a_loop_is_an_update_and_has_what_the_script_saves_after_it(hook, tmp_path, wrapped, graph):
    fresh()
    bare = loop(dense(), keras.optimizers.SGD(), lambda tape: tape, lambda n, gradient: None, graph)
    fresh()
    h = hook(include_collections=["weights", "gradients", "losses"], save_config=smd.SaveConfig(save_interval=2))
    model, optimizer, seen = dense(), keras.optimizers.SGD(), {}
    if wrapped == "model":
        h.register_model(model)
    if wrapped == "optimizer":
        optimizer = h.wrap_optimizer(optimizer)
    if wrapped == "nothing":
        h.save_scalar("first", 1)

    def after(n, gradient):
        seen[n] = gradient.numpy()
        h.save_tensor("mine", np.full(2, n))
        h.save_scalar("n", n)

    weights = loop(model, optimizer, h.wrap_tape if wrapped == "tape" else lambda tape: tape, after, graph)
    h.close()
    assert all(np.array_equal(a, b) for a, b in zip(weights, bare, strict=True))
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps(mode=smd.modes.TRAIN) == trial.steps() == list(range(6))
    assert trial.tensor("loss").steps() == [0, 2, 4] and trial.tensor("loss").value(0).shape == (1,)
    for n in range(6):
        assert trial.tensor("mine").value(n).tolist() == [n, n] and trial.tensor("scalar/n").value(n).tolist() == [n]
    (gradient,) = [name for name in trial.tensor_names(collection="gradients") if trial.tensor(name).shape == seen[0].shape][:1]
    for n in (0, 2, 4):
        np.testing.assert_array_equal(trial.tensor(gradient).value(n), seen[n])
    assert len(trial.tensor_names(collection="weights")) > 0


def test_by_default_losses_and_metrics_every_500_steps(hook, tmp_path):
    h = hook()
    assert h.has_default_hook_configuration() and smd.get_hook() is h
    fit(h)
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    assert {n for n in trial.tensor_names() if "/" not in n} == set(trial.tensor_names())
    assert trial.tensor("loss").steps(mode=smd.modes.TRAIN) == [0, 3]


def test_the_last_batch_of_each_epoch_has_its_losses_and_metrics(hook, tmp_path):
    fresh()
    h, model, (x, y), val_losses = hook(include_collections=["weights"]), compiled(dense()), data(), []
    for _ in range(2):
        history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[h], validation_data=(x[:16], y[:16]))
        val_losses += history.history["val_loss"]
    h.close()
    trial = create_trial(str(tmp_path / "run"))
    for name in ("loss", "accuracy"):
        assert trial.tensor(name).steps(mode=smd.modes.TRAIN) == [0, 7, 15, 23, 31], name
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 7, 15, 23, 31]
    assert trial.tensor(trial.tensor_names(collection="weights")[0]).steps(mode=smd.modes.TRAIN) == [0]
    for name in ("val_loss", "val_accuracy"):
        assert trial.tensor(name).steps(mode=smd.modes.EVAL) == [1, 3, 5, 7]
    assert trial.tensor("loss").value(0).shape == trial.tensor("accuracy").value(0).shape == (1,)
    assert [float(v[0]) for v in trial.tensor("val_loss").values(mode=smd.modes.EVAL).values()] == pytest.approx(val_losses)


def test_of_a_generator_the_last_batch_is_known_from_the_second_epoch_on(hook, tmp_path):
    fresh()
    h, model, (x, y) = hook(), compiled(dense()), data()
    batches = tf.data.Dataset.from_generator(
        lambda: ((x[n:n + 8], y[n:n + 8]) for n in range(0, 64, 8)),
        output_signature=(tf.TensorSpec((8, x.shape[1])), tf.TensorSpec((8,), tf.int32)))
    model.fit(batches, epochs=3, verbose=0, callbacks=[h])
    h.close()
    assert create_trial(str(tmp_path / "run")).tensor("loss").steps(mode=smd.modes.TRAIN) == [0, 15, 23]


@pytest.mark.parametrize("launched", [False, True])
def test_the_example_with_the_lines_of_hook_code(tmp_path, launched):
    out = hooks.run_example("keras_train_hook.py", tmp_path, launched)
    trial = create_trial(str(out))
    assert trial.tensor("gradients/conv1/kernelGrad").steps(mode=smd.modes.TRAIN) == [0, 4]
    assert "conv1/weights/conv1/kernel:0" in trial.tensor_names(collection="weights")
