"""The other backends: a process each, because Keras chooses its backend when it is imported."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_what_holds_on_tensorflow_holds_on(backend):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("this is one of those processes")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:warnings",
                           *(str(HERE / name) for name in ("test_fit.py", "test_torch.py")), "-k", "not third and not gradients"],
                          env={**os.environ, "KERAS_BACKEND": backend}, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
