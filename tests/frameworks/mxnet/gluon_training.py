"""Small seeded trainings for the tests, and what they saw themselves."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn


def convolutional(prefix=None, hybridize=False, **flags):
    """The network of the FashionMNIST example; names count on from "conv0" only in a fresh name scope."""
    net = nn.HybridSequential(prefix=prefix)
    net.add(nn.Conv2D(6, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Conv2D(16, 3, activation="relu"),
            nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(20, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize(**flags)
    return net


def batches(count, size=16, seed=0):
    random = np.random.RandomState(seed)
    for _ in range(count):
        yield nd.array(random.rand(size, 1, 28, 28)), nd.array(random.randint(0, 10, size))


def train(net, steps=4, seed=0, optimizer="sgd", seen=None, evaluations=0, loss=None, **options):
    """Trains; appends {name: array} of each step's loss, gradients and weights, pre-update, to `seen`."""
    mx.random.seed(seed)
    loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
    options.setdefault("learning_rate", 0.1)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options)
    for images, labels in batches(steps, seed=seed):
        with autograd.record():
            value = loss(net(images), labels)
        value.backward()
        if seen is not None:
            seen.append({f"{loss.name}_output_0": value.asnumpy()})
            for p in net.collect_params().values():
                seen[-1][p.name] = p.data().asnumpy()
                if p.grad_req != "null":
                    seen[-1]["gradient/" + p.name] = p.grad().asnumpy()
        trainer.step(images.shape[0])
    for images, labels in batches(evaluations, seed=seed + 1):
        value = loss(net(images), labels)
        if seen is not None:
            seen.append({f"{loss.name}_output_0": value.asnumpy()})
    return net


def weights(net):
    return b"".join(p.data().asnumpy().tobytes() for p in net.collect_params().values())
