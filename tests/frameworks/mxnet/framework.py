"""MXNet Gluon in the conformance suite: a perceptron of three blocks, four steps with momentum, then one evaluation."""

import warnings

import numpy as np
from frameworks.conformance.framework import STEPS, Framework, Step, Trained

with warnings.catch_warnings():
    warnings.simplefilter("ignore")         # MXNet's own, on this NumPy
    import mxnet as mx
    from mxnet import autograd, gluon, nd
    from mxnet.gluon import nn

PARAMETERS = ("net_dense0_weight", "net_dense0_bias", "net_dense1_weight", "net_dense1_bias")
BLOCKS = ("net", "net_dense0", "net_relu0", "net_dense1")
LOSS = "softmaxcrossentropyloss0"
TREES = "there are no trees"


class Net(gluon.Block):
    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.first, self.relu, self.last = (
                nn.Dense(5, in_units=3), nn.Activation("relu", prefix="relu0_"), nn.Dense(2, in_units=5))

    def forward(self, x):
        a = self.first(x)
        b = self.relu(a)
        c = self.last(b)
        self.seen = {f"{block}_{way}_0": t.asnumpy() for block, way, t in (
            ("net", "input", x), ("net", "output", c), ("net_dense0", "input", x), ("net_dense0", "output", a),
            ("net_relu0", "input", a), ("net_relu0", "output", b), ("net_dense1", "input", b), ("net_dense1", "output", c))}
        return c


class Mxnet(Framework):
    title = "MXNet Gluon"
    adaptor = "mxnet"
    model_class = gluon.Block
    second = "same run"
    late = "step"
    default = ("weights", "biases", "gradients", "losses")
    replaced = ((gluon.Block, "__call__"), (gluon.Trainer, "__init__"), (gluon.Trainer, "step"), (gluon.Trainer, "update"),
                (nd.NDArray, "backward"), (autograd, "backward"), (gluon.utils, "clip_global_norm"))
    names = {
        "weights": [p for p in PARAMETERS if p.endswith("weight")],
        "biases": [p for p in PARAMETERS if p.endswith("bias")],
        "gradients": [f"gradient/{p}" for p in PARAMETERS],
        "losses": [f"{LOSS}_output_0"],
        "outputs": [f"{block}_output_0" for block in BLOCKS],
        "inputs": [f"{block}_input_0" for block in BLOCKS] + [f"{LOSS}_input_0", f"{LOSS}_input_1"],
    }
    absent = {
        "metrics": "a script computes them by itself: Attached.scalar records them",
        "optimizer_variables": "an updater's states have no names",
        "labels": "an input of the loss: LOSS_input_1", "predictions": "the outermost block's output",
        "hyperparameters": "a script's own; the optimizer's are in the context", "feature_importance": TREES,
        "average_shap": TREES, "full_shap": TREES, "trees": TREES,
    }

    def version(self):
        return mx.__version__

    def train(self, steps=STEPS, after_step=None):
        mx.random.seed(11)
        random = np.random.RandomState(11)
        net, loss = Net(prefix="net_"), gluon.loss.SoftmaxCrossEntropyLoss(prefix=LOSS + "_")
        net.initialize(mx.init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        recorded = []

        def batch():
            return nd.array(random.randn(4, 3)), nd.array(random.randint(0, 2, 4))

        def values(x, y, out, value):
            return {**net.seen, f"{LOSS}_input_0": out.asnumpy(), f"{LOSS}_input_1": y.asnumpy(),
                    f"{LOSS}_output_0": value.asnumpy()}

        for n in range(steps):
            x, y = batch()
            with autograd.record():
                out = net(x)
                value = loss(out, y)
            value.backward()
            recorded.append(Step("TRAIN", {**values(x, y, out, value), **weights(net), **gradients(net)}))
            trainer.step(4)
            if after_step:
                after_step(n)
        x, y = batch()
        out = net(x)
        recorded.append(Step("EVAL", values(x, y, out, loss(out, y))))
        return Trained(recorded, result(recorded, net), weights(net))

    def train_untrained(self):
        mx.random.seed(13)
        net = nn.Sequential(prefix="deep_")
        with net.name_scope():
            net.add(nn.Dense(3, in_units=3, use_bias=False), nn.Dense(3, in_units=3, use_bias=False),
                    nn.BatchNorm(in_channels=3), nn.Dense(2, in_units=3))
        net.initialize(mx.init.Xavier())
        for frozen in net[:2]:
            frozen.weight.grad_req = "null"
        trainer, loss = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), gluon.loss.L2Loss()
        found = {p.name: [] for p in (net[0].weight, net[1].weight, net[2].running_mean, net[2].running_var)}
        for n in range(STEPS):
            with autograd.record():
                value = loss(net(nd.random.normal(shape=(8, 3))), nd.ones((8, 2)))
            value.backward()
            nd.waitall()
            for name, arrays in found.items():
                arrays.append(net.collect_params()[name].data().asnumpy())
            trainer.step(8)
            if n == 1:
                net[1].weight.set_data(net[1].weight.data() + 1)
                net[2].running_var.set_data(nd.array([1, np.inf, 1]))
        return found

    def second_name(self, name):
        for what in ("_input_", "_output_"):
            if what in name:
                return name.replace(what, "_1" + what)
        return name + "_1"

    def train_two(self):
        """A generator and a discriminator with a Trainer each: one step is a step of both."""
        mx.random.seed(12)
        g, d = nn.Dense(3, in_units=2, prefix="generator_"), nn.Dense(1, in_units=3, prefix="discriminator_")
        loss = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        for model in (g, d):
            model.initialize(mx.init.Xavier())
        trainers = [gluon.Trainer(m.collect_params(), "sgd", {"learning_rate": 0.1}) for m in (d, g)]
        recorded = []
        for n in range(STEPS):
            values = {}
            for model, trainer in zip((d, g), trainers):
                with autograd.record():
                    value = loss(d(g(nd.array(np.random.RandomState(n).randn(4, 2)))), nd.ones((4, 1)))
                value.backward()
                values.update({**weights(model), **gradients(model)})
                trainer.step(4)
            recorded.append(Step("TRAIN", values))
        return [Trained(recorded, result(recorded, g, d), {**weights(g), **weights(d)})]


def weights(net):
    return {p.name: p.data().asnumpy() for p in net.collect_params().values()}


def gradients(net):
    return {f"gradient/{p.name}": p.grad().asnumpy() for p in net.collect_params().values()}


def result(recorded, *nets):
    """The next random numbers tell in which state those are."""
    arrays = [a for net in nets for a in weights(net).values()] + [v for step in recorded for v in step.values.values()]
    return b"".join(a.tobytes() for a in arrays) + nd.random.uniform(shape=8).asnumpy().tobytes()
