"""TensorBoard itself, started on what we wrote, answers with what was recorded."""

import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest
import ship_run

pytest.importorskip("tensorboard", reason="needs TensorBoard in this Python")
sys.path.insert(0, ship_run.HOME)
pytest.importorskip("tdbg._capture", reason="the extension modules are not built")

SCRIPT = pathlib.Path(ship_run.__file__)
STEPS = 20
WEIGHT, BIAS, LOSS = "weights/Net_fc.weight", "biases/Net_fc.bias", "losses/Loss_output_0"


class TensorBoard:
    """A server of its own on a free port of the loopback interface."""

    def __init__(self, logdir):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", str(self.port), "--host", "127.0.0.1",
             "--reload_interval", "1", "--samples_per_plugin", "scalars=1000,histograms=1000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/data/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def wait_for(self, path, enough, seconds=60, **query):
        """Asks until the answer is enough: it reads the files in the background."""
        end = time.monotonic() + seconds
        answer = None
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.stderr.read()
            try:
                answer = self.get(path, **query)
                if enough(answer):
                    return answer
            except OSError:
                pass
            time.sleep(0.2)
        pytest.fail(f"TensorBoard did not get there: {path} {query}: {str(answer)[:500]}")

    def scalars(self, run, tag, count):
        rows = self.wait_for("plugin/scalars/scalars", lambda a: len(a) >= count, run=run, tag=tag)
        return {step: float(value) for _, step, value in rows}

    def histograms(self, run, tag, count):
        rows = self.wait_for("plugin/histograms/histograms", lambda a: len(a) >= count, run=run, tag=tag)
        return {step: np.array(buckets, float) for _, step, buckets in rows}

    def close(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def steps_of(mode):
    return [s for s in range(STEPS) if ship_run.mode_of(s) == mode]


def check_histogram(buckets, values):
    """Counts between the buckets' edges are the array's own; nothing finite is missing."""
    finite = values[np.isfinite(values)].astype(float)
    left, right, count = buckets.T
    assert count.sum() == finite.size
    np.testing.assert_allclose([left[0], right[-1]], [finite.min(), finite.max()], rtol=1e-6)
    assert (left[1:] == right[:-1]).all() and (left <= right).all()
    # At every edge: as many elements below it as the buckets below it hold. TensorBoard keeps edges as float32.
    for edge, below in zip(right[:-1], np.cumsum(count)[:-1]):
        slack = abs(edge) * 1e-6
        assert (finite < edge - slack).sum() <= below <= (finite <= edge + slack).sum()
    # A bucket is as narrow as docs/statistics.md says, the zeros' as narrow as the header says.
    inner = (count > 0) & (left * right > 0)
    assert ((right - left)[inner] <= 0.25 * np.minimum(abs(left), abs(right))[inner] * (1 + 1e-5)).all()
    zeros = (count > 0) & (left <= 0) & (right >= 0)
    assert count[zeros].sum() == (finite == 0).sum()
    assert (right - left)[zeros].sum() <= abs(finite).max() / 1024


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One run, recorded while its TensorBoard files were written, and exported again; one server over both."""
    from program import Tdbg

    here = tmp_path_factory.mktemp("ship")
    tdbg = Tdbg(here)
    done = tdbg("run", "--dir", "r", "--tensorboard", "logs/live", "--collect", "biases:1", "--", sys.executable, SCRIPT,
                str(STEPS), "0.1", timeout=120)
    assert done.returncode == 0, done.stderr
    exported = tdbg.json("export", "r", "--to", "tensorboard", "logs/export")
    server = TensorBoard(here / "logs")
    yield tdbg, done, exported, server
    server.close()


def test_the_summary_says_what_was_written(recorded):
    tdbg, done, _, _ = recorded
    line = next(line for line in done.stderr.splitlines() if line.strip().startswith("tensorboard"))
    assert "logs/live: " in line and "scalars" in line
    (export,) = tdbg.json("status", "r")["exports"]
    assert export["ok"] and export["path"] == str(tdbg.directory / "logs/live")


@pytest.mark.parametrize("kind", ["live", "export"])
def test_losses_and_learning_rates_are_scalars_of_every_step(recorded, kind):
    server = recorded[3]
    for mode, folder in ((ship_run.TRAIN, "train"), (ship_run.EVAL, "eval")):
        steps = steps_of(mode)
        for tag, expected in ((LOSS, ship_run.loss), ("lr/0", ship_run.rate)):
            got = server.scalars(f"{kind}/{folder}", tag, len(steps))
            assert sorted(got) == steps
            np.testing.assert_allclose([got[s] for s in steps], [expected(s) for s in steps], rtol=1e-6)


def test_statistics_are_numpys_own(recorded):
    server = recorded[3]
    steps = steps_of(ship_run.TRAIN)
    finite = {s: ship_run.weight(s)[np.isfinite(ship_run.weight(s))].astype(float) for s in steps}
    for tag, expected in (("weights_mean_abs", lambda v: abs(v).mean()), ("weights_std", np.std)):
        got = server.scalars("export/train", f"{tag}/Net_fc.weight", len(steps))
        np.testing.assert_allclose([got[s] for s in steps], [expected(finite[s]) for s in steps], rtol=1e-5)
    # From the first step on at which there is one.
    got = server.scalars("export/train", "weights_nonfinite_count/Net_fc.weight", 1)
    assert got == {s: 2.0 for s in steps if s >= 6}


def test_histograms_agree_with_the_raw_values(recorded):
    tdbg, _, _, server = recorded
    kept = [s["global_step"] for s in tdbg.json("steps", "r", "--kind", "histogram", "--mode", "train")["steps"]]
    scheduled = [s for s in steps_of(ship_run.TRAIN) if ship_run.mode_step_of(s) % 10 == 0]
    assert kept == sorted([*scheduled, 6]), "and where the first NaN is"
    got = server.histograms("export/train", WEIGHT, len(kept))
    assert sorted(got) == kept
    for step, buckets in got.items():
        check_histogram(buckets, ship_run.weight(step))


def test_a_small_tensor_has_a_histogram_where_its_values_were_kept(recorded):
    for step, buckets in recorded[3].histograms("export/eval", BIAS, len(steps_of(ship_run.EVAL))).items():
        check_histogram(buckets, ship_run.bias(step))


def test_live_files_hold_statistics_of_every_tenth_step(recorded):
    got = recorded[3].histograms("live/train", WEIGHT, 2)
    assert sorted(got) == [s for s in steps_of(ship_run.TRAIN) if ship_run.mode_step_of(s) % 10 == 0]
    for step, buckets in got.items():
        check_histogram(buckets, ship_run.weight(step))


def test_the_exports_own_account_is_true(recorded):
    tdbg, _, exported, server = recorded
    assert exported["steps"] == STEPS and exported["to"] == "tensorboard"
    histograms = 0
    for run in ("export/train", "export/eval"):
        for tag in server.get("plugin/histograms/tags")[run]:
            histograms += len(server.get("plugin/histograms/histograms", run=run, tag=tag))
    kept = tdbg.json("steps", "r", "--kind", "histogram")["steps"]
    assert histograms == exported["histograms"] == len(kept) + STEPS, "the bias has its values'"
