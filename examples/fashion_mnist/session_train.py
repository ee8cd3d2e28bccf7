"""Trains a small convolutional network on FashionMNIST as TensorFlow 1 did: a graph, and a session that runs it. Nothing here
knows that it may be watched.

    python session_train.py --steps 300
"""

import argparse
import gzip
import os
import struct
import sys

import numpy as np
import tensorflow.compat.v1 as tf

DATA = "/usr/share/datasets/fashion-mnist"      # Debian's package dataset-fashion-mnist


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
    """(images, labels) of "train" or "t10k"; pixels between 0 and 1, one channel, which is the last axis."""
    images = read_idx(folder, f"{part}-images-idx3-ubyte")[:count, ..., np.newaxis].astype(np.float32) / 255
    return images, read_idx(folder, f"{part}-labels-idx1-ubyte")[:count].astype(np.int32)


def layer(x, name, shape, function):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", shape, initializer=tf.glorot_uniform_initializer())
        return function(x, weights) + tf.get_variable("bias", shape[-1:], initializer=tf.zeros_initializer())


def convolution(x, name, shape):
    features = tf.nn.relu(layer(x, name, shape, lambda x, w: tf.nn.conv2d(x, w, strides=1, padding="VALID")))
    return tf.nn.max_pool2d(features, 2, 2, "VALID")


def build(rate):
    """(images, labels, loss, accuracy, optimizer) in the default graph."""
    images = tf.placeholder(tf.float32, [None, 28, 28, 1], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")
    features = convolution(convolution(images, "conv1", [5, 5, 1, 20]), "conv2", [5, 5, 20, 50])
    hidden = tf.nn.relu(layer(tf.reshape(features, [-1, 800]), "fc1", [800, 500], tf.matmul))
    scores = layer(hidden, "fc2", [500, 10], tf.matmul)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
    right = tf.equal(tf.argmax(scores, 1, output_type=tf.int32), labels)
    return images, labels, loss, tf.reduce_mean(tf.cast(right, tf.float32)), tf.train.MomentumOptimizer(rate, 0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--steps", type=int, default=937, help="how many batches of 64 images to train on")
    parser.add_argument("--data", default=DATA, help="folder with the four IDX files (default: %(default)s)")
    arguments = parser.parse_args()

    x, y = load(arguments.data, "train", 64 * arguments.steps)
    test = load(arguments.data, "t10k", 1000)
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        images, labels, loss, accuracy, optimizer = build(arguments.lr)
        train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        with tf.train.MonitoredTrainingSession() as session:
            for k in range(0, len(x), 64):
                value, _ = session.run([loss, train], {images: x[k:k + 64], labels: y[k:k + 64]})
                if k % 6400 == 0:
                    print(f"step {k // 64}: loss {value:.4f}", flush=True)
            print("test: loss {:.4f}, accuracy {:.3f}".format(*session.run([loss, accuracy], dict(zip((images, labels), test)))))


if __name__ == "__main__":
    main()
