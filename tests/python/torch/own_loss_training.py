"""Trainings whose losses the script computes by itself, and what was told of them."""

import torch
from torch import nn


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


def looks(run):
    """Of each step what was told of predictions and targets, without `context/`."""
    return [{name[len("context/"):]: value for (name, _), value in step.scalars.items()
             if name.startswith(("context/targets", "context/predictions"))} for step in run.steps]


def own(run):
    """What the loss was said to be, step by step."""
    said = run.contexts.get("own_loss", [])
    return [said[-1][1]["function"] if step.scalars.get(("context/own_loss", 0)) else None for step in run.steps]
