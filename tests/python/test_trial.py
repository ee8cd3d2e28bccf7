"""tdbg.open: what is written through _capture comes back through NumPy, equal to NumPy's own answers."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)

pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg  # noqa: E402
from tdbg import errors  # noqa: E402
from tdbg import ModeKeys  # noqa: E402
from tdbg._capture import Run  # noqa: E402
from tdbg.tensor import widened  # noqa: E402

PLAN = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
  {"name": "weights", "kinds": ["weight"], "keep": true, "raw": {"train": {"interval": 1}, "eval": {"interval": 1}}},
  {"name": "losses", "kinds": ["loss"], "keep": true}]}"""
TRAIN, EVAL = 1, 2


class Writer:
    """A little training: weight w (20 x 30), loss, lr."""

    def __init__(self, directory):
        self.run = Run.open(directory=str(directory), plan_json=PLAN)
        self.weight = self.run.define("Net_fc.weight", "fc.weight", "weight", "linear", "float32", [20, 30])
        self.half = self.run.define("Net_half.weight", "half.weight", "weight", "", "bfloat16", [3])
        self.loss = self.run.define("Loss_output_0", "loss", "loss", "", "float32", [])
        self.lr = self.run.define_scalar("lr/0")
        self.count = 0

    @staticmethod
    def value(step):
        return np.random.default_rng(step).standard_normal((20, 30)).astype(np.float32)

    def step(self, mode=TRAIN):
        s = self.count
        self.run.begin_step(mode)
        self.run.put_array(self.weight, self.value(s))
        self._put_half()
        self.run.put_array(self.loss, np.array(1.0 / (s + 1), np.float32))
        self.run.put_scalars([self.lr], [0.1 * s])
        self.run.put_context("optimizer", '{"name": "SGD"}')
        self.run.end_step()
        self.count += 1

    def _put_half(self):
        bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)  # 1, 2, -3
        self.run.put_ptr(self.half, bits.ctypes.data, "bfloat16", [3], [1])

    def steps(self, n, mode=TRAIN):
        for _ in range(n):
            self.step(mode)
        return self


@pytest.fixture
def writer(tmp_path):
    w = Writer(tmp_path / "run")
    yield w
    if w.run is not None:
        w.run.end("done")


def test_values_are_equal_and_read_only_views(writer, tmp_path):
    writer.steps(4)
    trial = tdbg.open(tmp_path / "run")
    tensor = trial.tensor("fc.weight")
    assert tensor.name == "Net_fc.weight" and tensor.shape == (20, 30) and tensor.dtype == "float32"
    for step in range(4):
        value = tensor.value(step)
        np.testing.assert_array_equal(value, Writer.value(step))
        assert value.dtype == np.float32 and not value.flags.writeable
    assert tensor.steps() == tensor.steps(kind="raw") == [0, 1, 2, 3]
    assert trial["fc.weight"].value(2).shape == (20, 30)


def test_a_worker_says_how_it_ended(writer, tmp_path):
    writer.steps(2)
    assert tdbg.open(tmp_path / "run").worker_ends() == []
    writer.run.end("exception", "ValueError: no")
    writer.run = None
    end, = tdbg.open(tmp_path / "run").worker_ends()
    assert (end.worker, end.reason, end.message, end.last_step) == ("worker_0", "exception", "ValueError: no", 1)
    assert "after step 1: ValueError: no" in repr(end)


def test_a_value_outlives_the_trial(writer, tmp_path):
    writer.steps(2)
    writer.run.end("done")
    writer.run = None
    trial = tdbg.open(tmp_path / "run")
    value = trial.tensor("fc.weight").value(1)
    del trial
    np.testing.assert_array_equal(value, Writer.value(1))


@pytest.mark.parametrize("there", [True, False])
def test_bfloat16_comes_as_ml_dtypes_or_as_float32(writer, tmp_path, monkeypatch, there):
    if not there:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    writer.steps(1)
    value = tdbg.open(tmp_path / "run").tensor("half.weight").value(0)
    assert value.astype(np.float32).tolist() == [1, 2, -3]
    assert there or value.dtype == np.float32


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_small_floats_are_widened_exactly(name):
    torch = pytest.importorskip("torch")
    bits = np.arange(256 if "8" in name else 65536).astype(np.uint8 if "8" in name else np.uint16)
    expected = torch.from_numpy(bits.copy()).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(widened(bits, name), expected)


def test_summaries_agree_with_numpy(writer, tmp_path):
    writer.steps(3)
    tensor = tdbg.open(tmp_path / "run").tensor("Net_fc.weight")
    x = Writer.value(2).astype(np.float64)
    s = tensor.summary(2)
    assert s.count == 600 and s.nan_count == 0
    for got, want in [(s.mean, x.mean()), (s.std, x.std()), (s.mean_abs, np.abs(x).mean()), (s.min, x.min()),
                      (s.abs_max, np.abs(x).max()), (s.l2, np.linalg.norm(x))]:
        assert got == pytest.approx(want, rel=1e-5)
    # A bucket's value is within 1/9 of every element in it.
    assert s.quantile(0.9) == pytest.approx(np.quantile(x, 0.9), rel=0.15)
    histogram = tensor.histogram(2)
    assert re.fullmatch(r"<tdbg.Histogram: 600 elements in \d+ buckets from -\S+ to \S+>", repr(histogram))
    assert histogram.count.sum() == 600
    assert (histogram.lower < histogram.upper).all()
    assert "Summary(count=600" in repr(s)
    assert s.as_dict()["max"] == x.max()


def test_series_scalars_and_context(writer, tmp_path):
    writer.steps(5)
    trial = tdbg.open(tmp_path / "run")
    steps, values = trial.tensor("loss").series()
    assert steps.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(values.astype(np.float32), (1.0 / np.arange(1, 6)).astype(np.float32))
    assert trial.tensor("loss").value(1) == np.float32(0.5)
    assert trial.tensor("lr/0").scalar(3) == pytest.approx(0.3)
    assert trial.context("optimizer", 4) == {"name": "SGD"}
    assert trial.context("nothing", 4) is None


def test_modes(writer, tmp_path):
    writer.steps(3).steps(2, EVAL)
    trial = tdbg.open(tmp_path / "run")
    assert trial.modes() == {ModeKeys.TRAIN, ModeKeys.EVAL}
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.steps(mode="eval") == [0, 1]
    assert trial.global_step("EVAL", 1) == 4
    np.testing.assert_array_equal(trial.tensor("fc.weight").value(1, mode="eval"), Writer.value(4))
    assert trial.tensor("fc.weight").steps(mode="EVAL") == [0, 1]
    assert trial.step(4).mode == ModeKeys.EVAL and trial.step(4).mode_step == 1
    assert (trial.mode(4), trial.mode_step(4), trial.mode_modestep(9)) == (ModeKeys.EVAL, 1, (None, None))
    with pytest.raises(errors.InvalidArgumentError, match="no mode"):
        trial.steps(mode="evla")


def test_errors_are_types_of_their_own(writer, tmp_path):
    writer.steps(1)
    trial = tdbg.open(tmp_path / "run")
    with pytest.raises(errors.NotFoundError, match="did you mean 'Net_fc.weight'"):
        trial.tensor("Net_fc.wieght")
    with pytest.raises(errors.UnavailableError):
        trial.tensor("loss").value(77)
    with pytest.raises(ValueError):
        trial.tensor_names(regex="(")
    with pytest.raises(tdbg.TdbgError):
        tdbg.open(tmp_path)
    with pytest.raises(TimeoutError):
        tdbg.open(tmp_path / "never", wait=0.3)
    with pytest.raises(errors.NotFoundError, match="attempt 5"):
        tdbg.open(tmp_path / "run", attempt=5)


def test_a_cursor_waits_while_others_run_and_stops_at_the_end(writer, tmp_path):
    path = tmp_path / "run"

    def train():
        for _ in range(10):
            time.sleep(0.02)
            writer.step()
        writer.run.end("done")
        writer.run = None

    writer.step()
    trial = tdbg.open(path, wait=5)
    thread = threading.Thread(target=train)
    thread.start()
    assert [step.global_step for step in trial.cursor()] == list(range(11))
    thread.join()
    assert trial.loaded_all_steps and trial.state in ("ended", "crashed")


def test_a_cursor_gives_up_after_its_timeout(writer, tmp_path):
    writer.steps(1)
    cursor = tdbg.open(tmp_path / "run").cursor()
    assert cursor.next(timeout=0.1).global_step == 0
    begin = time.monotonic()
    assert cursor.next(timeout=0.3) is None
    assert 0.25 < time.monotonic() - begin < 2


def test_ctrl_c_ends_a_wait(writer, tmp_path):
    writer.steps(1)
    code = f"import sys; sys.path[:0] = {sys.path!r}\nimport tdbg\nfor s in tdbg.open({str(tmp_path / 'run')!r}): print('step', flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "step\n"
    while pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)    # until it waits for the next step
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr


def test_repr_says_what_it_is(writer, tmp_path):
    writer.steps(1)
    trial = tdbg.open(tmp_path / "run")
    assert "running, 1 step (0 to 0), 4 tensors, 1 worker>" in repr(trial)
    assert repr(trial.frame("fc.weight")).startswith("<tdbg.Frame 1 row: 1 tensor, 1 step, 1 worker; ")
    writer.steps(1)
    trial.refresh()
    assert "running, 2 steps (0 to 1), 4 tensors, 1 worker>" in repr(trial)
    assert repr(trial.tensor("fc.weight")) == "<tdbg.Tensor Net_fc.weight float32 20x30>"
    assert trial.dropped() == [] and trial.damage() == []
    with pytest.warns(DeprecationWarning, match=r"dropped\(\)"):
        assert trial.losses() == []
    assert trial.bytes_on_disk > 0 and trial.last_seen_step == 1


def test_importing_tdbg_loads_no_extension():
    code = f"import sys; sys.path[:0] = {sys.path!r}; import tdbg; print([m for m in sys.modules if m.startswith('tdbg.')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
