"""A small convolutional network whose training gets stuck. Plain PyTorch: nothing here knows that it is watched.

Pictures of FashionMNIST's shape are made up, so that nothing has to be downloaded. After 120 steps the learning rate is
"decayed", and one of the layers gets a slip of the pen instead. find_the_layer.ipynb finds out which.
"""

import argparse

import torch
from torch import nn

LAYERS = ("conv1", "conv2", "fc1", "fc2")
DECAY_AT = 120
DECAY = {"conv1": 0.5, "conv2": 500, "fc1": 0.5, "fc2": 0.5}  # the fault: 500 where 0.5 was meant


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 16, 5)
        self.relu2 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv1(x)))
        x = self.pool(self.relu2(self.conv2(x)))
        return self.fc2(self.relu3(self.fc1(x.flatten(1))))


def pictures(count, generator):
    """Ten kinds of soft stripes and blobs, shifted and noisy: (count, 1, 28, 28) and their labels."""
    labels = torch.randint(0, 10, (count,), generator=generator)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij")
    shift = torch.rand(count, 2, 1, 1, generator=generator) * 0.6 - 0.3
    y, x = y + shift[:, 0], x + shift[:, 1]
    angle = (labels % 5 * 0.63).view(-1, 1, 1)
    stripes = torch.cos(9 * (x * torch.cos(angle) + y * torch.sin(angle)))
    around = torch.exp(-3 * (x * x + y * y)) * torch.where(labels < 5, 1.0, -1.0).view(-1, 1, 1)
    noise = torch.randn(count, 28, 28, generator=generator)
    return (stripes * 0.7 + around * 1.5 + 0.4 * noise).unsqueeze(1), labels


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=240)
    options.add_argument("--lr", type=float, default=0.05)
    given = options.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a laptop's notebook runs beside it
    generator = torch.Generator().manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD([{"params": getattr(model, name).parameters(), "name": name} for name in LAYERS],
                                lr=given.lr)
    loss_of = nn.CrossEntropyLoss()
    for step in range(given.steps):
        if step == DECAY_AT:
            for group in optimizer.param_groups:
                group["lr"] *= DECAY[group["name"]]
        images, labels = pictures(64, generator)
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
