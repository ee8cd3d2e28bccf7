"""Runs for the page, by the real writer, without a framework: every value is a function of tensor and step.

    python page_runs.py DIRECTORY sick      a NaN from step 300 on, a layer that vanished, two workers
    python page_runs.py DIRECTORY fine      the same, healthy, one worker
    python page_runs.py DIRECTORY twin      the same, healthy, two workers
    python page_runs.py DIRECTORY live N S  N steps of S seconds
    python page_runs.py DIRECTORY ailing N S  the same, but with the layer that vanishes, from step 20 on
    python page_runs.py DIRECTORY ranks     four workers, of which the third drifts away from step 60 of 120 on and the
                                            fourth is silent from step 90 on; values of a convolution, a matrix, whole numbers
    python page_runs.py DIRECTORY big N T   N steps of T tensors, statistics only
    python page_runs.py DIRECTORY lagging   two workers, of which the second dies after step 39 of 60
    python page_runs.py DIRECTORY scaled    gradients overflow in the first two steps, which AMP skips
    python page_runs.py DIRECTORY hostile   names that are markup, end scripts, turn lines around, have 10 kB
"""

import json
import os
import pathlib
import sys
import time

import numpy as np

HOME = os.environ.get("TDBG_HOME", str(pathlib.Path(__file__).resolve().parents[2] / "python"))
if HOME not in sys.path:
    sys.path.insert(0, HOME)

from tdbg._capture import Run  # noqa: E402

TRAIN = 1
STEPS, DEAD_FROM, NAN_FROM = 400, 120, 300
LAYERS = [f"Net_blocks_{i}_{part}" for i in range(6) for part in ("attention", "mlp")]
DEAD = "Net_blocks_4_mlp"  # its gradient vanishes from DEAD_FROM on
SICK = "Net_blocks_2_mlp"  # the first whose gradient is NaN
HOSTILE_NAMES = ["</script><script>document.title='owned'</script>", "<!--<script>", "\u202e\u2066gnihton", "long" * 2500,
                 "quote'\"`${alert(1)}`&amp;\\u003c", "@SCRIPT@@ANSWERS@", "two\nlines", "behind them"]
HOSTILE = "<img src=x onerror=alert(1)>\u202eevil"


def define(run):
    ids = {}
    for layer in LAYERS:
        for leaf, shape in (("weight", [32, 16]), ("bias", [16])):
            ids[f"{layer}.{leaf}"] = run.define(f"{layer}.{leaf}", leaf, leaf, "linear", "float32", shape, collections=[])
            name = f"gradient/{layer}.{leaf}"
            ids[name] = run.define(name, name, "gradient", "linear", "float32", shape)
    ids["loss"] = run.define("CrossEntropyLoss_output_0", "loss", "loss", "", "float32", [], collections=["losses"])
    ids[HOSTILE] = run.define(HOSTILE, "hostile", "output", "", "float32", [4], always=True)
    return ids, run.define_scalar("context/lr/SGD/0", "context")


def element(layer, leaf, step, rank, sick):
    shape = {"weight": (32, 16), "bias": (16,), "gradient": (32, 16), "bias_gradient": (16,)}[leaf]
    random = np.random.default_rng([*f"{layer}{leaf}{rank}".encode()])
    values = (random.standard_normal(shape) * (0.05 + 0.02 * np.sin(step / 40 + len(layer)))).astype(np.float32)
    depth = LAYERS.index(layer)
    if "gradient" in leaf:
        values *= np.float32(0.9**depth / (1 + step / 200))
        if sick and layer == DEAD and step >= DEAD_FROM:
            values *= np.float32(1e-9 if step < 200 else 0)
    if sick and step >= NAN_FROM and depth >= LAYERS.index(SICK) and rank == 0:
        values.flat[0] = np.nan
    return values


def train(directory, steps, sick=False, rank=0, world=1, pause=0.0, ahead=0):
    """`ahead`: how many steps earlier whatever happens to it does."""
    run = Run.open(directory, rank=rank, world_size=world, attempt=0)
    ids, rate = define(run)
    for step in range(steps):
        run.begin_step(TRAIN)
        for layer in LAYERS:
            for leaf in ("weight", "bias"):
                run.put_array(ids[f"{layer}.{leaf}"], element(layer, leaf, step, rank, False))
                kind = "gradient" if leaf == "weight" else "bias_gradient"
                run.put_array(ids[f"gradient/{layer}.{leaf}"], element(layer, kind, step + ahead, rank, sick))
        loss = np.nan if sick and step + ahead >= NAN_FROM else 2.3 / (1 + step / 60) + 0.05 * np.sin(step * 1.7) + 0.02 * rank
        run.put_array(ids["loss"], np.array(loss, dtype=np.float32))
        run.put_array(ids[HOSTILE], np.ones(4, dtype=np.float32))
        run.put_scalars([rate], [0.1 * 0.995**step])
        run.end_step()
        time.sleep(pause)
    run.end("completed")


def big(directory, steps, tensors):
    run = Run.open(directory)
    ids = [run.define(f"Net_layers_{i // 4}.w{i % 4}", f"w{i}", "weight", "linear", "float32", [64, 64])
           for i in range(tensors)]
    random = np.random.default_rng(0)
    scale = 10.0 ** random.uniform(-4, 1, tensors)
    rows = np.zeros((tensors, 15))
    rows[:, 0] = 4096
    for step in range(steps):
        size = scale * (1 + 0.3 * np.sin(step / 500 + scale)) * np.exp(0.1 * random.standard_normal(tensors))
        # count, nan, +inf, -inf, zeros, min, max, mean, variance, m3, m4, l1, l2, abs_min, abs_max
        rows[:, 5], rows[:, 6], rows[:, 8] = -3 * size, 3 * size, size**2
        rows[:, 10], rows[:, 11], rows[:, 12] = 3 * size**4, 4096 * 0.8 * size, 64 * size
        rows[:, 13], rows[:, 14] = 1e-4 * size, 3 * size
        run.begin_step(TRAIN)
        rows[7, 1] = 1 if step == steps // 3 else 0
        run.put_summaries(ids, rows)
        run.end_step()
    run.end("completed")


def lagging(directory, rank):
    run = Run.open(directory, rank=rank, world_size=2, attempt=0)
    loss = run.define("loss", "loss", "loss", "", "float32", [], collections=["losses"])
    for step in range(40 if rank else 60):
        run.begin_step(TRAIN)
        run.put_array(loss, np.array(2 / (1 + step), dtype=np.float32))
        run.end_step()
    if rank:
        os._exit(1)  # without a goodbye
    run.end("completed")


def ranks(directory, rank):
    plan = json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
        {"name": "weights", "kinds": ["weight"], "keep": True, "raw": {"train": {"interval": 10}}},
        {"name": "losses", "kinds": ["loss"], "keep": True}]})
    run = Run.open(directory=directory, plan_json=plan, rank=rank, world_size=4, attempt=0)
    shapes = {"Net_conv.weight": ("float32", [6, 3, 5, 5]), "Net_fc.weight": ("float32", [12, 40]), "Net_ids": ("int64", [6])}
    ids = {name: run.define(name, name, "weight", "", dtype, shape) for name, (dtype, shape) in shapes.items()}
    loss = run.define("loss", "loss", "loss", "", "float32", [], collections=["losses"])
    for step in range(90 if rank == 3 else 120):
        run.begin_step(TRAIN)
        for name, (dtype, shape) in shapes.items():
            values = np.random.default_rng([*name.encode(), step]).standard_normal(shape)
            if rank == 2 and step >= 60:
                values *= 1.5
            run.put_array(ids[name], (np.arange(6) * 100 if dtype == "int64" else values).astype(dtype))
        run.put_array(loss, np.array(2 / (1 + step), dtype=np.float32))
        run.end_step()
    run.end("completed")


def scaled(directory):
    run = Run.open(directory)
    gradient = run.define("gradient/Net.weight", "", "gradient", "linear", "float32", [4], collections=["gradients"])
    loss = run.define("loss", "loss", "loss", "", "float32", [], collections=["losses"])
    for step in range(6):
        run.begin_step(TRAIN)
        run.put_array(gradient, np.full(4, np.inf if step < 2 else 1, dtype=np.float32))
        run.put_array(loss, np.array(2 / (1 + step), dtype=np.float32))
        run.end_step(skipped=step < 2)
    run.end("completed")


def hostile(directory):
    run = Run.open(directory)
    ids = [run.define(name, name[:40], "weight", "linear", "float32", [4], collections=[]) for name in HOSTILE_NAMES]
    for step in range(5):
        run.begin_step(TRAIN)
        for number, tensor in enumerate(ids):
            values = np.full(4, number + step, dtype=np.float32)
            values[0] = np.nan if step == 3 else 1
            run.put_array(tensor, values)
        run.end_step()
    run.end("completed")


if __name__ == "__main__":
    where, what, *rest = sys.argv[1:]
    if what in ("sick", "twin"):
        for number in range(2):
            train(where, STEPS, sick=what == "sick", rank=number, world=2)
    elif what == "fine":
        train(where, STEPS)
    elif what == "live":
        train(where, int(rest[0]), pause=float(rest[1]))
    elif what == "ailing":
        train(where, int(rest[0]), sick=True, pause=float(rest[1]), ahead=100)
    elif what == "ranks":
        for number in range(4):
            ranks(where, number)
    elif what == "lagging":
        lagging(where, 0)
        if os.fork() == 0:
            lagging(where, 1)
        os.wait()
    elif what == "scaled":
        scaled(where)
    elif what == "hostile":
        hostile(where)
    else:
        big(where, int(rest[0]), int(rest[1]))
