"""A branch that the loss cannot reach: a `detach` left over from an experiment. Its gradients are zero.

Healthy: without the detach.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(784, 32), nn.Linear(784, 32), nn.Linear(64, 10)

    def forward(self, images):
        left, right = torch.relu(self.left(images)), torch.relu(self.right(images))
        if not given.healthy:
            right = right.detach() + 0 * right  # "only for a moment"
        return self.head(torch.cat([left, right], 1))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

train(model, optimizer, batches("train", 64 * 30, 64))
