"""smdebug's hook for Gluon under its own names: what it saves, when, and what the values are."""

import copy
import os
import pathlib
import pickle
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest
from frameworks.mxnet import gluon_training as gt
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = str(ROOT / "smdebug-compat" / "src")
sys.path.insert(0, NAMES)

import smdebug.mxnet as smd  # noqa: E402
from smdebug.trials import create_trial  # noqa: E402

EXAMPLE = ROOT / "examples" / "mxnet_gluon_hook.py"


@pytest.fixture
def hook(tmp_path):
    """hook(**arguments) makes one that writes to out_dir; it is closed afterwards."""
    made = []

    def make(**arguments):
        made.append(smd.Hook(str(tmp_path / "run"), **arguments))
        made[-1].trial = lambda: (made[-1].close(), create_trial(str(tmp_path / "run")))[1]
        return made[-1]

    yield make
    for h in made:
        h.close()
    smd.del_hook()


def train(net, hook, steps=4, loss=None, seen=None):
    mx.random.seed(0)
    # A name of its own: smdebug's expression for losses takes one digit, and this process has made more than ten.
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss(prefix="softmaxcrossentropyloss0_")
    hook.register_block(net)
    hook.register_block(loss)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for images, labels in gt.batches(steps):
        with autograd.record():
            value = loss(net(images), labels)
        value.backward()
        trainer.step(images.shape[0])
        if seen is not None:
            seen.append({p.name: p.data().asnumpy() for p in net.collect_params().values()})
            seen[-1].update({"gradient/" + p.name: p.grad().asnumpy() for p in net.collect_params().values()})
            seen[-1][loss.name + "_output_0"] = value.asnumpy()
    return loss


def test_everything_as_smdebug_has_it_parameters_after_the_update(hook):
    h, seen, net = hook(save_all=True, save_config=smd.SaveConfig(save_interval=1)), [], gt.convolutional()
    loss = train(net, h, seen=seen)
    trial = h.trial()
    assert trial.steps() == [0, 1, 2, 3]
    for step, values in enumerate(seen):
        for name, value in values.items():
            np.testing.assert_array_equal(trial.tensor(name).value(step), value, err_msg=f"{name} at {step}")
    first = net[0].name
    expected = {f"{first}_{what}" for what in ("weight", "bias", "input_0", "output_0", "relu_input_0", "relu_output_0")}
    assert expected <= set(trial.tensor_names())
    assert {f"{loss.name}_input_0", f"{loss.name}_input_1", f"{net.name}_output_0"} <= set(trial.tensor_names())
    assert trial.tensor(f"{first}_input_0").value(2).shape == (16, 1, 28, 28)


def test_by_default_the_losses_every_500_steps(hook):
    h = hook()
    assert h.has_default_hook_configuration()
    loss = train(gt.convolutional(), h)
    trial = h.trial()
    assert trial.tensor_names() == [f"{loss.name}_output_0"] and trial.tensor(f"{loss.name}_output_0").steps() == [0]


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_collection_of_a_layer_hybridized_it_has_parameters_only(hook, hybridize):
    h, net = hook(), gt.convolutional(hybridize=hybridize)
    first = net[0].name
    collection = h.get_collection("layer")
    collection.include(f"{first}_.*")
    collection.save_config = smd.SaveConfig(save_interval=2)
    h.include_collections.add("layer")
    train(net, h)
    trial = h.trial()
    names = {f"{first}_weight", f"{first}_bias", f"gradient/{first}_weight", f"gradient/{first}_bias"}
    if not hybridize:
        names |= {f"{first}_{what}_0" for what in ("input", "output", "relu_input", "relu_output")}
    assert set(trial.tensor_names(collection="layer")) == names
    assert all(trial.tensor(name).steps() == [0, 2] for name in names)


def test_modes_scalars_and_tensors_of_the_scripts_own(hook):
    h, net = hook(save_config=smd.SaveConfig(save_interval=1)), gt.convolutional()
    h.set_mode(smd.modes.TRAIN)
    loss = train(net, h, steps=3)
    h.set_mode(smd.modes.EVAL)
    h.save_scalar("accuracy", nd.array([0.25]))
    net(next(gt.batches(1))[0])
    h.save_tensor("mine", nd.arange(3))
    trial = h.trial()
    assert trial.steps(mode=smd.modes.TRAIN) == [0, 1, 2] and trial.steps(mode=smd.modes.EVAL) == [0]
    np.testing.assert_array_equal(trial.tensor("mine").value(0, mode=smd.modes.EVAL), np.arange(3))
    assert "scalar/accuracy" in trial.tensor_names() and trial.tensor(f"{loss.name}_output_0").steps() == [0, 1, 2]


def test_a_registered_model_is_saved_and_copied_without_its_watcher(hook, tmp_path):
    h, net = hook(save_all=True), gt.convolutional()
    h.register_block(net)
    pickle.loads(pickle.dumps(dict(net._forward_pre_hooks)))
    copied = copy.deepcopy(dict(net._forward_pre_hooks))
    assert all(watcher(net, ()) is None for watcher in copied.values())
    h.register_block(object())          # logged, and passed over
    net(next(gt.batches(1))[0])
    net.save_parameters(str(tmp_path / "net.params"))


def test_an_error_of_the_engine_reaches_the_script(hook):
    h = hook(save_all=True, save_config=smd.SaveConfig(save_interval=1))
    net = nn.Dense(3, in_units=6)
    net.initialize()
    h.register_block(net)
    with pytest.raises(mx.base.MXNetError):
        net(nd.random.normal(0, -1, (4, 6)))


@pytest.mark.parametrize("launched", [False, True])
def test_the_example_with_two_lines_of_hook_code(tmp_path, launched):
    out = tmp_path / "out"
    command = [sys.executable, "-W", "ignore", str(EXAMPLE), "--out-dir", str(out), "--subset", "1024", "--save-interval", "2",
               "--test-images", "256"]
    if launched:
        command = [os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / "run"), "--", *command]
    home = os.environ.get("TDBG_HOME", str(ROOT / "python"))
    env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
    env.update(TDBG_HOME=home, TDBG_STRICT="1", PYTHONPATH=os.pathsep.join([home, NAMES]))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    trial = create_trial(str(out))
    names = {"conv0_weight", "conv0_bias", "gradient/conv0_weight", "gradient/conv0_bias", "conv0_relu_input_0",
             "conv0_relu_output_0", "conv0_input_0", "conv0_output_0"}
    assert names <= set(trial.tensor_names(collection="default"))
    assert trial.tensor("conv0_output_0").steps(mode=smd.modes.TRAIN) == [0, 2]
    assert trial.tensor("softmaxcrossentropyloss0_output_0").steps(mode=smd.modes.EVAL) == [0]
