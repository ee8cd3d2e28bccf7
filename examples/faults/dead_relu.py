"""ReLUs that die: a learning rate ten times too large pushes their inputs below zero, and nothing brings them back.

Healthy: the same network with a learning rate that it can take.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)
model = nn.Sequential(
    nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 if given.healthy else 0.5, momentum=0.9)

train(model, optimizer, batches("train", 128 * 40, 128, flat=False))
