"""A large model that learns a hundred images by heart, a third of them with a wrong label, while the validation loss
rises.

Healthy: enough images, with their own labels, that there is nothing to learn by heart.
"""

import torch
from data import arguments, batches
from torch import nn

given = arguments(__doc__)
train = batches("train", 6400 if given.healthy else 96, 32)
test = batches("t10k", 500, 100)
if not given.healthy:
    for _, labels in train:
        wrong = torch.rand(len(labels)) < 1 / 3
        labels[wrong] = torch.randint(10, (int(wrong.sum()),))
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

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
