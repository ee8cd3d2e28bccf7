"""Directories of smdebug's through tdbg.open: the ones that are frozen, and one that the real smdebug writes meanwhile."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg  # noqa: E402
from tdbg import ModeKeys, exceptions  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "smdebug"
SMDEBUG_PYTHON = pathlib.Path(os.environ.get("TDBG_SMDEBUG_PYTHON", ROOT / ".venv-smdebug" / "bin" / "python"))
RUNS = ["dtypes", "pt_modes", "pt_reductions_only", "xgb_all"]
# What its own reader takes for something else (docs/smdebug.md): we read the type that was written.
MISREAD = {"t_int8": "int8", **{f"unreadable_{t}": t for t in ("int16", "uint16", "uint32", "uint64", "complex64")}}


@pytest.mark.parametrize("name", RUNS)
def test_a_frozen_run_reads_back_as_smdebug_reads_it(name):
    expected = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    trial = tdbg.open(GOLDEN / name)
    assert trial.steps() == expected["steps"]
    assert trial.workers() == expected["workers"]
    assert {m.name: trial.steps(mode=m) for m in trial.modes()} == expected["modes"]
    assert trial.tensor_names() == sorted(expected["tensors"])
    assert trial.loaded_all_steps
    for tensor_name, steps in expected["tensors"].items():
        tensor = trial.tensor(tensor_name)
        for step, workers in steps.items():
            for worker, told in workers.items():
                where = (tensor_name, step, worker)
                if tensor_name in MISREAD:
                    value = tensor.value(int(step), worker=worker)
                    assert value.dtype == MISREAD[tensor_name] and value.shape == (2, 2), where
                    continue
                if "value_exception" in told:
                    try:
                        value = tensor.value(int(step), worker=worker)
                    except exceptions.TensorUnavailableForStep:
                        pass
                    else:  # a saved shape hides the value from smdebug
                        assert list(value.shape) == told["shape_api"], where
                else:
                    value = tensor.value(int(step), worker=worker)
                    assert str(value.dtype) == told["dtype"], where
                    assert list(value.shape) == told["shape"], where
                    for mine, its in zip(value.reshape(-1)[:3].tolist(), told["head"]):
                        its = complex(its) if isinstance(mine, complex) else its
                        assert mine == its or (mine != mine and its != its), where
                if "shape_api" in told:
                    assert list(tensor.shape(int(step), worker=worker)) == told["shape_api"], where
                saved = tensor.reduction_values(int(step), worker=worker)
                plain = {("abs_" if absolute else "") + op: float(v) for (op, absolute), v in saved.items()}
                assert plain == told["saved_reductions"], where
                for (op, absolute), number in saved.items():
                    assert tensor.reduction_value(int(step), op, abs=absolute, worker=worker) == number, where


def test_what_is_not_there_is_named():
    trial = tdbg.open(GOLDEN / "pt_modes")
    with pytest.raises(exceptions.TensorUnavailable, match="Net_conv.weight"):
        trial.tensor("Net_conv.weigth")
    with pytest.raises(exceptions.StepUnavailable):
        trial.tensor("Net_conv.weight").value(2)
    with pytest.raises(exceptions.InvalidWorker):
        trial.tensor("Net_conv.weight").value(0, worker="worker_7")
    assert trial.steps(mode=ModeKeys.PREDICT) == []


@pytest.fixture
def smdebug(tmp_path):
    """The real one, writing into tmp_path/run: call it with lines for its stdin, it answers when they are done."""
    if not SMDEBUG_PYTHON.exists():
        pytest.skip("no .venv-smdebug (tools/setup.sh makes it)")
    writers = []

    def start(workers=1):
        writer = subprocess.Popen([SMDEBUG_PYTHON, ROOT / "tests/python/smdebug_writer.py", tmp_path / "run", str(workers)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        writer.stdin.close()
        writer.wait(60)
        writer.stdout.close()


def write(writer, *steps):
    for step in steps:
        writer.stdin.write(f"{step}\n")
        writer.stdin.flush()
        while writer.stdout.readline().strip() != f"wrote {step}":  # its own log goes there, too
            assert writer.poll() is None


def weight_of(step, worker=0):
    return np.random.default_rng(1000 * worker + step).standard_normal((8, 4)).astype(np.float32)


def test_a_run_is_followed_while_the_real_smdebug_writes_it(smdebug, tmp_path):
    writer = smdebug(workers=2)
    write(writer, 0, 1)
    trial = tdbg.open(tmp_path / "run", wait=60)
    assert trial.steps() == [0, 1] and trial.state == "running" and not trial.loaded_all_steps
    assert trial.workers() == ["worker_0", "worker_1"]
    write(writer, 2, 3)
    assert trial.refresh()
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.steps(mode=ModeKeys.EVAL) == [0] and trial.steps(mode=ModeKeys.TRAIN) == [0, 1, 2]
    assert trial.global_step(ModeKeys.EVAL, 0) == 2
    write(writer, 4, 5)
    writer.stdin.write("end\n")
    writer.stdin.flush()
    writer.wait(60)
    assert trial.refresh()
    assert trial.steps() == [0, 1, 2, 3, 4, 5] and trial.loaded_all_steps
    tensor = trial.tensor("fc.weight")
    for worker in (0, 1):
        for step in range(6):
            np.testing.assert_array_equal(tensor.value(step, worker=f"worker_{worker}"), weight_of(step, worker))
    np.testing.assert_array_equal(trial.tensor("names").value(3), np.array(["café", "b", ""]))
    np.testing.assert_array_equal(trial.tensor("signed").value(3), np.array([-1, 2], np.int8))
    np.testing.assert_array_equal(trial.tensor("half").value(3), weight_of(3).astype(np.float16))
    assert trial.tensor_names(collection="gradients") == ["gradient/fc.bias", "gradient/fc.weight"]
    # A statistic that smdebug never kept, of every step at once.
    frame = trial.frame("fc.weight", ["mean_abs", "nan_count"])
    means = [np.abs(weight_of(s).astype(np.float64)).mean() for s in range(6)]
    np.testing.assert_allclose(frame["mean_abs"], means, rtol=1e-6)
    assert trial.tensor("gradient/fc.bias").reduction_value(1, "mean", abs=True) == np.float32(0.5)
    with pytest.raises(exceptions.TensorUnavailableForStep):
        trial.tensor("gradient/fc.bias").value(1)
