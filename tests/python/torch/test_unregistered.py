"""Layers in a plain list: found where they are trained on and nobody updates them, and nowhere else."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.layers = keep([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            x = layer(x).relu()
        return self.head(x)


def topics(watch, net, parameters=None, steps=8, forward=None):
    session = watch()
    optimizer = torch.optim.SGD(parameters or net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy((forward or net)(torch.randn(16, 6)), torch.randint(0, 4, (16,))).backward()
        optimizer.step()
    session.finish("closed")
    return [said for _, said in session.made[0].contexts.get("unregistered", ())]


KINDS = {"list": list, "tuple": tuple, "dict": lambda layers: dict(enumerate(layers))}


@pytest.mark.parametrize("keep", KINDS.values(), ids=KINDS)
def test_layers_that_the_model_does_not_know(watch, keep):
    assert topics(watch, Net(keep)) == [{"where": ["Net.layers"], "parameters": 4, "elements": 84}]


def test_of_a_module_inside(watch):
    assert topics(watch, nn.Sequential(Net(list), nn.ReLU())) == [
        {"where": ["Sequential.0.layers"], "parameters": 4, "elements": 84}]


def test_registered_ones_are_none(watch):
    assert topics(watch, Net(nn.ModuleList)) == []


def test_what_an_optimizer_has_is_meant(watch):
    net = Net(list)
    assert topics(watch, net, [*net.head.parameters(), *(p for layer in net.layers for p in layer.parameters())]) == []


def test_what_an_optimizer_has_that_is_still_to_step_is_meant(watch):
    net = Net(list)
    other = torch.optim.SGD([p for layer in net.layers for p in layer.parameters()], lr=0.1)
    assert topics(watch, net) == []
    assert gc.is_tracked(other)


def test_a_teacher_that_is_hidden_in_a_list_is_meant(watch):
    net = Net(nn.ModuleList)
    net.teachers = [nn.Linear(6, 4)]                                    # one: the usual way to hide it
    assert topics(watch, net, forward=lambda x: net(x) + net.teachers[0](x)) == []
    net.teachers = [nn.Linear(6, 4).requires_grad_(False) for _ in range(2)]
    assert topics(watch, net, forward=lambda x: net(x) + net.teachers[0](x)) == []
    net.teachers = [nn.Linear(6, 4), nn.Linear(6, 4)]                   # not differentiated
    assert topics(watch, net, forward=lambda x: net(x) + net.teachers[0](x).detach()) == []
