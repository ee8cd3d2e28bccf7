"""A training without a framework, for the tests of exports: every value is a function of tensor and step.

    python ship_run.py STEPS [SECONDS_A_STEP]      records into $TDBG_RUN (or argv[3]), from step argv[4] on
"""

import os
import pathlib
import sys
import time

import numpy as np

HOME = os.environ.get("TDBG_HOME", str(pathlib.Path(__file__).resolve().parents[2] / "python"))
if HOME not in sys.path:
    sys.path.insert(0, HOME)

TRAIN, EVAL = 1, 2
EVAL_EVERY = 5  # every fifth step is one of EVAL


def mode_of(step):
    return EVAL if step % EVAL_EVERY == EVAL_EVERY - 1 else TRAIN


def mode_step_of(step):
    return step // EVAL_EVERY if mode_of(step) == EVAL else step - step // EVAL_EVERY


def weight(step, rank=0):
    """Half of it zeros, spread over many magnitudes, both signs; a NaN and an infinity from step 6 on."""
    rng = np.random.default_rng(1000 * rank + step)
    values = (rng.standard_normal((40, 50)) * 10.0 ** rng.integers(-6, 3, (40, 50))).astype(np.float32)
    values[rng.random((40, 50)) < 0.5] = 0
    if step >= 6:
        values[0, 0], values[0, 1] = np.nan, np.inf
    return values


def bias(step, rank=0):
    return np.random.default_rng(5000 + 1000 * rank + step).standard_normal(7).astype(np.float32)


def loss(step, rank=0):
    return np.float32(1.0 / (step + 1) + rank)


def rate(step):
    return 0.1 * 0.99**step


def record(run, steps, pause=0.0, rank=0):
    weight_id = run.define("Net_fc.weight", "fc.weight", "weight", "linear", "float32", [40, 50])
    bias_id = run.define("Net_fc.bias", "fc.bias", "bias", "linear", "float32", [7])
    loss_id = run.define("Loss_output_0", "loss", "loss", "", "float32", [])
    rate_id = run.define_scalar("lr/0")
    for step in range(steps):
        run.begin_step(mode_of(step))
        run.put_array(weight_id, weight(step, rank))
        run.put_array(bias_id, bias(step, rank))
        run.put_array(loss_id, np.array(loss(step, rank)))
        run.put_scalars([rate_id], [rate(step)])
        run.end_step()
        time.sleep(pause)


if __name__ == "__main__":
    from tdbg._capture import Run

    base = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    opened = Run.open(directory=sys.argv[3] if len(sys.argv) > 3 else "", step_base=base, step_base_from="script")
    record(opened, int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    opened.end("completed")
