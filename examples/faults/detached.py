"""A training in which half of the model learns nothing: the encoder is called under `no_grad`, left over from the day when it
was a pretrained one. The loss falls all the same, a little.

Healthy: without `no_grad`.
"""

import contextlib

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, images):
        with contextlib.nullcontext() if given.healthy else torch.no_grad():
            features = self.encoder(images)
        return self.head(features)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

train(model, optimizer, batches("train", 64 * 40, 64))
