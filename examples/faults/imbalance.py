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


class Classifier(nn.Module):
    """Returns its loss, as many models for fine-tuning do: labels and scores are then inputs of one of its modules."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels):
        return self.loss(self.layers(images), labels)


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(1 if given.healthy else 8):
    for step, (batch, target) in enumerate(zip(images.split(64), labels.split(64))):
        optimizer.zero_grad()
        loss = model(batch, target)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
