"""Trains a small convolutional network on FashionMNIST. Plain MXNet Gluon: nothing here knows that it may be watched.

    python mxnet_gluon.py --epochs 10
    python mxnet_gluon.py --steps 30 --subset 3000 --hybridize
"""

import argparse
import gzip
import os
import struct
import sys

import numpy as np
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn


def read_idx(folder, name):
    """An IDX file of unsigned bytes as an array."""
    for path in (os.path.join(folder, name), os.path.join(folder, name + ".gz")):
        if os.path.exists(path):
            with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
                _, _, _, rank = struct.unpack("4B", file.read(4))
                shape = struct.unpack(f">{rank}I", file.read(4 * rank))
                return np.frombuffer(file.read(), np.uint8).reshape(shape)
    sys.exit(f"{folder} has no {name}[.gz]; apt install dataset-fashion-mnist, or say --data FOLDER")


def load(folder, part, count):
    """A data set of (image, label); pixels between 0 and 1, one channel."""
    images = read_idx(folder, f"{part}-images-idx3-ubyte")[:count]
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte")[:count]
    return gluon.data.ArrayDataset(images[:, None].astype(np.float32) / 255, labels.astype(np.float32))


def build():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(channels=6, kernel_size=5, activation="relu"),
            nn.MaxPool2D(pool_size=2, strides=2),
            nn.Conv2D(channels=16, kernel_size=3, activation="relu"),
            nn.MaxPool2D(pool_size=2, strides=2),
            nn.Flatten(),
            nn.Dense(120, activation="relu"),
            nn.Dense(84, activation="relu"),
            nn.Dense(10))
    net.initialize(init=mx.init.Xavier())
    return net


def evaluate(net, loss, batches):
    total, correct, count = 0.0, 0, 0
    for images, labels in batches:
        scores = net(images)
        total += loss(scores, labels).sum().asscalar()
        correct += (scores.argmax(axis=1) == labels).sum().asscalar()
        count += len(labels)
    return total / count, correct / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps; 0: no limit")
    parser.add_argument("--subset", type=int, default=60000, help="how many training images")
    parser.add_argument("--test-images", type=int, default=2000, help="evaluated after each epoch; 0 leaves it out")
    parser.add_argument("--hybridize", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="the folder of the four IDX files")
    args = parser.parse_args()

    mx.random.seed(args.seed)
    np.random.seed(args.seed)
    train = gluon.data.DataLoader(load(args.data, "train", args.subset), args.batch_size, shuffle=True)
    test = gluon.data.DataLoader(load(args.data, "t10k", args.test_images), args.batch_size) if args.test_images else None

    net = build()
    if args.hybridize:
        net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": args.learning_rate})

    step = 0
    for epoch in range(args.epochs):
        total = 0.0
        for number, (images, labels) in enumerate(train):
            with autograd.record():
                value = loss(net(images), labels)
            value.backward()
            trainer.step(images.shape[0])
            total += value.mean().asscalar()
            step += 1
            if step == args.steps:
                break
        line = f"epoch {epoch}: {step} steps, loss {total / (number + 1):.4f}"
        if test is not None:
            line += ", test loss {:.4f}, accuracy {:.3f}".format(*evaluate(net, loss, test))
        print(line, flush=True)
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
