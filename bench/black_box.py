#!/usr/bin/env python3
"""The black box: what holding a step costs while all is well, and whether a replay is the same to the bit.

    python bench/black_box.py                   both
    python bench/black_box.py --models 4        fewer of the 20 models
    python bench/black_box.py --cost            the cost alone

Cost: steps of one training, alternating between two sessions of the same script, one with `black_box: false`; processor time of the training
thread, medians of pairs, and the middle half of them. A replay: a run with a fault in its data at the fourth step, and then the same script with another seed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

LAYERS = {
    "mlp": ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "(8, 16)"),
    "wide": ("nn.Sequential(nn.Linear(16, 512), nn.GELU(), nn.Linear(512, 4))", "(64, 16)"),
    "dropout": ("nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 4))", "(8, 16)"),
    "batch norm": ("nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))", "(8, 16)"),
    "layer norm": ("nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.SiLU(), nn.Linear(64, 4))", "(8, 16)"),
    "cnn": ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4))", "(4, 3, 12, 12)"),
    "resnet": ("nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), "
               "nn.Conv2d(8, 8, 3, padding=1))), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))", "(4, 3, 12, 12)"),
    "dropout2d": ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout2d(0.3), nn.ELU(), nn.Flatten(), nn.LazyLinear(4))", "(4, 3, 8, 8)"),
    "group norm": ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Mish(), nn.Flatten(), nn.LazyLinear(4))", "(4, 3, 8, 8)"),
    "conv1d": ("nn.Sequential(nn.Conv1d(2, 8, 5), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4))", "(4, 2, 32)"),
    "transposed": ("nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))", "(4, 3, 6, 6)"),
    "lstm": ("Last(nn.LSTM(6, 16, 2, batch_first=True, dropout=0.2), 16)", "(4, 9, 6)"),
    "gru": ("Last(nn.GRU(6, 16, batch_first=True, bidirectional=True), 32)", "(4, 9, 6)"),
    "rnn": ("Last(nn.RNN(6, 16, batch_first=True), 16)", "(4, 9, 6)"),
    "transformer": ("Pooled(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.1, batch_first=True), 2), 16)", "(4, 7, 16)"),
    "attention": ("Attends(16)", "(4, 7, 16)"),
    "noise": ("Noisy(16)", "(8, 16)"),
    "rrelu": ("nn.Sequential(nn.Linear(16, 32), nn.RReLU(), nn.Linear(32, 4))", "(8, 16)"),
    "weight norm": ("nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 32)), nn.Softplus(), nn.Linear(32, 4))", "(8, 16)"),
    "bfloat16": ("Lower(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)))", "(8, 16)"),
}
OPTIMIZERS = ["AdamW", "SGD", "RMSprop", "Adam", "NAdam"]

SCRIPT = """
    import random, sys
    import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
    torch.manual_seed(int(sys.argv[1])); np.random.seed(int(sys.argv[1])); random.seed(int(sys.argv[1]))
    class Residual(nn.Module):
        def __init__(self, inner): super().__init__(); self.inner = inner
        def forward(self, x): return x + self.inner(x)
    class Last(nn.Module):
        def __init__(self, rnn, width): super().__init__(); self.rnn, self.head = rnn, nn.Linear(width, 4)
        def forward(self, x): return self.head(self.rnn(x)[0][:, -1])
    class Pooled(nn.Module):
        def __init__(self, inner, width): super().__init__(); self.inner, self.head = inner, nn.Linear(width, 4)
        def forward(self, x): return self.head(self.inner(x).mean(1))
    class Attends(nn.Module):
        def __init__(self, width): super().__init__(); self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 4)
        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.head(F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0).mean(1))
    class Noisy(nn.Module):
        def __init__(self, width): super().__init__(); self.a, self.b = nn.Linear(width, 32), nn.Linear(32, 4)
        def forward(self, x):
            h = self.a(x) + torch.randn(32) * random.gauss(0, 0.1) + torch.from_numpy(np.random.randn(32).astype("float32"))
            return self.b(torch.relu(h))
    class Lower(nn.Module):
        def __init__(self, inner): super().__init__(); self.inner = inner
        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16): return self.inner(x).float()
    model = MODEL; shape = SHAPE; model(torch.randn(shape)) if any("Lazy" in type(m).__name__ for m in model.modules()) else None
    optimizer = torch.optim.OPTIMIZER(model.parameters(), lr=0.01)
    for step in range(6):
        x, y = torch.randn(shape), torch.randint(0, 4, shape[:1])
        if step == 3: x.view(-1)[5] = float("FAULT")
        loss = F.cross_entropy(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step()
"""

COST = """
    import json, sys, time
    import torch, torch.nn as nn, torch.nn.functional as F
    import tdbg
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    tdbg.attach(model, config={"black_box": BOX, "rules": []}, dir=sys.argv[1])
    x, y = torch.randn(ROWS, 784), torch.randint(0, 10, (ROWS,))
    for line in sys.stdin:
        began = time.thread_time()
        for _ in range(int(line)):
            loss = F.cross_entropy(model(x), y); optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(time.thread_time() - began, flush=True)
"""


def replays(count):
    good = 0
    for number, (name, (model, shape)) in enumerate(list(LAYERS.items())[:count]):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "train.py")
            with open(script, "w") as file:
                file.write(textwrap.dedent(SCRIPT).replace("MODEL", model).replace("SHAPE", shape)
                           .replace("OPTIMIZER", OPTIMIZERS[number % len(OPTIMIZERS)]).replace("FAULT", ("nan", "inf")[number % 2]))
            run = os.path.join(folder, "run")
            done = subprocess.run(["tdbg", "run", "--dir", run, "--", sys.executable, script, "1"], capture_output=True, text=True)
            replay = subprocess.run(["tdbg", "replay", run, "--json", "--", sys.executable, script, "2"], capture_output=True, text=True)
            answer = json.loads(replay.stdout) if replay.stdout else {}
            good += answer.get("identical", False)
            gradients = answer.get("gradients", {"identical": 0, "of": 0})
            print(f"{name:12} {'the same to the bit' if answer.get('identical') else 'NOT THE SAME'}, {gradients['identical']} of "
                  f"{gradients['of']} gradients", flush=True)
            if not answer:
                print(textwrap.indent(done.stderr + replay.stderr, "    "))
    print(f"replays: {good} of {min(count, len(LAYERS))} (bar: all)")
    return good == min(count, len(LAYERS))


def cost(label, width, rows, steps, bar, pairs=41):
    with tempfile.TemporaryDirectory() as folder:
        sessions = []
        for box in ("2GiB", False):
            code = textwrap.dedent(COST).replace("WIDTH", str(width)).replace("ROWS", str(rows)).replace("BOX", repr(box))
            sessions.append(subprocess.Popen([sys.executable, "-c", code, os.path.join(folder, str(box))], text=True,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))

        def block(session):
            session.stdin.write(f"{steps}\n")
            session.stdin.flush()
            return float(session.stdout.readline())
        for session in sessions:
            block(session)
        ratios, times = [], []
        for pair in range(pairs):
            order = sessions if pair % 2 else sessions[::-1]
            took = {id(s): block(s) for s in order}
            held, bare = (took[id(s)] for s in sessions)
            ratios.append(held / bare)
            times.append(bare / steps)
        for session in sessions:
            session.stdin.close()
            session.wait()
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"held, {label}: {middle:.4f} (middle half {low:.4f} to {high:.4f}) of steps of {1e3 * statistics.median(times):.2f} ms, bar {bar}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=len(LAYERS))
    parser.add_argument("--cost", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    good = arguments.cost or replays(arguments.models)
    cost("long steps", 1024, 192, 10, 1.003)
    cost("short steps", 256, 32, 60, 1.01)
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
