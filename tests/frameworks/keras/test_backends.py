"""The other backends: a process each, because Keras chooses its backend when it is imported."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(params=["jax", "torch"])
def passes(request):
    """passes(arguments of pytest) in such a process."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("this is one of those processes")

    def run(files, *options):
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:warnings",
                               *(str(HERE / name) for name in files), *options],
                              env={**os.environ, "KERAS_BACKEND": request.param}, capture_output=True, text=True, timeout=540)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert " passed" in done.stdout
        return done.stdout

    return run


def test_what_holds_on_tensorflow_holds_here(passes):
    passes(["test_fit.py", "test_mixed_precision.py", "test_torch.py"], "-k", "not third and not gradients")


def test_conformance(passes):
    assert "skipped" not in passes(["test_conformance.py"])
