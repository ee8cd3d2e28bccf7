"""Images that were only divided by 255: all pixels are positive. The training runs, only worse.

Healthy: the mean taken off and divided by the standard deviation, as the data set has them.
"""

import torch
from data import arguments, batches, train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=2)
        self.fc = nn.Linear(8 * 12 * 12, 10)

    def forward(self, images):
        return self.fc(torch.relu(self.conv(images)).flatten(1))


given = arguments(__doc__)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

data = batches("train", 64 * 30, 64, flat=False)
if not given.healthy:
    data = [(images * 0.3530 + 0.2860, labels) for images, labels in data]
train(model, optimizer, data)
