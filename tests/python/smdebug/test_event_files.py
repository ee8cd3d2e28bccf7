"""FileWriter and FileReader against the real ones: each reads what the other wrote."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
REAL = ROOT / ".venv-smdebug" / "bin" / "python"
sys.path.insert(0, HOME) if HOME not in sys.path else None

event_files = pytest.importorskip("tdbg.event_files")
from tdbg.errors import DataLossError, NotFoundError  # noqa: E402
from tdbg.event_files import FileReader, FileWriter  # noqa: E402
from tdbg.exceptions import SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError  # noqa: E402
from tdbg.modes import ModeKeys  # noqa: E402

#: Types that the real reader gets wrong or refuses, and what is written for them.
WIDENED = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64",
           "complex64": "complex128"}


def real(program, *arguments):
    if not REAL.exists():
        pytest.skip("the real smdebug is not installed (.venv-smdebug)")
    done = subprocess.run([str(REAL), "-c", program, *map(str, arguments)], text=True, capture_output=True, timeout=200,
                          env={**os.environ, "SMDEBUG_LOG_LEVEL": "off", "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def read_all(path):
    return {name: (step, value, mode, mode_step) for name, step, value, mode, mode_step in FileReader(path).read_tensors()}


def test_the_real_one_reads_every_type(tmp_path):
    dtypes = ["float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex128", *WIDENED]
    with FileWriter(tmp_path / "run", "worker_0", 4) as writer:
        for dtype in dtypes:
            writer.write_tensor(np.array([[1, 0, 3]]).astype(dtype), dtype, mode=ModeKeys.EVAL, mode_step=2)
        writer.write_tensor(np.arange(3, dtype=">f4"), "swapped")
    told = real("""
import sys
from smdebug.core.reader import FileReader
for name, step, value, mode, mode_step in FileReader(sys.argv[1]).read_tensors():
    print(name, step, value.dtype, value.shape, value.astype("i8").ravel().tolist(), mode.name, mode_step, sep="|")
""", writer.name())
    lines = {line.split("|")[0]: line for line in told.splitlines() if "|" in line}
    for dtype in dtypes:
        values = [1, 0, 1] if dtype == "bool" else [1, 0, 3]
        assert lines[dtype] == f"{dtype}|4|{WIDENED.get(dtype, dtype)}|(1, 3)|{values}|EVAL|2"
    assert lines["swapped"] == "swapped|4|float32|(3,)|[0, 1, 2]|GLOBAL|4"


def test_ours_reads_what_the_real_one_writes(tmp_path):
    path = real("""
import sys
import numpy as np
from smdebug import modes
from smdebug.core.writer import FileWriter
with FileWriter(sys.argv[1], "worker_3", step=11) as writer:
    for dtype in ("float16", "float32", "int8", "int16", "uint32", "complex64", "bool"):
        writer.write_tensor(np.array([[1, 0, 3]]).astype(dtype), dtype, mode=modes.PREDICT, mode_step=1)
    writer.write_tensor(np.array(["a", "bc"]), "texts")
print(writer.name())
""", tmp_path / "run").split()[-1]
    found = read_all(path)
    for dtype in ("float16", "float32", "int8", "int16", "uint32", "complex64", "bool"):
        step, value, mode, mode_step = found[dtype]
        assert (step, value.dtype.name, value.shape, mode, mode_step) == (11, dtype, (1, 3), ModeKeys.PREDICT, 1)
        assert value.real.astype("i8").tolist() == [[1, 0, 1 if dtype == "bool" else 3]]
    assert found["texts"][1].tolist() == ["a", "bc"] and found["texts"][2:] == (ModeKeys.GLOBAL, 11)


def test_nothing_is_seen_before_the_writer_closes(tmp_path):
    writer = FileWriter(tmp_path, "worker_0", 0)
    writer.write_tensor(np.ones(3), "x")
    writer.flush()
    assert not os.path.exists(writer.name())
    writer.close()
    index = tmp_path / "index" / "000000000" / "000000000000_worker_0.json"
    told = index.read_text()
    assert [one["tensorname"] for one in json.loads(told)["tensor_payload"]] == ["x"]
    writer.close()
    assert list(read_all(writer.name())) == ["x"] and index.read_text() == told
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_file_cut_short_gives_what_is_whole_and_says_so(tmp_path):
    with FileWriter(tmp_path, "worker_0", 0) as writer:
        for name in "abc":
            writer.write_tensor(np.ones(100), name)
    data = pathlib.Path(writer.name()).read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(data[:-5])
    names = []
    with pytest.raises(DataLossError, match="are there"):
        for name, *_ in FileReader(cut).read_tensors():
            names.append(name)
    assert names == ["a", "b"]
    cut.write_bytes(b"x" * 300)
    with pytest.raises(DataLossError, match="checksum"):
        list(FileReader(cut).read_tensors())


@pytest.mark.parametrize("value, error", [
    (np.array(["a", "b"]).reshape(1, 2), TypeError), (np.array("a"), TypeError), (np.array([b"a"]), TypeError),
    ({"a": 1}, SMDebugTypeError), (np.zeros(2, "M8[s]"), SMDebugTypeError), (np.zeros(2, "f16"), SMDebugTypeError),
    (object(), SMDebugTypeError)])
def test_what_no_tensor_holds_is_refused(tmp_path, value, error):
    with FileWriter(tmp_path, "worker_0", 0) as writer:
        with pytest.raises(error):
            writer.write_tensor(value, "x")
    assert not list(tmp_path.iterdir())


def test_bad_arguments(tmp_path):
    with pytest.raises(SMDebugValueError, match="events or tensorboard"):
        FileWriter(tmp_path, "w", wtype="else")
    with pytest.raises(SMDebugValueError, match="count from 0"):
        FileWriter(tmp_path, "w", step=-1).write_tensor(np.ones(1), "x")
    with pytest.raises(SMDebugRuntimeError, match="tensorboard"):
        FileWriter(tmp_path, "w").write_scalar_summary("x", 1, 0)
    with pytest.raises(SMDebugRuntimeError, match="events"):
        FileWriter(tmp_path, "w", wtype="tensorboard").write_tensor(np.ones(1), "x")
    with pytest.raises(NotFoundError):
        list(FileReader(tmp_path / "nothing").read_tensors())


def test_tensorboard_opens_its_files(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    values = np.random.default_rng(0).normal(size=5000)
    with FileWriter(tmp_path, "host", 3, wtype="tensorboard", mode=ModeKeys.TRAIN) as writer:
        writer.write_scalar_summary("loss: total", 0.25, 3)
        writer.write_histogram_summary(values, "weights", 3)
        writer.write_histogram_summary(np.array([np.nan]), "broken", 3)
        writer.write_histogram_summary(values, "own", 3, bins=10)
    assert writer.name() == str(tmp_path / "TRAIN" / "000000000003_host.tfevents")
    read = accumulator.EventAccumulator(writer.name(), size_guidance={accumulator.HISTOGRAMS: 0})
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss__total")] == [(3, 0.25)]
    assert sorted(read.Tags()["histograms"]) == ["own", "weights"]
    for name in ("own", "weights"):
        histogram = read.Histograms(name)[0].histogram_value
        assert histogram.num == 5000 and sum(histogram.bucket) == 5000
        assert histogram.min == values.min() and histogram.sum == pytest.approx(values.sum())
        below = sum(n for n, limit in zip(histogram.bucket, histogram.bucket_limit) if limit <= 0.5)
        assert abs(below - (values <= 0.5).sum()) < 600
