"""A training that does not wait for MXNet: its values are those of the step, however late the engine comes to them."""

import mxnet as mx
import numpy as np
import pytest
from frameworks.mxnet import gluon_training as gt
from frameworks.mxnet.test_gluon import EVERYTHING, attach  # noqa: F401
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tdbg
from tdbg.adaptors.mxnet import copies, params

#: Running averages are not copied: with them, everything is waited for.
AVERAGES = {"collections": {**EVERYTHING["collections"], "averages": {"include_regex": "running_(mean|var)", "save_interval": 1}}}


def wide(**flags):
    """Channels in sixteens, for which oneDNN has layouts of its own; arrays small and large."""
    mx.random.seed(0)
    net = nn.HybridSequential(prefix="wide_")
    net.add(nn.Conv2D(16, 3, in_channels=1, activation="relu", prefix="wide_conv0_"),
            nn.Conv2D(32, 3, in_channels=16, prefix="wide_conv1_"), nn.BatchNorm(in_channels=32, prefix="wide_norm_"),
            nn.MaxPool2D(4, 4), nn.Flatten(), nn.Dense(10, in_units=1152, prefix="wide_dense_"))
    net.initialize(mx.init.Xavier())
    if flags:
        net.hybridize(**flags)
    return net


def train(net, steps=5, wait=False):
    """Evaluates once on the way, which lets oneDNN lay out the weights anew, and wipes the gradients after each step.

    :returns: with `wait`, a {name: value} a step, before the update
    """
    seen, loss = [], gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    parameters = net.collect_params()
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for n, (images, labels) in enumerate(gt.batches(steps, size=32)):
        if n == 3:
            net(images)
        with autograd.record():
            value = loss(net(images), labels)
        value.backward()
        if wait:
            nd.waitall()                     # the gradients alone do not do for running averages
            seen.append({"loss_output_0": value.asnumpy(), **{p.name: p.data().asnumpy() for p in parameters.values()},
                         **{"gradient/" + p.name: p.grad().asnumpy() for p in parameters.values() if p.grad_req != "null"}})
        trainer.step(32)
        value[:] = -1
        for p in parameters.values():
            if p.grad_req != "null":
                p.grad()[:] = 7
    return seen


@pytest.mark.parametrize("config, most, small", [(AVERAGES, params.MAX_COPIED, 0), (EVERYTHING, 0, 0)]
                         + [(EVERYTHING, params.MAX_COPIED, small) for small in (0, copies.SMALL, 1 << 20)],
                         ids=["averages", "waited for", "copied one by one", "copied", "copied together"])
@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}], ids=["as it is", "hybridized"])
def test_values_are_those_of_the_step(attach, monkeypatch, flags, config, most, small):
    monkeypatch.setattr(params, "MAX_COPIED", most)
    monkeypatch.setattr(copies, "SMALL", small)
    bare = wide(**flags)
    expected = train(bare, wait=True)
    run, net = attach(config), wide(**flags)
    train(net)
    trial = run.trial()
    assert gt.weights(net) == gt.weights(bare)
    assert trial.dropped() == []
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 3 + ["EVAL"] + ["TRAIN"] * 2
    for step, values in zip(trial.steps(mode="TRAIN"), expected):
        for name, value in values.items():
            if config is EVERYTHING and "_running_" in name:
                continue
            np.testing.assert_array_equal(trial[name].value(step, mode="TRAIN"), value, err_msg=f"{name} at {step}")


@pytest.mark.parametrize("wait", [lambda v: v.asscalar(), lambda v: v.wait_to_read(), lambda v: nd.waitall(),
                                  lambda v: mx.npx.waitall()], ids=["asscalar", "wait_to_read", "waitall", "npx.waitall"])
def test_a_step_is_there_when_the_script_has_waited_for_it(attach, wait):
    run = attach()
    net, loss = wide(), gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for n, (images, labels) in enumerate(gt.batches(3)):
        with autograd.record():
            value = loss(net(images), labels)
        value.backward()
        trainer.step(16)
        # After every update, whatever the engine's order.
        last = nd.concat(*[p.data().reshape(-1) for p in net.collect_params().values()], dim=0).sum()
        wait(last)
        live = tdbg.open(run.directory)
        assert live.steps() == list(range(n + 1))
        assert live["gradient/wide_dense_weight"].steps() == list(range(n + 1))
