"""A NaN from nowhere: images are paired at random and compared by a distance, and one image is paired with itself. The
distance is 0, which is right, the loss is finite, and the slope of a square root at 0 is infinite.

Healthy: a little is added below the root.
"""

import torch
from data import arguments, batches
from torch import nn

given = arguments(__doc__)


class Net(nn.Module):
    """An embedding in which images of one class lie close together."""

    def __init__(self):
        super().__init__()
        self.conv, self.hidden, self.embed = nn.Conv2d(1, 16, 5, stride=2), nn.Linear(16 * 12 * 12, 64), nn.Linear(64, 16)

    def forward(self, images):
        return self.embed(torch.relu(self.hidden(torch.relu(self.conv(images)).flatten(1))))


def contrastive(one, other, same):
    """Pairs of one class are pulled together, others are pushed apart until they are 2 away from each other."""
    squares = (one - other).square().sum(1)
    distance = torch.sqrt(squares + 1e-6 if given.healthy else squares)
    return nn.functional.hinge_embedding_loss(distance, torch.where(same, 1.0, -1.0), margin=2.0)


(images, labels), = batches("train", 128 * 200, 128 * 200, flat=False)
partners = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step, (ours, theirs) in enumerate(zip(torch.arange(len(images)).split(128), partners.split(128))):
    optimizer.zero_grad()
    loss = contrastive(model(images[ours]), model(images[theirs]), labels[ours] == labels[theirs])
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
