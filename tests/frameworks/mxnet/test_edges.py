"""What trainings do that is not one model, one Trainer, one loss."""

import copy
import os
import pathlib
import subprocess
import sys
import textwrap
import warnings

import mxnet as mx
import numpy as np
import pytest
from frameworks.mxnet import gluon_training as gt
from frameworks.mxnet.test_gluon import EVERYTHING, ROOT, attach  # noqa: F401
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tdbg

OUTPUTS = {"collections": {**EVERYTHING["collections"], "blocks": {"include_regex": "_(in|out)put_", "save_interval": 1}}}


def one_step(net, trainer, loss=None, size=8, shape=(6,), seed=0):
    random = np.random.RandomState(seed)
    with autograd.record():
        out = net(nd.array(random.rand(size, *shape)))
        value = out.sum(axis=1) if loss is None else loss(out, nd.array(random.randint(0, 3, size)))
    value.backward()
    trainer.step(size)
    return value


def dense(units=3, **options):
    net = nn.Dense(units, in_units=6, **options)
    net.initialize(mx.init.Xavier())
    return net


def test_two_trainers_that_take_turns_are_one_step(attach):
    run = attach()
    first, second = dense(), dense()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainers = [gluon.Trainer(n.collect_params(), "sgd", {"learning_rate": r}) for n, r in ((first, 0.1), (second, 0.2))]
    for _ in range(3):
        for net, trainer in zip((first, second), trainers):
            one_step(net, trainer, loss)
    trial = run.trial()
    assert len(trial.steps()) == 3
    for net in (first, second):
        assert trial[f"gradient/{net.name}_weight"].steps() == [0, 1, 2]
    assert trial[f"{loss.name}_output_0"].steps() == trial[f"{loss.name}_output_1"].steps() == [0, 1, 2]
    assert [trial[f"context/lr/{name}/0"].value(2) for name in ("SGD", "SGD_1")] == [0.1, 0.2]


@pytest.mark.parametrize("evaluates", [False, True])
def test_a_forward_between_two_trainers_of_a_step_does_not_end_it(attach, evaluates):
    """A target network's, say; with a loss it is an evaluation all the same, and comes after the step."""
    run = attach()
    first, second = dense(), dense()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainers = [gluon.Trainer(n.collect_params(), "sgd", {"learning_rate": 0.1}) for n in (first, second)]
    for _ in range(3):
        one_step(first, trainers[0], loss)
        out = first(nd.ones((2, 6)))
        if evaluates:
            loss(out, nd.zeros((2,)))
        one_step(second, trainers[1], loss)
    trial = run.trial()
    assert [trial.mode(s).name for s in trial.steps()] == (["TRAIN", "EVAL"] if evaluates else ["TRAIN"]) * 3


def test_two_models_are_told_apart_though_the_script_named_them_alike(attach):
    run = attach()
    nets = [dense(prefix="twin_") for _ in range(2)]
    values = [n.weight.data().asnumpy() for n in nets]
    for net in nets:
        one_step(net, gluon.Trainer(net.collect_params(), "sgd"))
    trial = run.trial()
    assert trial.tensor_names(collection="weights") == ["twin_weight", "twin_weight_1"]
    assert trial.tensor_names(collection="biases") == ["twin_bias", "twin_bias_1"]
    np.testing.assert_array_equal(trial["twin_weight"].value(0), values[0])
    np.testing.assert_array_equal(trial["twin_weight_1"].value(trial["twin_weight_1"].steps()[0]), values[1])


def test_a_name_scope_is_in_the_name_and_not_in_the_short_one(attach):
    run = attach()
    net = nn.HybridSequential(prefix="scoped_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=6))
    net.initialize()
    one_step(net, gluon.Trainer(net.collect_params(), "sgd"))
    trial = run.trial()
    assert trial.tensor_names(collection="weights") == ["scoped_dense0_weight"]
    np.testing.assert_array_equal(trial["dense0_weight"].value(0), trial["scoped_dense0_weight"].value(0))


def test_a_second_training_goes_on_in_the_same_run(attach):
    run = attach()
    nets = [gt.train(gt.convolutional(), steps=3) for _ in range(2)]
    trial = run.trial()
    assert len(trial.steps()) == 6
    names = [next(iter(n.collect_params())) for n in nets]
    assert names[0] != names[1]
    assert [trial[n].steps() for n in names] == [[0, 1, 2], [3, 4, 5]]


def test_gradients_of_several_devices_are_summed(attach):
    run = attach()
    devices = [mx.cpu(0), mx.cpu(1)]
    net = nn.Dense(3, in_units=6)
    net.initialize(mx.init.Xavier(), ctx=devices)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    images, labels = nd.array(np.random.RandomState(0).rand(8, 6)), nd.array(np.arange(8) % 3)
    sums = []
    for _ in range(2):
        parts = list(zip(gluon.utils.split_and_load(images, devices), gluon.utils.split_and_load(labels, devices)))
        with autograd.record():
            values = [loss(net(x), y) for x, y in parts]
        for value in values:
            value.backward()
        sums.append(net.weight.grad(devices[0]).asnumpy() + net.weight.grad(devices[1]).asnumpy())
        trainer.step(8)
    trial = run.trial()
    for step, total in enumerate(sums):
        np.testing.assert_array_equal(trial[f"gradient/{net.name}_weight"].value(step), total)
    assert trial[f"{loss.name}_output_1"].steps() == [0, 1], "each device's loss"
    assert "context/micro_steps" in trial.tensor_names() and trial["context/micro_steps"].value(1) == 1


def test_clipping_between_allreduce_and_update(attach):
    run = attach({"collections": {**EVERYTHING["collections"], "gradients_before_clip": {"include_regex": "^gradient/", "save_interval": 1}}})
    net = dense()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=False)
    with autograd.record():
        value = net(nd.ones((4, 6))).sum()
    value.backward()
    trainer.allreduce_grads()
    before = net.weight.grad().asnumpy()
    norm = gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 1.0)
    clipped = net.weight.grad().asnumpy()
    trainer.update(4)
    trial = run.trial()
    assert np.abs(before).max() > np.abs(clipped).max()
    np.testing.assert_array_equal(trial[f"gradient/{net.name}_weight"].value(0), clipped)
    assert trial["context/grad_norm"].value(0) == pytest.approx(norm)
    assert trial["context/gradient_divisor/SGD"].value(0) == 4


def test_gradients_that_add_up_make_micro_steps(attach):
    run = attach()
    net = dense()
    for parameter in net.collect_params().values():
        parameter.grad_req = "add"
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    random, losses, gradients = np.random.RandomState(0), [], []
    for _ in range(2):
        for _ in range(3):
            with autograd.record():
                value = loss(net(nd.array(random.rand(4, 6))), nd.array(random.randint(0, 3, 4)))
            value.backward()
            losses.append(value.asnumpy())
        gradients.append(net.weight.grad().asnumpy())
        trainer.step(12)
        for parameter in net.collect_params().values():
            parameter.zero_grad()
    trial = run.trial()
    assert len(trial.steps()) == 2
    for step in range(2):
        assert trial["context/micro_steps"].value(step) == 3
        np.testing.assert_array_equal(trial[f"gradient/{net.name}_weight"].value(step), gradients[step])
        own = losses[3 * step:3 * step + 3]
        np.testing.assert_allclose(trial[f"{loss.name}_output_0"].value(step), np.mean(own, axis=0), rtol=1e-6)
    assert "backward_loss" not in trial.tensor_names(), "it is the loss block's output"


def test_a_gradient_that_backward_did_not_reach_is_absent(attach):
    run = attach()
    used, unused = dense(), dense()
    params = used.collect_params()
    params.update(unused.collect_params())
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1})
    for _ in range(2):
        with autograd.record():
            value = used(nd.ones((4, 6))).sum()
        value.backward()
        trainer.step(4, ignore_stale_grad=True)
    trial = run.trial()
    assert f"gradient/{unused.name}_weight" not in trial.tensor_names() or not trial[f"gradient/{unused.name}_weight"].steps()
    assert trial[f"gradient/{used.name}_weight"].steps() == [0, 1]
    assert trial["context/gradients_absent"].value(1) == 2
    assert trial[f"{unused.name}_weight"].steps() == [0, 1]


def test_frozen_parameters_and_running_averages_at_every_step(attach):
    run = attach({"collections": {**EVERYTHING["collections"],
                                  "averages": {"include_regex": "running_(mean|var)", "save_interval": 1}}})
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=6), nn.BatchNorm(in_channels=4), nn.Dense(3, in_units=4))
    net.initialize()
    for parameter in net[0].collect_params().values():
        parameter.grad_req = "null"
    trainer, means = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for n in range(3):
        with autograd.record():
            value = net(nd.array(np.random.RandomState(n).rand(8, 6))).sum()
        value.backward()
        means.append(net[1].running_mean.data().asnumpy())
        trainer.step(8)
    trial = run.trial()
    frozen = trial[f"{net[0].name}_weight"]
    assert frozen.steps() == [0, 1, 2] and f"gradient/{net[0].name}_weight" not in trial.tensor_names()
    assert trial[f"{net[1].name}_gamma"].steps() == trial[f"gradient/{net[1].name}_beta"].steps() == [0, 1, 2]
    assert f"{net[1].name}_beta" in trial.tensor_names(collection="biases")
    name = f"{net[1].name}_running_mean"
    assert frozen.steps(kind="raw") == [0, 1, 2], "values are there at every step at which they are due"
    assert trial.tensor_names(collection="averages") == trial.tensor_names(collection="buffers") == [name, f"{net[1].name}_running_var"]
    assert name not in trial.tensor_names(collection="weights")
    for n, mean in enumerate(means):
        np.testing.assert_array_equal(trial[name].value(n), mean)


class Scale(gluon.HybridBlock):
    def __init__(self, dtype):
        super().__init__()
        self.factor = self.params.get("factor", shape=(6,), dtype=dtype, init="ones")

    def hybrid_forward(self, F, x, factor):
        return F.broadcast_mul(x, factor)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(attach, dtype):
    run = attach()
    net = Scale(dtype)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    value = net.factor.data().asnumpy()
    with autograd.record():
        loss = net(nd.ones((4, 6), dtype=dtype)).sum()
    loss.backward()
    trainer.step(4)
    trial = run.trial()
    recorded = trial[net.factor.name].value(0)
    assert recorded.dtype == dtype
    np.testing.assert_array_equal(recorded, value)
    np.testing.assert_array_equal(trial["gradient/" + net.factor.name].value(0), np.full(6, 4))


def test_sparse_gradients_are_dense_ones(attach):
    run = attach()
    net = nn.Embedding(10, 3, sparse_grad=True)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        value = net(nd.array([1, 1, 4])).sum()
    value.backward()
    trainer.step(1)
    gradient = run.trial()[f"gradient/{net.name}_weight"].value(0)
    expected = np.zeros((10, 3), np.float32)
    expected[1], expected[4] = 2, 1
    np.testing.assert_array_equal(gradient, expected)


def test_a_loss_that_is_no_block_is_what_backward_was_called_on(attach):
    run = attach()
    net = dense()
    value = one_step(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}))
    trial = run.trial()
    assert trial.tensor_names(collection="losses") == ["backward_loss"]
    np.testing.assert_array_equal(trial["backward_loss"].value(0), value.asnumpy())


def test_what_is_made_of_a_loss_block_before_backward_is_a_series_beside_it(attach):
    run = attach()
    net, loss = dense(), gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        value = loss(net(nd.ones((4, 6))), nd.ones((4, 3))) * 3
    value.backward()
    trainer.step(4)
    trial = run.trial()
    assert trial.tensor_names(collection="losses") == [f"{loss.name}_output_0"]
    assert trial["backward_loss"].value(0) == pytest.approx(value.sum().asscalar(), rel=1e-6)


def test_a_loss_that_is_overwritten_later_is_recorded_as_it_was(attach):
    run = attach()
    net, loss = dense(), gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        value = loss(net(nd.ones((4, 6))), nd.ones((4, 3)))
    value.backward()
    kept = value.asnumpy()
    value[:] = -1
    trainer.step(4)
    np.testing.assert_array_equal(run.trial()[f"{loss.name}_output_0"].value(0), kept)


def outputs_of(trial, net, step):
    """{what, without the model's own count: value}"""
    numbers = {b.name: i for i, b in enumerate(_blocks(net))}
    found = {}
    for name in trial.tensor_names(collection="blocks"):
        block, what = name.rsplit("_", 2)[0], "_".join(name.rsplit("_", 2)[1:])
        if block in numbers and step in trial[name].steps():
            found[numbers[block], what] = trial[name].value(step)
    return found


def _blocks(net):
    yield net
    for child in net._children.values():
        yield from _blocks(child)


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
def test_inside_a_hybridized_model_is_seen_what_is_seen_outside(tmp_path, flags):
    seen = []
    for number, options in enumerate(({}, {"hybridize": True, **flags})):
        directory = str(tmp_path / str(number))
        with tdbg.attach(framework="mxnet", dir=directory, config=OUTPUTS):
            net = gt.train(gt.convolutional(**options), steps=3, evaluations=1)
        trial = tdbg.open(directory)
        assert trial.dropped() == []
        seen.append([outputs_of(trial, net, step) for step in trial.steps()])
    eager, hybrid = seen
    assert len(eager) == len(hybrid) == 4
    for one, other in zip(eager, hybrid):
        assert one.keys() == other.keys() and len(one) >= 2 * 11
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=str(key))


def test_a_block_called_twice_is_numbered_inside_a_graph_too(tmp_path):
    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.layer = nn.Dense(6, in_units=6)

        def hybrid_forward(self, F, x):
            return self.layer(F.relu(self.layer(x)))

    seen = []
    for number in range(2):
        with tdbg.attach(framework="mxnet", dir=str(tmp_path / str(number)), config=OUTPUTS):
            mx.random.seed(0)
            net = Twice()
            net.initialize(mx.init.Xavier())
            if number:
                net.hybridize()
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
            for n in range(2):
                one_step(net, trainer, seed=n)
        seen.append([outputs_of(tdbg.open(str(tmp_path / str(number))), net, n) for n in range(2)])
    for one, other in zip(*seen):
        assert one.keys() == other.keys() >= {(1, "output_0"), (1, "output_1"), (1, "input_0"), (1, "input_1")}
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=str(key))


def test_calls_side_by_side_that_a_graph_does_not_tell_apart_are_said_to_be_lost(attach, capfd):
    class Side(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Dense(6, in_units=6), nn.Dense(3, in_units=6)

        def hybrid_forward(self, F, x):
            first, second = self.layer(x), self.layer(x * 2)
            return self.last(second - first)

    run = attach(OUTPUTS)
    net = Side()
    net.initialize()
    net.hybridize()
    one_step(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}))
    trial = run.trial()
    assert [x.cause for x in trial.dropped()] == ["unsupported"] and "side by side" in capfd.readouterr().err
    names = trial.tensor_names(collection="blocks")
    assert f"{net.last.name}_output_0" in names and f"{net.layer.name}_output_0" not in names


def test_a_recurrent_layer_with_its_states(attach):
    run = attach(OUTPUTS)
    net = gluon.rnn.LSTM(5, input_size=6)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    states = net.begin_state(batch_size=2)
    with autograd.record():
        out, states = net(nd.ones((3, 2, 6)), states)
        value = out.sum()
    value.backward()
    trainer.step(2)
    trial = run.trial()
    np.testing.assert_array_equal(trial[f"{net.name}_output_0"].value(0), out.asnumpy())
    assert trial[f"{net.name}_output_2"].value(0).shape == (1, 2, 5)
    assert trial[f"gradient/{net.name}_l0_i2h_weight"].steps() == [0]


def test_attached_late_it_sees_the_next_step_and_says_what_it_cannot_see(attach, capfd):
    net = gt.convolutional(hybridize=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    run, name = None, net[0].name
    for n, (images, labels) in enumerate(gt.batches(5)):
        if n == 2:
            run = attach(OUTPUTS)
        if n == 4:
            net.hybridize()
        with autograd.record():
            value = loss(net(images), labels)
        value.backward()
        trainer.step(16)
    trial = run.trial()
    assert trial[f"gradient/{name}_weight"].steps() == trial[f"{loss.name}_output_0"].steps() == [0, 1, 2]
    assert trial[f"{net.name}_output_0"].steps() == [0, 1, 2]
    assert trial[f"{name}_output_0"].steps() == [2], "hybridized again, its graph is seen being made"
    assert capfd.readouterr().err.count("before tdbg was attached") == 1
    assert [x.cause for x in trial.dropped()] == ["unsupported"]


def test_a_watched_model_is_copied_and_hybridized_without_a_word(attach):
    attach(OUTPUTS)
    net = gt.train(gt.convolutional(), steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(net.collect_params())
        net.hybridize()
        gt.train(net, steps=1)
    assert not net._forward_hooks and not net[0]._forward_pre_hooks


def test_predictions_where_the_script_says_so_and_its_own_values(attach):
    run = attach({"collections": {**EVERYTHING["collections"], "mine": {"tensor_names": ["confusion"], "save_interval": 1}}})
    net = dense()
    one_step(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}))
    run.set_mode("predict")
    run.record("confusion", nd.arange(4), collection="mine")
    run.scalar("accuracy", 0.5)
    net(nd.ones((2, 6)))
    trial = run.trial()
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN", "PREDICT"]
    np.testing.assert_array_equal(trial["confusion"].value(1), np.arange(4))
    assert trial["scalar/accuracy"].value(1) == 0.5
    with pytest.raises(ValueError, match="TRAIN, EVAL, PREDICT"):
        run.set_mode("sleep")


def test_a_step_may_be_a_forward(attach):
    run = attach({"step_by": "forward", **OUTPUTS})
    gt.train(gt.convolutional(hybridize=True), steps=3, evaluations=1)
    trial = run.trial()
    assert [trial.mode(s).name for s in trial.steps()] == ["TRAIN"] * 3 + ["EVAL"]
    for name in trial.tensor_names(collection="gradients") + trial.tensor_names(collection="weights"):
        assert trial[name].steps() == [0, 1, 2]
    (loss,) = trial.tensor_names(collection="losses")
    assert trial[loss].steps() == [0, 1, 2, 3]


def test_nothing_but_a_trained_model_makes_steps(attach):
    run = attach()
    transform = gluon.data.vision.transforms.ToTensor()
    other = dense()
    net = dense()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    transform(nd.ones((4, 4, 3)))
    other(nd.ones((2, 6)))
    assert run.directory is None, "nothing is written before there is something to record"
    one_step(net, trainer)
    other(nd.ones((2, 6)))
    transform(nd.ones((4, 4, 3)))
    nd.waitall()                             # a step is there when the script has waited for it
    assert [run.trial().mode(s).name for s in tdbg.open(run.directory).steps()] == ["TRAIN"]


def test_only_the_models_that_were_handed_over(attach):
    wanted, other = dense(), dense()
    trainers = [gluon.Trainer(n.collect_params(), "sgd", {"learning_rate": 0.1}) for n in (wanted, other)]
    run = attach(EVERYTHING, model=wanted)
    for _ in range(2):
        for net, trainer in zip((wanted, other), trainers):
            one_step(net, trainer)
    trial = run.trial()
    assert trial.tensor_names(collection="weights") == [f"{wanted.name}_weight"]
    assert len(trial.steps()) == 2
    with pytest.raises(TypeError, match="gluon.Block"):
        attach(EVERYTHING, model=object())


# Errors of the training's own ---------------------------------------------------------------------------------


class OwnMistake(Exception):
    pass


def test_an_exception_of_the_script_comes_out_as_it_is_and_ends_nothing(attach):
    run = attach()
    net = dense()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    one_step(net, trainer)
    with pytest.raises(OwnMistake):
        with autograd.record():
            net(nd.ones((2, 6)))
            raise OwnMistake
    with pytest.raises(UserWarning, match="has not been updated"):      # Gluon's own: step without backward
        trainer.step(1)
    one_step(net, trainer)
    assert len(run.trial().steps()) == 3


def test_an_error_of_the_engine_reaches_the_script_though_we_waited_for_it_first(attach):
    def broken(net, trainer):
        bad = nd.random.normal(0, -1, (4, 6))       # refused when it runs, not when it is called
        with autograd.record():
            value = net(bad).sum()
        value.backward()
        trainer.step(4)
        value.asscalar()

    for watched in (False, True):
        net = dense()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        if watched:
            run = attach()
        with pytest.raises(mx.base.MXNetError, match="scale|parameter"):
            broken(net, trainer)
    assert run.trial() is not None


SCRIPT = """
import sys
import warnings; warnings.simplefilter("ignore")
sys.path.insert(0, {tests!r})
from frameworks.mxnet import gluon_training as gt
import mxnet as mx, numpy as np
from mxnet import gluon, nd, autograd
"""


def script(tmp_path, source, code=0, flags=()):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(tests=str(pathlib.Path(__file__).parents[2])) + textwrap.dedent(source))
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
    env.update(TDBG_HOME=os.environ.get("TDBG_HOME", str(ROOT / "python")), TDBG_STRICT="1")
    done = subprocess.run([os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / "run"), *flags, "--", sys.executable,
                           str(path)], env=env, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return done


def test_a_training_that_dies_leaves_its_steps_and_its_reason(tmp_path):
    done = script(tmp_path, """
        gt.train(gt.convolutional(), steps=3)
        raise ValueError("no more data")
        """, code=1)
    assert "no more data" in done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps()) == 3
    (ended,) = (tmp_path / "run").rglob("ended*")
    assert "exception" in ended.read_text()


def test_workers_of_a_data_loader_and_forked_and_spawned_children(tmp_path):
    script(tmp_path, """
        import multiprocessing, os
        def child():
            sys.exit(0)
        if __name__ == "__main__":
            data = gluon.data.DataLoader(gluon.data.ArrayDataset(np.random.rand(32, 1, 28, 28).astype("float32"),
                                         np.zeros(32, "float32")), 8, num_workers=2)
            net = gt.convolutional()
            loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "sgd")
            for n, (x, y) in enumerate(data):
                with autograd.record():
                    value = loss(net(x), y)
                value.backward()
                trainer.step(8)
                if n == 1:
                    for how in ("fork", "spawn"):
                        process = multiprocessing.get_context(how).Process(target=child)
                        process.start(); process.join()
                        assert process.exitcode == 0
        """)
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps()) == 4 and trial.dropped() == []
    assert not (tmp_path / "run-2").exists()


def test_a_rule_judges_and_stops_it(tmp_path):
    done = script(tmp_path, """
        net = gt.convolutional()
        gt.train(net, steps=400, learning_rate=1e6)
        """, code=3, flags=["--rule", "exploding_tensor", "--on-issue", "stop"])
    assert "ExplodingTensor" in done.stderr and "IssueFound" in done.stderr.replace("IssuesFound", "IssueFound")
    assert len(tdbg.open(str(tmp_path / "run")).steps()) < 400
