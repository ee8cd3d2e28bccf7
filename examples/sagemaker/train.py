"""A small convolutional network on made-up pictures. Plain PyTorch, as a team's own entry point: nothing here knows
that it is watched, or where it runs.

    python train.py --num_epochs 10 --lr 0.1

Options have the names that the five programs beside it give their hyperparameters.
"""

import argparse
import os

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, 6, 5)
        self.conv0_relu = nn.ReLU()
        self.conv1 = nn.Conv2d(6, 12, 5)
        self.conv1_relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc0 = nn.Linear(12 * 4 * 4, 48)
        self.fc0_relu = nn.ReLU()
        self.fc1 = nn.Linear(48, 10)

    def forward(self, x):
        x = self.pool(self.conv0_relu(self.conv0(x)))
        x = self.pool(self.conv1_relu(self.conv1(x)))
        return self.fc1(self.fc0_relu(self.fc0(x.flatten(1))))


def pictures(count):
    """Ten kinds of stripes under a bright or a dark spot, shifted and noisy: (count, 1, 28, 28), and their kinds."""
    chance = torch.Generator().manual_seed(0)
    kinds = torch.randint(0, 10, (count,), generator=chance)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij")
    shift = torch.rand(count, 2, 1, 1, generator=chance) * 0.6 - 0.3
    y, x = y + shift[:, 0], x + shift[:, 1]
    angle = (kinds % 5 * 0.63).view(-1, 1, 1)
    stripes = torch.cos(9 * (x * torch.cos(angle) + y * torch.sin(angle)))
    spot = torch.exp(-3 * (x * x + y * y)) * torch.where(kinds < 5, 1.0, -1.0).view(-1, 1, 1)
    noise = torch.randn(count, 28, 28, generator=chance)
    return (stripes * 0.7 + spot * 1.5 + 0.4 * noise).unsqueeze(1), kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", "--learning_rate", type=float, default=0.1)
    parser.add_argument("--epochs", "--num_epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--checkpoint-path", default="", help="a checkpoint after each epoch, and where to go on from")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # a laptop's notebook runs beside it
    images, kinds = pictures(options.images)
    model, loss_of = Net(), nn.CrossEntropyLoss()
    if options.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    first, checkpoint = 0, os.path.join(options.checkpoint_path, "last.pt")
    if options.checkpoint_path and os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
        print(f"goes on with epoch {first}", flush=True)
    for epoch in range(first, options.epochs):
        order = torch.randperm(options.images, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(options.batch_size):
            optimizer.zero_grad()
            loss = loss_of(model(images[batch]), kinds[batch])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        if options.checkpoint_path:
            os.makedirs(options.checkpoint_path, exist_ok=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)  # a reclaim never finds half of one


if __name__ == "__main__":
    main()
