"""Layers that are made where they are used, and copies that are meant."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """`between(features)` gives what the head is given."""

    def __init__(self, between=lambda x: x):
        super().__init__()
        self.first, self.between, self.head = nn.Linear(6, 8), between, nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.between(self.first(x).relu()))


def topics(watch, net, steps=8, loss=None, parameters=None, size=(16, 6)):
    session = watch()
    optimizer = torch.optim.SGD(parameters or net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = torch.randn(*size), torch.randint(0, 4, (16,))
        (loss(net, x, y) if loss else F.cross_entropy(net(x), y)).backward()
        optimizer.step()
    session.finish("closed")
    return [(step, said["layers"]) for step, said in session.made[0].contexts.get("made_anew", ())]


def layer(*shape):
    return [(5, [{"kind": "linear layer", "shape": list(shape)}])]


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 5, 1), nn.Linear(7, 4)

    def forward(self, x):
        return self.head(nn.Conv2d(5, 7, 3)(self.first(x)).mean((2, 3)))


WRONG = {
    "of another shape": (lambda x: nn.Linear(8, 9)(x)[:, :8], layer(9, 8)),
    "without a bias": (lambda x: nn.Linear(8, 9, bias=False)(x)[:, :8], layer(9, 8)),
    "of texts": (lambda x: nn.Linear(8, 9)(x[:, None].expand(-1, 3, -1))[:, 0, :8], layer(9, 8)),
    "of a shape that the model has": (lambda x: nn.Linear(8, 4)(x).repeat(1, 2), layer(4, 8)),
    "by hand": (lambda x: x @ nn.Parameter(torch.randn(8, 8)), layer(8, 8)),
    "two": (lambda x: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))(x), [(5, layer(8, 8)[0][1] * 2)]),
}


@pytest.mark.parametrize("between, told", WRONG.values(), ids=WRONG)
def test_a_layer_made_in_forward(watch, between, told):
    assert topics(watch, Net(between)) == told


def test_a_convolution(watch):
    assert topics(watch, Pictures(), size=(16, 3, 5, 5)) == [(5, [{"kind": "convolution", "shape": [7, 5, 3, 3]}])]


def test_in_sixteen_bits(watch):
    def loss(net, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(net(x), y)
    assert topics(watch, Net(lambda x: nn.Linear(8, 9)(x)[:, :8]), loss=loss) == layer(9, 8)


def test_while_gradients_accumulate(watch):
    net = Net(lambda x: nn.Linear(8, 9)(x)[:, :8])

    def loss(net, x, y):
        F.cross_entropy(net(x), y).backward()
        return F.cross_entropy(net(x), y)
    [(step, layers)] = topics(watch, net, loss=loss)
    assert step == 5 and layers == layer(9, 8)[0][1] * 2


def test_of_four_steps_nothing_is_said(watch):
    assert topics(watch, Net(lambda x: nn.Linear(8, 9)(x)[:, :8]), steps=5) == []


kept = nn.Linear(8, 8)
HEALTHY = {
    "none": lambda x: x,
    "one that is kept elsewhere": lambda x: kept(x),
    "weights that are computed": lambda x: F.linear(x, x.mean(0)[:, None].expand(8, 8)),
    "without a gradient": lambda x: nn.Linear(8, 8).requires_grad_(False)(x),
    "a perturbation": lambda x: x + nn.Parameter(torch.zeros(16, 8)),
    "a tensor that is given": lambda x: x @ torch.randn(8, 8, requires_grad=True),
}


@pytest.mark.parametrize("between", HEALTHY.values(), ids=HEALTHY)
def test_what_is_none(watch, between):
    assert topics(watch, Net(between)) == []


def test_random_features_of_the_input(watch):
    net = Net()
    assert topics(watch, net, loss=lambda net, x, y: F.cross_entropy(net(nn.Linear(6, 6)(x)), y)) == []


def of_a_copy(net, x, y):
    """Reptile, federated clients: a copy learns, and the model is given what it learnt."""
    learner = copy.deepcopy(net)
    for _ in range(2):
        gradients = torch.autograd.grad(F.cross_entropy(learner(x), y), list(learner.parameters()))
        for parameter, gradient in zip(learner.parameters(), gradients):
            parameter.data -= 0.1 * gradient
    return F.cross_entropy(learner(x), y)


def of_a_smaller_one(net, x, y):
    """A client's, that is cut out of the server's."""
    learner = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    return F.cross_entropy(learner(x), y)


def near_the_model(net, x, y):
    learner = copy.deepcopy(net)
    for parameter in learner.parameters():
        parameter.data += 0.01 * torch.randn_like(parameter)
    return F.cross_entropy(learner(x), y) + sum((p - q).pow(2).sum() for p, q in zip(learner.parameters(), net.parameters()))


def of_a_copied_head(net, x, y):
    head = copy.deepcopy(net.head)
    for parameter in head.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return F.cross_entropy(head(net.first(x)), y)


def held_still(net, x, y):
    """The head learns by the labels, and the features by a copy of it as well."""
    return F.cross_entropy(net(x), y) + copy.deepcopy(net.head)(net.first(x)).pow(2).mean()


def by_its_own_optimizer(net, x, y):
    inner = nn.Linear(8, 3)
    net.optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    return F.cross_entropy(net(x), y) + inner(net.first(x)).pow(2).mean()


MEANT = (of_a_copy, of_a_smaller_one, near_the_model, of_a_copied_head, held_still, by_its_own_optimizer)


@pytest.mark.parametrize("loss", MEANT, ids=lambda loss: loss.__name__)
def test_copies_that_are_meant(watch, loss):
    assert topics(watch, Net(), loss=loss) == []


def test_layers_that_are_added(watch):
    net = Net()
    net.more = nn.ModuleList()

    def loss(net, x, y):
        net.more.append(nn.Linear(8, 8))
        features = net.first(x)
        for one in net.more:
            features = features + one(features)
        return F.cross_entropy(net.head(features), y)
    assert topics(watch, net, loss=loss) == []


def test_nothing_is_kept_alive(watch):
    made = []

    def between(x):
        one = nn.Linear(8, 9)
        made.append(weakref.ref(one.weight))
        return one(x)[:, :8]

    session, net = watch(), Net(between)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(16, 6)), torch.zeros(16, dtype=torch.long)).backward()
        gc.collect()
        assert [ref() for ref in made] == [None] * len(made)
        optimizer.step()
    assert "made_anew" in session.made[0].contexts
