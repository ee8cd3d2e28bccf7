"""Losses that a script computes by itself: what is recognised in their graphs, and what only looks like them."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch import own_losses as _own


def trained(watch, loss, model=None, steps=4, rows=16, batch=None, between=lambda: None, **options):
    """The run. `loss(out, y)` of what the model gives, and of targets of shape [rows]."""
    session = watch(**options)
    model = model or nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        x, y = (batch or rows_of)(rows, step)
        optimizer.zero_grad()
        value = loss(model(x), y)
        between()
        value.backward()
        optimizer.step()
    session.finish("closed")
    return session.made[0]


def rows_of(rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=g)
    return x, 3 + x[:, 0] + 2 * torch.randn(rows, generator=g)


# Pairs ------------------------------------------------------------------------------------------------------


def pairs(run):
    """What was told, if each step has it."""
    said = run.contexts.get("loss_graph", [])
    every = all(step.scalars.get(("context/loss_graph/pairs", 0)) == 1 for step in run.steps)
    return said[-1][1].get("pairs") if said and every else None


BROADCAST = {
    "square": lambda out, y: ((out - y) ** 2).mean(),
    "pow": lambda out, y: (out - y).pow(2).mean(),
    "pow of a float": lambda out, y: (out - y).pow(2.0).mean(),
    "square()": lambda out, y: (out - y).square().mean(),
    "torch.mean": lambda out, y: torch.mean((y - out) ** 2),
    "product": lambda out, y: ((out - y) * (out - y)).mean(),
    "twice the same": lambda out, y: (lambda apart: (apart * apart).mean())(y - out),
    "absolute": lambda out, y: (out - y).abs().mean(),
    "sum": lambda out, y: ((out - y) ** 2).sum() / len(y),
    "rows, then their mean": lambda out, y: ((out - y) ** 2).mean(1).mean(0),
    "half": lambda out, y: 0.5 * ((out - y) ** 2).mean(),
    "half, element by element": lambda out, y: (0.5 * (out - y) ** 2).mean(),
    "root": lambda out, y: ((out - y) ** 2).mean().sqrt(),
    "double": lambda out, y: ((out - y.double()) ** 2).mean(),
    "in another type": lambda out, y: (out - y).double().pow(2).mean(),
    "flat": lambda out, y: (out - y).reshape(-1).pow(2).mean(),
    "penalised": lambda out, y: ((out - y) ** 2).mean() + 1e-3 * out.abs().mean(),
    "one of three": lambda out, y: out.sin().mean() + 0.5 * (y - out).pow(2).mean() - 0.01 * out.cos().mean(),
    "behind a function": lambda out, y: ((out.tanh() * 5 - y) ** 2).mean(),
    "behind a view": lambda out, y: ((out.view(-1, 1) - y) ** 2).mean(),
    "a part": lambda out, y: ((out[:, :1] - y) ** 2).mean(),
}


@pytest.mark.parametrize("loss", BROADCAST.values(), ids=BROADCAST)
def test_predictions_of_one_column_and_flat_targets(watch, loss):
    assert pairs(trained(watch, loss)) == {"input": [16, 1], "result": [16, 16]}


@pytest.mark.parametrize("target, result", [((16, 1), [16, 16]), ((16, 1, 1), [16, 1, 16])])
def test_flat_predictions_and_targets_of_one_column(watch, target, result):
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    told = pairs(trained(watch, lambda out, y: ((out - y.reshape(target)) ** 2).mean(), model))
    assert told == {"input": [16], "result": result}


def test_columns_that_are_compared_with_another_rows(watch):
    """Forecasts of several moments: [rows, moments] with [rows, 1, moments]."""
    def loss(out, y):
        return ((out - torch.stack([y, y.cos(), -y], 1)[:, None]) ** 2).mean()
    assert pairs(trained(watch, loss, nn.Linear(6, 3))) == {"input": [16, 3], "result": [16, 16, 3]}


class Votes(nn.Module):
    """A number for each person."""

    def __init__(self):
        super().__init__()
        self.of_person = nn.Parameter(torch.randn(16, 1))
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.of_person


RIGHT = {
    "one shape": lambda out, y: ((out - y[:, None]) ** 2).mean(),
    "squeezed": lambda out, y: ((out.squeeze(1) - y) ** 2).mean(),
    "a number": lambda out, y: ((out - 1.5) ** 2).mean(),
    "a tensor of one number": lambda out, y: ((out - y.mean()) ** 2).mean(),
    "votes": lambda out, y: ((out - torch.randn(16, 16)) ** 2).mean(),
    "votes about the same": lambda out, y: ((out - (y[:, None] + 0.3 * torch.randn(16, 16))) ** 2).mean(),
    "other axes": lambda out, y: ((out - torch.linspace(0, 1, 5)) ** 2).mean(),
    "pairs on purpose": lambda out, y: ((out[:, 0][:, None] - y[None]) ** 2).mean(),
    "pairs on purpose, by a view": lambda out, y: ((out[:, 0].view(-1, 1) - y.view(1, -1)) ** 2).mean(),
    "among its own": lambda out, y: ((out - out.T) ** 2).mean(),
    "an energy distance": lambda out, y: 2 * (out - y).abs().mean() - (out - out.T).abs().mean(),
    "weighted pairs": lambda out, y: (torch.softmax(-(y - y[:, None]) ** 2, 1) * (out - y) ** 2).mean(),
    "the nearest": lambda out, y: ((out - y) ** 2).min(1).values.mean(),
    "two differences": lambda out, y: ((out - y) * (out - y.cos())).mean(),
    "a product": lambda out, y: ((out * y) ** 2).mean(),
    "no square": lambda out, y: (out - y).pow(4).mean(),
    "all targets alike": lambda out, y: ((out - torch.ones(16)) ** 2).mean(),
    "two rows": lambda out, y: ((out[:2] - y[:2]) ** 2).mean(),
}


@pytest.mark.parametrize("loss", RIGHT.values(), ids=RIGHT)
def test_what_is_no_broadcast(watch, loss):
    assert pairs(trained(watch, loss)) is None


def test_a_parameter_against_data_is_none(watch):
    assert pairs(trained(watch, lambda out, y: ((out - y) ** 2).mean(), Votes())) is None


# Reading what a graph keeps ---------------------------------------------------------------------------------


def test_what_a_hook_keeps_is_left_alone(watch):
    """A checkpoint's would compute it again, an offloading one's would bring it back."""
    unpacked = []

    def unpack(tensor):
        unpacked.append(tensor.shape)
        return tensor

    def loss(out, y):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            return ((out - y) ** 2).mean()
    seen = []
    run = trained(watch, loss, between=lambda: seen.append(len(unpacked)))
    assert pairs(run) is None and seen == [0, 1, 2, 3], "once each, by backward"
    assert len(unpacked) == 4


def test_a_checkpoint_is_computed_again_once(watch):
    calls = []

    def inside(out, y):
        calls.append(1)
        return ((out - y) ** 2).mean()
    assert pairs(trained(watch, lambda out, y: checkpoint(inside, out, y, use_reentrant=False))) is None
    assert len(calls) == 8


def test_what_was_changed_in_place_since_fails_as_it_would_without(watch, capsys):
    kept = []

    def loss(out, y):
        kept.append(out - y)
        return (kept[-1] ** 2).mean()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trained(watch, loss, between=lambda: kept[-1].detach().add_(1), strict=False)
    assert capsys.readouterr().err == ""


def test_a_graph_that_is_gone_through_twice(watch):
    session = watch()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = rows_of(16, step)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish("closed")
    assert pairs(session.made[0]) is not None


def test_gradients_of_gradients(watch):
    session = watch()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = rows_of(16, step)
        loss = ((model(x.requires_grad_()) - y) ** 2).mean()
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.pow(2).sum()).backward(create_graph=True)
        optimizer.step()
        optimizer.zero_grad()
    session.finish("closed")
    assert pairs(session.made[0]) is not None


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16, torch.float16, torch.float64])
def test_kinds_of_numbers(watch, dtype):
    run = trained(watch, lambda out, y: ((out - y) ** 2).mean().abs(), nn.Linear(6, 1).to(dtype),
                  batch=lambda rows, seed: [t.to(dtype) for t in rows_of(rows, seed)])
    assert len(run.steps) == 4
    if dtype is torch.float64:
        assert pairs(run) is None, "an absolute value lies between"


def test_the_word_of_a_device_comes_late(watch, monkeypatch):
    """As a tensor, without waiting for it."""
    told = []

    def on_a_device(found):
        told.append(_own.are_pairs(found))
        return told[-1].to("meta")
    monkeypatch.setattr("tdbg.adaptors.torch.loss_graph.are_pairs", on_a_device)
    run = trained(watch, lambda out, y: ((out - y) ** 2).mean())
    assert [t.item() for t in told] == [1] * 4 and "pairs" in run.contexts["loss_graph"][-1][1]
