"""mxnet_gluon.py with the hook of smdebug's users: the script itself says what is saved.

    pip install tdbg-smdebug
    python mxnet_gluon_hook.py --out-dir runs/hook --epochs 2

Needs no `tdbg run`; under it the run is the launcher's, and what the hook says is saved is saved.
"""

import argparse

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet_gluon import build, evaluate, load
from smdebug.mxnet import Hook, SaveConfig, modes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out-dir", required=True, help="the run directory")
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--subset", type=int, default=60000, help="how many training images")
    parser.add_argument("--test-images", type=int, default=2000)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="the folder of the four IDX files")
    args = parser.parse_args()

    mx.random.seed(0)
    np.random.seed(0)
    train = gluon.data.DataLoader(load(args.data, "train", args.subset), 256, shuffle=True)
    test = gluon.data.DataLoader(load(args.data, "t10k", args.test_images), 256)
    net = build()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    hook = Hook(args.out_dir, include_regex=["conv0.*"], save_config=SaveConfig(save_interval=args.save_interval))
    hook.register_block(net)
    hook.register_block(loss)       # losses are saved by default, of losses that are registered

    for epoch in range(args.epochs):
        hook.set_mode(modes.TRAIN)
        for images, labels in train:
            with autograd.record():
                value = loss(net(images), labels)
            value.backward()
            trainer.step(images.shape[0])
        hook.set_mode(modes.EVAL)
        print("epoch {}: test loss {:.4f}, accuracy {:.3f}".format(epoch, *evaluate(net, loss, test)), flush=True)


if __name__ == "__main__":
    main()
