"""smdebug's own files beside a run: of a training that is killed, and where they are not wanted."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
pytest.importorskip("torch")
if not any((pathlib.Path(HOME) / "tdbg").glob("_capture*.so")) or not os.environ.get("TDBG_CLI"):
    pytest.skip("the extension modules or the command line are not built", allow_module_level=True)

SCRIPT = """
import os, signal, sys, torch
import smdebug.pytorch as smd
hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), include_collections=["weights"])
net = torch.nn.Linear(2, 1)
hook.register_module(net)
for n in range(int(sys.argv[2])):
    net(torch.ones(1, 2))
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def train(out, steps, how, **environment):
    env = {**os.environ, "PYTHONPATH": f"{HOME}{os.pathsep}{ROOT / 'smdebug-compat' / 'src'}", **environment}
    return subprocess.run([sys.executable, "-c", SCRIPT, str(out), str(steps), how], env=env, capture_output=True, text=True,
                          timeout=200)


def steps_in(out):
    return sorted(int(path.name) for path in (out / "events").glob("*") if any(path.glob("*.tfevents")))


def test_a_killed_training_leaves_its_files_and_may_go_on(tmp_path):
    out = tmp_path / "run"
    assert train(out, 4, "killed").returncode == -9
    deadline = time.monotonic() + 60
    while steps_in(out) != [0, 1, 2] and time.monotonic() < deadline:      # they are written a moment after the death
        time.sleep(0.1)
    assert steps_in(out) == [0, 1, 2]       # the fourth was never closed
    again = train(out, 2, "ends")           # the run's next attempt
    assert again.returncode == 0, again.stderr
    assert (out / "training_job_end.ts").exists()
    assert steps_in(out)[-1] >= 1


def test_they_can_be_switched_off(tmp_path):
    out = tmp_path / "run"
    assert train(out, 2, "ends", TDBG_SMDEBUG_FILES="0").returncode == 0
    assert not (out / "events").exists() and not (out / "training_job_end.ts").exists()
