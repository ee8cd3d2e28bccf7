"""A layer that never learns: a group of the optimizer whose learning rate is zero, left over from fine-tuning. The loss falls all
the same.

Healthy: one learning rate for all.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.05 if given.healthy else 0.0},
                             {"params": model[2].parameters()}], lr=0.05)

train(model, optimizer, batches("train", 64 * 60, 64))
