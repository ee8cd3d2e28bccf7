"""Parameters that neither a model nor an optimizer has, and those that are meant to be so."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.torch import lone as _lone

STEPS = _lone.FIRST + _lone.LATER + 1


class Net(nn.Module):
    def __init__(self, **kept):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.__dict__.update(kept)

    def scaled(self, x):
        return x

    def forward(self, x):
        return self.head(self.scaled(self.first(x).relu()))


class Scaled(Net):
    """By what `scales(net)` gives."""

    def __init__(self, scales, **kept):
        super().__init__(**kept)
        self.__dict__["scales"] = scales

    def scaled(self, x):
        for scale in self.scales(self):
            x = x * scale
        return x


def scale(*size):
    return nn.Parameter(torch.ones(*size or (1, 8)))


def topics(watch, net, steps=STEPS, loss=None, each=lambda n: None):
    session = watch()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for n in range(steps):
        optimizer.zero_grad()
        x, y = torch.randn(16, 6), torch.randint(0, 4, (16,))
        (loss(net, x, y) if loss else F.cross_entropy(net(x), y)).backward()
        each(n)
        optimizer.step()
    session.finish("closed")
    return [said for _, said in session.made[0].contexts.get("lone_parameters", ())]


def told(where, *shapes):
    return [{"where": where, "parameters": len(shapes), "shapes": [list(s) for s in shapes],
             "elements": sum(a * b for a, b in shapes)}]


def test_parameters_in_a_list(watch):
    both = [(1, 8), (1, 8)]
    assert topics(watch, Scaled(lambda net: net.kept, kept=[scale(), scale()])) == told(["Scaled.kept"], *both)
    assert topics(watch, Scaled(lambda net: net.kept.values(), kept={"a": scale()})) == told(["Scaled.kept"], both[0])


def test_one_outside_of_all_models(watch):
    alone = scale()
    assert topics(watch, Scaled(lambda net: [alone])) == told([], (1, 8))


def test_one_whose_copy_is_kept(watch):
    """`nn.Parameter(...).to(...)` gives a tensor that was computed, and that no module registers."""
    net = Scaled(lambda net: [net.kept])
    net.kept = nn.Parameter(torch.ones(1, 8, dtype=torch.float64)).to(torch.float32)
    assert topics(watch, net) == told([], (1, 8))


def test_registered_ones_are_none(watch):
    net = Scaled(lambda net: net.kept)
    net.kept = nn.ParameterList([scale(), scale()])
    assert topics(watch, net) == []


def test_what_is_used_no_more(watch):
    alone, calls = scale(), []

    def scales(net):
        calls.append(1)
        return [alone] if len(calls) < 8 else []
    assert topics(watch, Scaled(scales)) == []


def test_what_an_optimizer_has(watch):
    alone = scale()
    net = Scaled(lambda net: [alone])
    net.__dict__["other"] = torch.optim.SGD([alone], lr=0.1)
    assert topics(watch, net) == []


def test_what_another_module_has(watch):
    """A network that a loss is computed with, whose parameters nobody froze."""
    seen = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    assert topics(watch, Net(), loss=lambda net, x, y: seen(net(x)).pow(2).mean()) == []


def test_what_is_updated_by_hand(watch):
    alone = scale()

    def ascend(n):
        alone.data += 0.1 * alone.grad
    assert topics(watch, Scaled(lambda net: [alone]), each=ascend) == []


def test_gradients_that_are_taken(watch):
    alone = scale()

    def take(n):
        alone.grad = None
    assert topics(watch, Scaled(lambda net: [alone]), each=take) == []


def test_anchors(watch):
    net = Net()
    before = [copy.deepcopy(parameter) for parameter in net.parameters()]

    def loss(net, x, y):
        apart = sum((p - q).pow(2).sum() for p, q in zip(net.parameters(), before, strict=True))
        return F.cross_entropy(net(x), y) + apart
    assert topics(watch, net, loss=loss) == []


OTHERS = {
    "tensors that need a gradient": lambda: torch.ones(1, 8, requires_grad=True),
    "no gradient": lambda: scale().requires_grad_(False),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_no_parameter_to_learn(watch, make):
    alone = make()
    assert topics(watch, Scaled(lambda net: [alone])) == []


def test_others_each_time(watch):
    assert topics(watch, Scaled(lambda net: [scale()])) == []


def test_before_the_second_look_nothing_is_said(watch):
    assert topics(watch, Scaled(lambda net: net.kept, kept=[scale(), scale()]), steps=STEPS - 1) == []
