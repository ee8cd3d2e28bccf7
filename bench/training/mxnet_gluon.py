"""What recording costs a Gluon training: ratios, interleaved in one process. Runs in .venv-mxnet.

    bench/training/mxnet_gluon.py [--steps 40] [--repeat 9] [--json FILE]

The network and batch size of examples/mxnet_gluon.py. Rows: statistics of parameters, gradients and losses at every step
against bare, for a loop that reads its loss every step (most do) and for one that never waits, called as it is and
hybridized. Blocks of steps with and without take turns; opening and sealing a run is not in them.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")         # MXNet's own, on this NumPy
    import mxnet as mx
    from mxnet import autograd, gluon, nd
    from mxnet.gluon import nn

from tdbg._capture import Run
from tdbg.adaptors import mxnet as adaptor

BAR = 1.05
BATCH = 256


def network(hybridize):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Conv2D(16, 3, activation="relu"),
            nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(120, activation="relu"), nn.Dense(84, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    return net


class Training:
    def __init__(self, hybridize, reads):
        random = np.random.RandomState(0)
        self.batches = [(nd.array(random.rand(BATCH, 1, 28, 28)), nd.array(random.randint(0, 10, BATCH))) for _ in range(4)]
        self.net, self.reads = network(hybridize), reads
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.05})

    def run(self, steps):
        """Seconds per step."""
        for n in range(steps + 3):
            if n == 3:
                mx.nd.waitall()
                start = time.perf_counter()
            images, labels = self.batches[n % len(self.batches)]
            with autograd.record():
                value = self.loss(self.net(images), labels)
            value.backward()
            self.trainer.step(BATCH)
            if self.reads:
                value.mean().asscalar()
        mx.nd.waitall()
        return (time.perf_counter() - start) / steps

    def recorded(self, steps):
        with tempfile.TemporaryDirectory() as folder:
            with adaptor.attach(open_run=Run.open, directory=folder + "/run") as run:
                seconds = self.run(steps)
                lost = run._session.run.losses()
            if lost:
                sys.exit(f"something was lost, so this does not count: {lost}")
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for hybridize in (False, True):
        for reads in (True, False):
            training = Training(hybridize, reads)
            training.run(5)
            times = {"bare": [], "bare again": [], "recorded": []}
            for _ in range(options.repeat):
                times["bare"].append(training.run(options.steps))
                times["recorded"].append(training.recorded(options.steps))
                times["bare again"].append(training.run(options.steps))
            bare = [(a + b) / 2 for a, b in zip(times["bare"], times["bare again"])]
            ratios = sorted(t / b for t, b in zip(times["recorded"], bare))
            noise = statistics.median(b / a for a, b in zip(times["bare"], times["bare again"]))
            rows.append({"hybridized": hybridize, "loss_read": reads, "bare_ms": 1e3 * statistics.median(bare),
                         "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1], "noise": noise, "bar": BAR})
            print(f"{'hybridized' if hybridize else 'as it is':10}  loss {'read at every step' if reads else 'never read':18} "
                  f"bare {rows[-1]['bare_ms']:6.2f} ms  recorded {rows[-1]['ratio']:.3f} of it ({ratios[0]:.3f} to {ratios[-1]:.3f})"
                  f"  bare against bare {noise:.3f}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
