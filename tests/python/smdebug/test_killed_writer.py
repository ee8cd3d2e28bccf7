"""A training under the real smdebug is killed in the middle of a step: what our trial makes of its directory."""

import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("TDBG_HOME", str(ROOT / "python")))
REAL = ROOT / ".venv-smdebug" / "bin" / "python"
pytest.importorskip("tdbg._trial")

import tdbg  # noqa: E402

PROGRAM = """
import os, pathlib, signal, sys, time
import torch
import smdebug.pytorch as smd
from smdebug import SaveConfig, modes

def size(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:   # that thread has renamed it since it was listed
        return 0

out = pathlib.Path(sys.argv[1])
net = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.Linear(200, 200), torch.nn.Linear(200, 200))
hook = smd.Hook(sys.argv[1], save_config=SaveConfig(save_interval=1), include_collections=["weights", "gradients"])
hook.register_module(net)
hook.set_mode(modes.TRAIN)
for step in range(5):
    for p in net.parameters():
        torch.nn.init.constant_(p, step + 1)
    loss = net(torch.ones(2, 200)).sum()
    if step == 4:
        end = time.monotonic() + 60     # its writer is a thread
        while time.monotonic() < end and not any(size(p) > 200_000 for p in out.rglob("*.tfevents.tmp")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    if not REAL.exists():
        pytest.skip("the real smdebug is not installed (.venv-smdebug)")
    path = tmp_path_factory.mktemp("killed") / "run"
    done = subprocess.run([str(REAL), "-c", PROGRAM, str(path)], text=True, capture_output=True, timeout=200,
                          env={**os.environ, "SMDEBUG_LOG_LEVEL": "off", "PYTHONPATH": ""})
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    left = [p for p in path.rglob("*.tfevents.tmp")]
    assert len(left) == 1 and left[0].stat().st_size > 200_000, left
    return path


def age(path, seconds):
    """As if all of it were so much older."""
    for entry in [path, *path.rglob("*")]:
        times = entry.stat()
        os.utime(entry, (times.st_atime, times.st_mtime - seconds))


def test_it_is_running_at_first_and_crashed_after_a_while(killed):
    trial = tdbg.open(str(killed))
    assert trial.state == "running" and trial.steps() == [0, 1, 2, 3] and trial.damage() == []
    age(killed, 700)
    trial = tdbg.open(str(killed))
    assert trial.state == "crashed"
    assert trial.steps() == [0, 1, 2, 3, 4]
    # What had reached the file when the process died, and nothing that had not.
    names = trial.tensor_names(step=4)
    assert "Sequential_0.weight" in names and all("weight" in name for name in names)
    for name in names:
        assert np.all(trial.tensor(name).value(4) == 5)
    assert trial.mode(4) == tdbg.ModeKeys.TRAIN and trial.mode_step(4) == 4
    (damage,) = trial.damage()
    assert ".tfevents.tmp: left by a writer that was killed" in damage and f"{len(names)} whole records" in damage
    again = tdbg.create_trial(str(killed))
    assert again.loaded_all_steps and again.steps() == [0, 1, 2, 3, 4]
