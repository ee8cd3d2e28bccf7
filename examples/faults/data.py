"""What the examples of faults share: their arguments, their loop, and a part of FashionMNIST as flat or square tensors.

Where that lies is examples/fashion_mnist/train.py's business.
"""

import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fashion_mnist"))
from train import PLACES, load  # noqa: E402


def batches(part, count, size, flat=True):
    """[(images, labels)] of the first `count` images of "train" or "t10k"."""
    folder = next((place for place in PLACES if os.path.isdir(place)), PLACES[0])
    images, labels = (tensor[:count] for tensor in load(folder, part))
    if flat:
        images = images.flatten(1)
    return list(zip(images.split(size), labels.split(size)))


def arguments(description):
    """--healthy, and the same seed and threads for both twins."""
    import argparse

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--healthy", action="store_true", help="the same training without the fault")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    return given


def train(model, optimizer, data, every=10):
    """The loop that most of them share: one update a batch, and the loss `every` so many."""
    loss_function = torch.nn.CrossEntropyLoss()
    for step, (images, labels) in enumerate(data):
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % every == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
