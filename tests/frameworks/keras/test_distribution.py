"""`keras.distribution` on JAX: several devices of one process, and several processes that run each step together."""

import os
import pathlib
import random
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

import tdbg

PROGRAM = os.environ.get("TDBG_CLI", str(pathlib.Path(__file__).resolve().parents[3] / "build" / "tdbg"))
MODEL = """
import sys
import numpy as np, keras

def train(rows, **options):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 8)).astype("float32")
    y = (x.sum(1, keepdims=True) > 0).astype("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu", name="hidden"),
                              keras.layers.Dense(1, activation="sigmoid", name="out")])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "binary_crossentropy")
    history = model.fit(x[rows], y[rows], epochs=2, shuffle=False, verbose=0, **options)
    prediction = model.predict(x[:16], batch_size=8, verbose=0) if options.get("validation_data") else np.zeros(1)
    return x, y, history.history, [np.asarray(v.value) for v in model.weights], prediction
"""
DEVICES = MODEL + """
import jax
keras.distribution.set_distribution(keras.distribution.DataParallel())
assert len(jax.devices()) == 2
random = np.random.default_rng(7)
test = random.normal(size=(16, 8)).astype("float32"), np.ones((16, 1), "float32")
x, y, losses, weights, prediction = train(slice(None), batch_size=16, validation_data=test)
np.savez(sys.argv[1], *weights, prediction=prediction, **losses)
"""
PROCESSES = """
import os, subprocess, sys
if "RANK_OF_TEST" not in os.environ:
    workers = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK_OF_TEST": str(n)}) for n in range(2)]
    sys.exit(max(worker.wait() for worker in workers))
""" + MODEL + """
rank = int(os.environ["RANK_OF_TEST"])
keras.distribution.initialize(job_addresses="127.0.0.1:" + sys.argv[2], num_processes=2, process_id=rank)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
x, y, losses, weights, _ = train(slice(rank, None, 2), batch_size=8)
np.savez(f"{sys.argv[1]}-{rank}", *weights, **losses)
"""


def run(script, directory, name, *arguments, before=(), **environment):
    (directory / "train.py").write_text(script)
    done = subprocess.run([*before, sys.executable, str(directory / "train.py"), str(directory / name), *map(str, arguments)],
                          env={**os.environ, "KERAS_BACKEND": "jax", **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def same(one, other):
    one, other = np.load(one), np.load(other)
    assert one.files == other.files
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name])


def free_port():
    """Below those that the kernel hands out, of which somebody might get this one before it is used."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as taken:
            if taken.connect_ex(("127.0.0.1", port)) != 0:
                return port


def test_several_devices_of_one_process(tmp_path):
    pytest.importorskip("jax")
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    run(DEVICES, tmp_path, "bare", **two)
    done = run(DEVICES, tmp_path, "seen", before=[PROGRAM, "run", "--dir", str(tmp_path / "run"), "--collect", "weights:1", "--collect",
                                                  "gradients:1", "--collect", "outputs", "--collect", "predictions:1", "--"], **two)
    assert "no extra outputs" not in done.stderr and "could not capture" not in done.stderr
    same(tmp_path / "bare.npz", tmp_path / "seen.npz")
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.workers() == ["worker_0"] and not trial.dropped()
    weight, gradient = trial["hidden/weights/hidden/kernel:0"], trial["gradients/hidden/kernelGrad"]
    first, second = trial.steps(mode=tdbg.ModeKeys.TRAIN, kind="any")[:2]
    np.testing.assert_allclose(weight.value(second), weight.value(first) - 0.1 * gradient.value(first), rtol=1e-5, atol=1e-7)
    assert trial["hidden/outputs"].summary(first).count == 16 * 16, "of the whole batch"
    mode = tdbg.ModeKeys.PREDICT
    predicted = [trial["predictions"].value(s, mode=mode) for s in trial.steps(mode=mode, kind="any")]
    np.testing.assert_array_equal(np.concatenate(predicted), np.load(tmp_path / "seen.npz")["prediction"])


def test_several_processes(tmp_path):
    pytest.importorskip("jax")
    run(PROCESSES, tmp_path, "bare", free_port())
    done = run(PROCESSES, tmp_path, "seen", free_port(), before=[PROGRAM, "run", "--dir", str(tmp_path / "run"), "--collect", "weights:1", "--"])
    assert "could not capture" not in done.stderr
    assert len(re.findall("several processes run each step together", done.stderr)) == 2
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.workers() == ["worker_0", "worker_1"] and not trial.dropped()
    for rank in range(2):
        same(tmp_path / f"bare-{rank}.npz", tmp_path / f"seen-{rank}.npz")
        seen = np.load(tmp_path / f"seen-{rank}.npz")
        losses = [trial["loss"].value(s, worker=f"worker_{rank}") for s in trial.steps(kind="any")]
        np.testing.assert_array_equal(np.float32(losses[3::4]), np.float32(seen["loss"]))     # the mean of an epoch, at its end
    kernel = trial["hidden/weights/hidden/kernel:0"]
    np.testing.assert_array_equal(kernel.value(5, worker="worker_0"), kernel.value(5, worker="worker_1"))
    assert not np.array_equal(kernel.value(4), kernel.value(5))
