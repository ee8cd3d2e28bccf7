"""What the tests of devices' lanes train, and what they compare with."""

import numpy as np
import torch
from torch import nn

CLOSE = dict(rtol=1e-5, atol=1e-7)     # of moments: docs/statistics.md


def reference(x):
    x = np.asarray(x, np.float64).reshape(-1)
    ok = x[np.isfinite(x)]
    counts = [x.size, np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum(), (x == 0).sum()]
    if not ok.size:
        return np.array(counts + [np.nan] * 10)
    d, a = ok - ok.mean(), np.abs(ok)
    return np.array(counts + [ok.min(), ok.max(), ok.mean(), (d ** 2).mean(), (d ** 3).mean(), (d ** 4).mean(),
                              a.sum(), np.sqrt((ok ** 2).sum()), a.min(), a.max()])


def train(steps=4, optimizer=None, model=None, before=lambda step: None, inputs=20, outputs=10):
    torch.manual_seed(0)
    model = model or nn.Linear(inputs, outputs)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    weights = []
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.ones(2, inputs)), torch.zeros(2, outputs)).backward()
        weights.append(model.weight.detach().clone())
        optimizer.step()
    return model, optimizer, weights


def with_weight(model):
    model.weight = model[0].weight
    return model
