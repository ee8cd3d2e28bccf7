"""Trains a small convolutional network on FashionMNIST with Keras. Nothing here knows that it may be watched.

    python keras_train.py --epochs 1
    KERAS_BACKEND=jax python keras_train.py --steps 200 --subset 6400 --lr 0.1
"""

import argparse
import gzip
import os
import struct
import sys

import keras
import numpy as np
from keras import layers

# Debian's package dataset-fashion-mnist; what torchvision leaves after a download; the working directory.
PLACES = ("/usr/share/datasets/fashion-mnist", "data/FashionMNIST/raw", "data")


def read_idx(path):
    """An IDX file of unsigned bytes as an array."""
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        _, _, dtype, rank = struct.unpack("4B", file.read(4))
        if dtype != 8:
            raise ValueError(f"{path}: not a file of unsigned bytes")
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return np.frombuffer(file.read(), dtype=np.uint8).reshape(shape)


def load(folder, part):
    """(images, labels) of "train" or "t10k"; images normalized, one channel, which is the last axis."""
    def find(name):
        for end in ("", ".gz"):
            path = os.path.join(folder, name + end)
            if os.path.exists(path):
                return path
        sys.exit(f"{folder} has no {name}[.gz]")

    images = read_idx(find(f"{part}-images-idx3-ubyte")).astype(np.float32) / 255
    labels = read_idx(find(f"{part}-labels-idx1-ubyte")).astype(np.int32)
    return ((images - 0.2860) / 0.3530)[..., np.newaxis], labels


def make_model():
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        layers.Conv2D(20, 5, activation="relu", name="conv1"),
        layers.MaxPooling2D(name="pool1"),
        layers.Conv2D(50, 5, activation="relu", name="conv2"),
        layers.MaxPooling2D(name="pool2"),
        layers.Flatten(name="flatten"),
        layers.Dense(500, activation="relu", name="fc1"),
        layers.Dense(10, name="fc2"),
    ])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0, help="train this many steps per epoch; 0: all")
    parser.add_argument("--subset", type=int, default=0, help="train on this many images; 0: all 60,000")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="momentum")
    parser.add_argument("--test-images", type=int, default=1000, help="how many to evaluate on; 0: do not")
    parser.add_argument("--data", default=next((p for p in PLACES if os.path.isdir(p)), PLACES[0]),
                        help="folder with the four IDX files, gzipped or not (default: %(default)s)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    keras.utils.set_random_seed(arguments.seed)
    images, labels = load(arguments.data, "train")
    count = min(n for n in (len(images), arguments.subset, arguments.steps * arguments.batch_size) if n)
    test = None
    if arguments.test_images:
        test = tuple(part[:arguments.test_images] for part in load(arguments.data, "t10k"))

    model = make_model()
    optimizer = {
        "sgd": lambda: keras.optimizers.SGD(arguments.lr),
        "momentum": lambda: keras.optimizers.SGD(arguments.lr, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(arguments.lr),
    }[arguments.optimizer]()
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(images[:count], labels[:count], batch_size=arguments.batch_size, epochs=arguments.epochs,
              validation_data=test, validation_batch_size=250, verbose=2)


if __name__ == "__main__":
    main()
