"""smdebug's hook for Keras under its own names: what it saves, when, and what the values are."""

import keras
import numpy as np
import pytest

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
    h, optimizer = hook(), keras.optimizers.SGD()
    assert h.wrap_optimizer(optimizer) is optimizer and h.register_model(dense()) is None


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


@pytest.mark.parametrize("launched", [False, True])
def test_the_example_with_the_lines_of_hook_code(tmp_path, launched):
    out = hooks.run_example("keras_train_hook.py", tmp_path, launched)
    trial = create_trial(str(out))
    assert trial.tensor("gradients/conv1/kernelGrad").steps(mode=smd.modes.TRAIN) == [0, 4]
    assert "conv1/weights/conv1/kernel:0" in trial.tensor_names(collection="weights")
