"""Trains a small convolutional network on FashionMNIST. Plain PyTorch: nothing here knows that it may be watched.

    python train.py --epochs 1
    python train.py --steps 200 --subset 6400 --lr 0.1
"""

import argparse
import gzip
import os
import struct
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Debian's package dataset-fashion-mnist; what torchvision leaves after a download; the working directory.
PLACES = ("/usr/share/datasets/fashion-mnist", "data/FashionMNIST/raw", "data")


def read_idx(path):
    """An IDX file of unsigned bytes as a tensor."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        _, _, dtype, rank = struct.unpack("4B", file.read(4))
        if dtype != 8:
            raise ValueError(f"{path}: not a file of unsigned bytes")
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


def load(folder, part):
    """(images, labels) of "train" or "t10k"; images normalized, one channel."""
    def find(name):
        for end in ("", ".gz"):
            path = os.path.join(folder, name + end)
            if os.path.exists(path):
                return path
        sys.exit(f"{folder} has no {name}[.gz]")

    images = read_idx(find(f"{part}-images-idx3-ubyte")).float().div_(255)
    labels = read_idx(find(f"{part}-labels-idx1-ubyte")).long()
    return images.sub_(0.2860).div_(0.3530).unsqueeze(1), labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.relu2 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(50 * 4 * 4, 500)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv1(x)))
        x = self.pool(self.relu2(self.conv2(x)))
        return self.fc2(self.relu3(self.fc1(x.flatten(1))))


@torch.no_grad()
def evaluate(model, loss_function, batches):
    model.eval()
    total, correct, count = 0.0, 0, 0
    for images, labels in batches:
        scores = model(images)
        total += loss_function(scores, labels).item() * len(labels)
        correct += (scores.argmax(1) == labels).sum().item()
        count += len(labels)
    model.train()
    return total / count, correct / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps; 0: no limit")
    parser.add_argument("--subset", type=int, default=0, help="train on this many images; 0: all 60,000")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="momentum")
    parser.add_argument("--test-images", type=int, default=1000, help="how many to evaluate on; 0: do not")
    parser.add_argument("--log-every", type=int, default=50, help="print the loss every so many steps")
    parser.add_argument("--data", default=next((p for p in PLACES if os.path.isdir(p)), PLACES[0]),
                        help="folder with the four IDX files, gzipped or not (default: %(default)s)")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    images, labels = load(arguments.data, "train")
    if arguments.subset:
        images, labels = images[:arguments.subset], labels[:arguments.subset]
    batches = DataLoader(TensorDataset(images, labels), arguments.batch_size, shuffle=True, drop_last=True)
    model = Net()
    loss_function = nn.CrossEntropyLoss()
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=arguments.lr),
        "momentum": lambda p: torch.optim.SGD(p, lr=arguments.lr, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=arguments.lr),
    }[arguments.optimizer](model.parameters())

    step = 0
    for epoch in range(arguments.epochs):
        for batch, target in batches:
            optimizer.zero_grad()
            loss = loss_function(model(batch), target)
            loss.backward()
            optimizer.step()
            if step % arguments.log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step == arguments.steps:
                break
        if step == arguments.steps:
            break
    if arguments.test_images:
        test = TensorDataset(*(t[:arguments.test_images] for t in load(arguments.data, "t10k")))
        loss, accuracy = evaluate(model, loss_function, DataLoader(test, 250))
        print(f"after {step} steps: test loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
