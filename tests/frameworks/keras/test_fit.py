"""`fit`, `train_on_batch`, `evaluate`, `predict`: what is recorded is what happened, and what happens is what would have.

Runs on the backend that KERAS_BACKEND names; test_backends.py runs it on the others.
"""


import keras
import numpy as np
import pytest
from keras import ops

import tdbg
from tdbg.modes import ModeKeys as modes

from .trainings import Watch, compiled, convolutional, data, dense, digest, fresh, images

BACKEND = keras.backend.backend()
RAW = {"collections": {c: {"save_interval": 1} for c in ("weights", "biases", "gradients", "losses", "metrics")}}
EVERYTHING = {"collections": {c: {"save_interval": 1} for c in (
    "weights", "biases", "gradients", "losses", "metrics", "outputs", "inputs", "labels", "predictions",
    "optimizer_variables")}}


def recorded(train, directory, config=None):
    """(what train() returned, the run)."""
    with tdbg.attach(framework="keras", dir=str(directory), config=RAW if config is None else config):
        result = train()
    trial = tdbg.open(str(directory))
    assert not trial.dropped() and not trial.damage()
    return result, trial


def names_of(model):
    """(weight's name, gradient's name) of each trainable variable, as the specification has them."""
    found = []
    for v in model.trainable_variables:
        path = v.path.removeprefix(model.name + "/")
        found.append((f"{path.split('/')[0]}/weights/{path}:0", f"gradients/{path}Grad"))
    return found


def check_values(trial, model, watch, steps=None):
    """Weights before, gradients of each TRAIN step: to the last bit."""
    steps = trial.steps(mode=modes.TRAIN) if steps is None else steps
    assert len(steps) == len(watch.weights)
    for n, step in enumerate(steps):
        for k, (weight, gradient) in enumerate(names_of(model)):
            np.testing.assert_array_equal(trial[weight].value(step, mode=modes.TRAIN), watch.weights[n][k])
            if watch.gradients[n]:
                np.testing.assert_array_equal(trial[gradient].value(step, mode=modes.TRAIN), watch.gradients[n][k])


def fit(make=dense, watch=None, epochs=2, optimizer=None, batch_size=16, inputs=data, validate=True, **options):
    fresh()
    model = compiled(make(), optimizer, **options)
    x, y = inputs()
    history = model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=[watch] if watch else None,
                        validation_data=(x[:16], y[:16]) if validate else None)
    return model, digest(model, history)


def test_weights_before_gradients_and_metrics_of_each_step_are_keras_own(tmp_path):
    watch = Watch()
    (model, _), trial = recorded(lambda: fit(watch=watch), tmp_path / "run")
    assert trial.steps() == list(range(10))
    assert trial.steps(mode=modes.TRAIN) == list(range(8)) and trial.steps(mode=modes.EVAL) == [0, 1]
    assert [trial.mode(s).name for s in range(10)] == ["TRAIN"] * 4 + ["EVAL"] + ["TRAIN"] * 4 + ["EVAL"]
    check_values(trial, model, watch)
    for n, step in enumerate(trial.steps(mode=modes.TRAIN)):
        assert trial["accuracy"].value(step, mode=modes.TRAIN) == np.float32(watch.logs[n]["accuracy"])
    first = [trial["loss"].value(s, mode=modes.TRAIN) for s in (0, 1)]
    assert first[0] == np.float32(watch.logs[0]["loss"]), "the first batch is the mean of itself"
    assert np.mean(first) == pytest.approx(watch.logs[1]["loss"], rel=1e-6), "a batch's own loss, where logs have means"
    for v in model.trainable_variables:
        name = next(w for (w, _), m in zip(names_of(model), model.trainable_variables) if m is v)
        assert trial[name].final_summary().max == np.max(ops.convert_to_numpy(v))


def test_names_are_the_specified_ones(tmp_path):
    _, trial = recorded(fit, tmp_path / "run", EVERYTHING)
    of = lambda collection: trial.tensor_names(collection=collection)
    assert of("weights") == ["hidden/weights/hidden/kernel:0", "scores/weights/scores/kernel:0"]
    assert of("biases") == ["hidden/weights/hidden/bias:0", "scores/weights/scores/bias:0"]
    assert of("gradients") == ["gradients/hidden/biasGrad", "gradients/hidden/kernelGrad", "gradients/scores/biasGrad",
                               "gradients/scores/kernelGrad"]
    assert of("losses") == ["loss"] and of("metrics") == ["accuracy", "val_accuracy", "val_loss"]
    assert of("outputs") == ["hidden/outputs", "scores/outputs"]
    assert of("relu_output") == ["hidden/outputs"]
    assert of("inputs") == ["hidden/inputs", "inputs", "scores/inputs"]
    assert of("labels") == ["labels"] and of("predictions") == ["predictions"]
    assert "sgd/learning_rate:0" in of("optimizer_variables")
    assert trial["context/lr/sgd/0"].value(0) == np.float32(0.1)
    assert trial["context/batch_size"].value(0) == 16


def test_inputs_labels_outputs_and_predictions_belong_together(tmp_path):
    watch = Watch()
    (model, _), trial = recorded(lambda: fit(watch=watch, batch_size=64, epochs=1, validate=False), tmp_path / "run", EVERYTHING)
    x, y = data()
    order = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in trial["inputs"].value(0)]
    np.testing.assert_array_equal(trial["labels"].value(0).ravel(), y[order])
    np.testing.assert_array_equal(trial["hidden/inputs"].value(0), trial["inputs"].value(0))
    np.testing.assert_array_equal(trial["scores/inputs"].value(0), trial["hidden/outputs"].value(0))
    np.testing.assert_array_equal(trial["scores/outputs"].value(0), trial["predictions"].value(0))
    hidden = np.maximum(x[order] @ watch.weights[0][0] + watch.weights[0][1], 0)
    np.testing.assert_allclose(trial["hidden/outputs"].value(0), hidden, rtol=1e-5, atol=1e-6)


THIRD = {"collections": {"outputs": {"save_interval": 3, "summaries": False}}}


@pytest.mark.parametrize("config, jit", [(RAW, False), (EVERYTHING, False), (THIRD, False), (EVERYTHING, True)],
                         ids=["gradients", "everything", "outputs every third", "everything, compiled"])
def test_watched_or_not_the_training_is_the_same(tmp_path, config, jit):
    if jit and BACKEND == "torch":
        pytest.skip("torch.compile: test_torch.py")
    train = lambda: fit(convolutional, inputs=images, batch_size=8, optimizer=keras.optimizers.Adam(0.01), jit_compile=jit)[1]
    bare = train()
    assert bare == train(), "the training repeats itself"
    watched, trial = recorded(train, tmp_path / "run", config)
    assert watched == bare
    assert trial.steps() == list(range(12)), "the last of the evaluation's two batches closes each epoch"
    assert train() == bare, "and afterwards"
