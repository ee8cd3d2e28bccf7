"""Units that saturate: pixels from 0 to 255 go into a layer of tanh, whose derivative is zero out there.

Healthy: the same network with the pixels brought to mean zero and variance one.
"""

import torch
from data import arguments, batches, train
from torch import nn

given = arguments(__doc__)
model = nn.Sequential(nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

data = batches("train", 128 * 40, 128)
if not given.healthy:
    data = [((images * 0.3530 + 0.2860) * 255, labels) for images, labels in data]
train(model, optimizer, data)
