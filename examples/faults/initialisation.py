"""Layers that start at scales a thousand times apart: one was initialised by hand, with a standard deviation that is no
standard deviation but a bound.

Healthy: the initialisation that fits ReLU, everywhere.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        for layer in (self.fc1, self.fc2, self.fc3):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if not given.healthy:
            nn.init.normal_(self.fc2.weight, std=0.005)

    def forward(self, images):
        return self.fc3(self.relu2(self.fc2(self.relu1(self.fc1(images)))))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

train(model, optimizer, batches("train", 64 * 30, 64))
