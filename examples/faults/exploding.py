"""A training that explodes: recurrent weights too large, a sequence of rows, and no clipping. Infinity first, NaN a step later.

Healthy: orthogonal recurrent weights, and gradients clipped.
"""

import torch
from data import arguments, batches
from torch import nn


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self):
        super().__init__()
        self.cell = nn.RNN(28, 64, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.cell(images.squeeze(1))[0][:, -1])


given = arguments(__doc__)
model = Rows()
with torch.no_grad():
    nn.init.orthogonal_(model.cell.weight_hh_l0)
    if not given.healthy:
        model.cell.weight_hh_l0.mul_(8)
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (images, labels) in enumerate(batches("train", 64 * 40, 64, flat=False)):
    optimizer.zero_grad()
    loss = loss_function(model(images), labels)
    loss.backward()
    if given.healthy:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
