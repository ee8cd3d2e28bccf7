"""Keras driving PyTorch: what torch.compile has compiled, and who of the two adaptors records. Run by test_backends.py."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tdbg

from .test_fit import BACKEND, check_values, fit, recorded
from .trainings import Watch

pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's own")
ROOT = pathlib.Path(__file__).resolve().parents[3]

SCRIPT = """
import keras, numpy as np, sys, torch
from keras import layers

class Net(keras.Sequential):
    def train_step(self, batch):
        x, y = batch
        self.zero_grad()
        loss = torch.nn.functional.cross_entropy(self(x, training=True), y)
        loss.backward()
        gradients = [v.value.grad for v in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss}

own = "own" in sys.argv
model = (Net if own else keras.Sequential)([keras.Input((8,)), layers.Dense(6, activation="relu", name="hidden"),
                                            layers.Dense(3, name="scores")])
model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x, y = np.random.rand(64, 8).astype("float32"), np.random.randint(0, 3, 64)
model.fit(x, y, batch_size=16, verbose=0, validation_data=(x[:16], y[:16]))
"""


def test_a_step_that_torch_has_compiled_is_the_same_and_has_its_weights_and_metrics(tmp_path, monkeypatch, capfd):
    import torch
    # The front end sees all of our code that there is to be seen; inductor takes half a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    train = lambda watch=None: fit(watch=watch, epochs=1, validate=False, jit_compile=True)
    watch = Watch()
    bare = train()[1]
    (model, state), trial = recorded(lambda: train(watch), tmp_path / "run")
    assert state == bare
    assert trial.steps() == [0, 1, 2, 3]
    watch.gradients = [[]] * 4
    check_values(trial, model, watch)
    assert trial.tensor_names(collection="gradients") == []
    for step in range(4):
        assert trial["accuracy"].value(step) == np.float32(watch.logs[step]["accuracy"])
    assert "torch.compile" in capfd.readouterr().err


@pytest.mark.parametrize("step", ["keras", "own"])
def test_what_keras_drives_is_recorded_once_and_by_its_adaptor(tmp_path, step):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "config.json").write_text(json.dumps({"rules": [], "collections": {"all": {"save_interval": 1}}}))
    done = subprocess.run([os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg")), "run", "--dir", str(tmp_path / "run"), "--config",
                           str(tmp_path / "config.json"), "--", sys.executable, str(tmp_path / "train.py"), step],
                          env=os.environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["run"], "one run"
    trial = tdbg.open(str(tmp_path / "run"))
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 4 + ["EVAL"]
    assert not trial.dropped() and trial.tensor_names(collection="losses") == ["loss"]
    assert trial.tensor_names(collection="gradients") == [
        f"gradients/{name}Grad" for name in ("hidden/bias", "hidden/kernel", "scores/bias", "scores/kernel")]
    assert trial.tensor_names(collection="outputs") == ["hidden/outputs", "scores/outputs"]
    assert all(trial[name].steps(kind="raw") == [0, 1, 2, 3] for name in trial.tensor_names(collection="gradients"))


@pytest.mark.parametrize("jit", [False, True])
def test_a_failure_of_ours_stays_ours(tmp_path, monkeypatch, capfd, jit):
    import torch

    from tdbg.adaptors.values import Values
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))

    def broken(self, *arguments):
        raise RuntimeError("broken")

    bare = fit(epochs=1, jit_compile=jit)[1]
    monkeypatch.setattr(Values, "put", broken)
    with tdbg.attach(framework="keras", dir=str(tmp_path / "run")):
        _, state = fit(epochs=1, jit_compile=jit)
    assert state == bare
    assert {loss.cause for loss in tdbg.open(str(tmp_path / "run")).dropped()} == {"adaptor_error"}
    assert "could not capture" in capfd.readouterr().err
