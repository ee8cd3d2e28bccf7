"""A loss that stays where it is: the learning rate lost its exponent's sign to a schedule, and is next to nothing.

Healthy: the learning rate that was meant.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 if given.healthy else 1e-12)

train(model, optimizer, batches("train", 64 * 120, 64), every=20)
