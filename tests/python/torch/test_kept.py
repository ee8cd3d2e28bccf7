"""Gradients that are never reset, where several optimizers train."""

import pytest
import torch
from torch import nn


def kept(watch, loop, steps=8, make=torch.optim.Adam):
    """{optimizer: number of steps at which its gradients were kept}."""
    session = watch()
    one, other = nn.Linear(6, 6), nn.Linear(6, 6)
    optimizers = [make(one.parameters(), lr=1e-3), torch.optim.SGD(other.parameters(), lr=1e-3)]
    for step in range(steps):
        loop(step, one, other, *optimizers)
    session.finish("closed")
    found = {}
    for step in session.made[0].steps:
        for (name, _), value in step.scalars.items():
            if name.startswith("context/gradients_kept"):
                found[name.rpartition("/")[2]] = found.get(name.rpartition("/")[2], 0) + value
    return found


def loss(*layers):
    x = torch.randn(16, 6)
    for layer in layers:
        x = layer(x)
    return x.pow(2).mean()


def both(step, one, other, a, b):
    a.zero_grad()
    b.zero_grad()
    loss(one, other).backward()
    a.step()
    b.step()


def one_of_two(step, one, other, a, b):
    a.zero_grad()
    loss(one, other).backward()
    a.step()
    b.step()


def neither_of_two_losses(step, one, other, a, b):
    loss(one).backward()
    a.step()
    b.zero_grad()
    loss(other).backward()
    b.step()


def in_turn(step, one, other, a, b):
    """The first is reset, the other, which steps at every other step, is not."""
    a.zero_grad()
    loss(one).backward()
    a.step()
    if step % 2:
        loss(one, other).backward()
        b.step()


def adversaries(step, one, other, a, b):
    """The maker's loss gives gradients to its judge, which resets them before its own."""
    a.zero_grad()
    loss(one).backward()
    a.step()
    b.zero_grad()
    loss(other, one).backward()
    b.step()


def adversaries_with_zeros(step, one, other, a, b):
    a.zero_grad(set_to_none=False)
    loss(one).backward()
    a.step()
    b.zero_grad(set_to_none=False)
    loss(other, one).backward()
    b.step()


def accumulated(step, one, other, a, b):
    for _ in range(3):
        loss(one, other).backward()
    a.step()
    b.step()
    a.zero_grad()
    b.zero_grad()


def by_hand(step, one, other, a, b):
    """One's gradients are written in place, and the other's loss does not reach it."""
    b.zero_grad()
    loss(other).backward()
    for p, g in zip(one.parameters(), torch.autograd.grad(loss(one), list(one.parameters()))):
        if p.grad is None:
            p.grad = g.clone()
        else:
            p.grad.copy_(g)
    a.step()
    b.step()


@pytest.mark.parametrize("loop", [both, adversaries, adversaries_with_zeros, accumulated, by_hand])
def test_what_is_reset_is_none(watch, loop):
    assert kept(watch, loop, steps=12) == {}


@pytest.mark.parametrize("loop, label, fewest", [(one_of_two, "SGD", 5), (neither_of_two_losses, "Adam", 5), (in_turn, "SGD", 3)])
def test_one_that_is_never_reset(watch, loop, label, fewest):
    found = kept(watch, loop, steps=14)
    assert set(found) == {label} and found[label] >= fewest


def test_one_optimizer_is_told_as_before(watch):
    session, model = watch(), nn.Linear(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(5):
        loss(model).backward()
        optimizer.step()
    session.finish("closed")
    assert [step.scalars.get(("context/gradients_kept", 0)) for step in session.made[0].steps] == [None, 1, 1, 1, 1]
