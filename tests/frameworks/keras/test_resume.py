"""A Keras training that is started again goes on at the step that its optimizer counts: one series, evaluations in their places."""

import os
import subprocess
import sys

import pytest

import tdbg
from tdbg.modes import ModeKeys as modes

from .test_distribution import PROGRAM
from .test_fit import BACKEND

TRAIN = """
import os, sys
import keras, numpy as np
keras.utils.set_random_seed(0)
path = os.environ["TDBG_CHECKPOINT_DIR"] + "/m.keras"
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = x.sum(1, keepdims=True)
if os.path.exists(path):
    model = keras.models.load_model(path)
else:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
for epoch in range(2):
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    model.evaluate(x, y, batch_size=32, verbose=0)
    if epoch == 0:
        model.save(path)
sys.exit(os.environ["TDBG_ATTEMPT"] == "0")
"""


@pytest.mark.skipif(BACKEND == "jax", reason="while JAX's fit runs, the optimizer's variables are empty: tdbg.resume_step says it")
def test_it_goes_on_where_the_optimizer_was(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = subprocess.run([PROGRAM, "run", "--quiet", "--dir", "r", "--checkpoint-dir", "c", "--max-restarts", "1", "--",
                           sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())        # lines are broken at 100 columns
    assert "attempt 1 goes on at step 6, as the optimizer's own state (sgd) says; steps 6 to 11 are trained again" in said
    trial = tdbg.open(str(tmp_path / "r"))
    assert trial.steps() == list(range(18))     # epochs of 4 batches and 2 of evaluation: the first, the second twice, one more
    assert [trial.mode(s).name[0] for s in trial.steps()] == list("TTTTEE" * 3)
    assert trial.steps(mode=modes.EVAL) == list(range(6))
