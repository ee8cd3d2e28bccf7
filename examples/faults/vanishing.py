"""Gradients that vanish: twelve layers of sigmoids with PyTorch's default initialisation. The first layers learn nothing.

Healthy: the same depth with ReLU and the initialisation that fits it.
"""

import torch
from data import arguments, batches
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
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (images, labels) in enumerate(batches("train", 64 * 40, 64)):
    optimizer.zero_grad()
    loss = loss_function(model(images), labels)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
