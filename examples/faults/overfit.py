"""A model that learns a hundred images by heart, epoch after epoch, while the validation loss rises.

Healthy: enough images that there is nothing to learn by heart.
"""

import torch
from data import arguments, batches
from torch import nn

given = arguments(__doc__)
train = batches("train", 6400 if given.healthy else 96, 32)
test = batches("t10k", 500, 100)
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for epoch in range(3 if given.healthy else 40):
    model.train()
    for images, labels in train:
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        validation = sum(loss_function(model(images), labels).item() for images, labels in test) / len(test)
    print(f"epoch {epoch} training {loss.item():.4f} validation {validation:.4f}", flush=True)
