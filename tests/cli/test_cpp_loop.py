"""The hand-written C++ training under the commands that every training is started and stopped with."""

import os
import pathlib
import subprocess
import time

import pytest

from program import ROOT

tdbg_package = pytest.importorskip("tdbg")
PROGRAM = pathlib.Path(os.environ.get("TDBG_BUILD", ROOT / "build")) / "examples" / "hand_written_loop"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built (make build)")


def test_tdbg_run_decides_where_it_records_and_what(tdbg):
    done = tdbg("run", "--dir", "r", "--rule", "exploding_tensor", "--collect", "gradients:50", "--", str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert "ExplodingTensor  NoIssuesFound" in done.stderr
    trial = tdbg_package.open(str(tdbg.directory / "r"))
    assert len(trial.steps(mode="TRAIN")) == 600 and trial.dropped() == []
    losses = [trial.tensor("logistic_loss_output_0").summary(step).mean for step in (0, 599)]
    assert losses[1] < 0.5 * losses[0], "it did not learn"
    names = [f"gradient/mlp_{name}" for name in ("fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight")]
    assert sorted(name for name in trial.tensor_names() if trial.tensor(name).steps(kind="raw")) == names
    assert "mlp_fc1.weight" in tdbg.ok("tensors", "r").stdout
    assert not (tdbg.directory / "tdbg-runs").exists()


def test_by_itself_it_keeps_its_own_plan_and_again_is_an_attempt(tdbg):
    for attempt in range(2):
        done = subprocess.run([str(PROGRAM), "r"], cwd=tdbg.directory, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "loss: 0." in done.stdout and f"fc1.weight[0] at step {500 + 600 * attempt}" in done.stdout
    trial = tdbg_package.open(str(tdbg.directory / "r"))
    # It does not say where it goes on: the second attempt lies behind the first one.
    assert trial.tensor("fc1.weight").steps(kind="raw") == list(range(0, 1200, 100))
    assert trial.state == "ended"


def test_it_stops_when_it_is_asked_to(tdbg):
    with subprocess.Popen([str(PROGRAM), "--steps", str(10**9), "r"], cwd=tdbg.directory, stdout=subprocess.PIPE, text=True) as program:
        try:
            deadline = time.monotonic() + 30
            while not list((tdbg.directory / "r").rglob("*.journal")) + list((tdbg.directory / "r").rglob("journal*")):
                assert time.monotonic() < deadline and program.poll() is None
                time.sleep(0.05)
            tdbg.ok("stop", "r")
            assert program.wait(180) == 0   # it reads all that it has recorded: some hundred thousand steps
        finally:
            program.kill()
    [end] = tdbg_package.open(str(tdbg.directory / "r")).worker_ends()
    assert end.reason == "stopped"
