"""A sampler that forgot nine classes of ten: nearly all labels are one class, and the model never says anything else.

Healthy: the images as they come.
"""

import torch
from data import arguments, batches
from torch import nn

given = arguments(__doc__)
(images, labels), = batches("train", 6400, 6400)
if not given.healthy:
    keep = (labels == 3) | (torch.arange(len(labels)) % 50 == 0)
    images, labels = images[keep], labels[keep]
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1 if given.healthy else 8):
    for step, (batch, target) in enumerate(zip(images.split(64), labels.split(64))):
        optimizer.zero_grad()
        loss = loss_function(model(batch), target)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
