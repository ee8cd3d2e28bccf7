"""What recording costs a Gluon training: ratios, interleaved in one process. Runs in .venv-mxnet.

    bench/training/mxnet_gluon.py [--steps 8] [--repeat 60] [--json FILE]

The network and batch size of examples/mxnet_gluon.py. Rows: statistics of parameters, gradients and losses at every step
against bare, for a loop that reads its loss every step (most do) and for one that never waits, called as it is and
hybridized. Short blocks of steps with and without take turns, the ratio is the median over the turns, its range that of the
middle four fifths; opening and sealing a run is not in them.
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
        mx.nd.waitall()
        start = time.perf_counter()
        for n in range(steps):
            images, labels = self.batches[n % len(self.batches)]
            with autograd.record():
                value = self.loss(self.net(images), labels)
            value.backward()
            self.trainer.step(BATCH)
            if self.reads:
                value.mean().asscalar()
        mx.nd.waitall()
        return (time.perf_counter() - start) / steps

    def compare(self, steps, repeat):
        """[(bare, recorded, bare)] of blocks that take turns; the adaptor's patches are away in bare ones."""
        self.run(20)
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            with adaptor.attach(open_run=Run.open, directory=folder + "/run") as run:
                session = run._session
                self.run(20)
                for _ in range(repeat):
                    session.patches.undo()
                    before = self.run(steps)
                    session.install()
                    recorded = self.run(steps)
                    session.patches.undo()
                    rows.append((before, recorded, self.run(steps)))
                counted, dropped = session.run.counters()["steps"], session.run.dropped()
            if dropped or counted < repeat * steps:
                sys.exit(f"{counted} steps recorded, {dropped} dropped: this does not count")
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for hybridize in (False, True):
        for reads in (True, False):
            blocks = Training(hybridize, reads).compare(options.steps, options.repeat)
            bare = [(before + after) / 2 for before, _, after in blocks]
            ratios = sorted(recorded / b for (_, recorded, _), b in zip(blocks, bare))
            noise = statistics.median(after / before for before, _, after in blocks)
            tenth = len(ratios) // 10
            rows.append({"hybridized": hybridize, "loss_read": reads, "bare_ms": 1e3 * statistics.median(bare),
                         "ratio": statistics.median(ratios), "least": ratios[tenth], "most": ratios[-1 - tenth],
                         "noise": noise, "bar": BAR})
            print(f"{'hybridized' if hybridize else 'as it is':10}  loss {'read at every step' if reads else 'never read':18} "
                  f"bare {rows[-1]['bare_ms']:6.2f} ms  recorded {rows[-1]['ratio']:.3f} of it ({rows[-1]['least']:.3f} to {rows[-1]['most']:.3f})"
                  f"  bare against bare {noise:.3f}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
