"""Gradients that vanish: twelve layers of sigmoids with PyTorch's default initialisation. The first layers learn nothing.

Healthy: the same depth with ReLU and the initialisation that fits it.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)
layers, width = [], 784
for _ in range(12):
    linear = nn.Linear(width, 64)
    if given.healthy:
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    layers += [linear, nn.ReLU() if given.healthy else nn.Sigmoid()]
    width = 64
model = nn.Sequential(*layers, nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

train(model, optimizer, batches("train", 64 * 40, 64))
