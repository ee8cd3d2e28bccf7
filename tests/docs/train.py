"""What the documents call train.py: a small network on noise. `--nan STEP`: that step's batch has a NaN; `--until FILE`: goes
on until the file is there."""

import argparse
import os
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.fc = nn.Conv2d(1, 32, 3), nn.Linear(32 * 6 * 6, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv1(x)).flatten(1))


loss_function = nn.CrossEntropyLoss()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--nan", type=int, default=-1)
    parser.add_argument("--until", default="")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    step = 0
    while step < given.steps or given.until and not os.path.exists(given.until):
        images, labels = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
        if step == given.nan:
            images[3, 0, 0, 0] = float("nan")
        optimizer.zero_grad()
        loss_function(model(images), labels).backward()
        optimizer.step()
        step += 1
        if given.until:
            time.sleep(0.01)


if __name__ == "__main__":
    main()
