"""The commands of docs/storage.md, as they stand there."""

import pathlib
import shutil
import subprocess
import sys

import ship_run
from program import BINARY, ROOT


def with_a_training(tdbg):
    (tdbg.directory / "train.py").write_text(
        f"import runpy, sys\nsys.argv[1:] = ['8']\nrunpy.run_path({str(pathlib.Path(ship_run.__file__))!r}, run_name='__main__')\n")
    return {**tdbg.env, "PATH": f"{BINARY.parent}:{pathlib.Path(sys.executable).parent}:{tdbg.env['PATH']}"}


def test_the_commands_that_go_on_on_another_machine_are_executed(tdbg):
    shell = (ROOT / "docs/storage.md").read_text().split("```sh\n")[2].split("```")[0]
    env = with_a_training(tdbg)
    for number, line in enumerate(shell.strip().splitlines()):
        machine = {**env, "XDG_STATE_HOME": str(tdbg.directory / f"state-{number}"), "TDBG_CACHE": str(tdbg.directory / f"cache-{number}")}
        done = subprocess.run(["bash", "-c", line], cwd=tdbg.directory, env=machine, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stderr)
    assert tdbg.json("status", "s3://bucket/trainings/b")["attempts"] == [0, 1]


def test_the_commands_of_the_page_are_executed(tdbg):
    page = (ROOT / "docs/storage.md").read_text()
    shell = page.split("```sh\n")[1].split("```")[0]
    code = page.split("```python\n")[1].split("```")[0]
    env = with_a_training(tdbg)
    lines = shell.strip().splitlines()
    assert len(lines) == 5
    for number, line in enumerate(lines):
        done = subprocess.run(["bash", "-c", line], cwd=tdbg.directory, env=env, capture_output=True, text=True, timeout=60)
        finds = " check " in line  # there is a NaN from step 6 on
        assert done.returncode == (1 if finds else 0), (line, done.stderr)
        if number == 0:
            shutil.rmtree(tdbg.directory / "runs")
    done = subprocess.run([sys.executable, "-c", code + "\nprint(float(loss), theirs.loaded_all_steps)"], timeout=60,
                          env={**env, "PYTHONPATH": tdbg.env["TDBG_HOME"]}, capture_output=True, text=True)
    assert done.stdout.split() == [str(float(ship_run.loss(7))), "True"], done.stderr


def test_the_commands_about_checkpoints_are_executed(tdbg):
    page = (ROOT / "docs/storage.md").read_text()
    shell = page.split("## Checkpoints\n")[1].split("```sh\n")[1].split("```")[0]
    (tdbg.directory / "train.py").write_text(
        "import os, pathlib\npath = pathlib.Path(os.environ['TDBG_CHECKPOINT_DIR'], 'step')\n"
        "print('begins at', path.read_text() if path.exists() else 0, flush=True)\npath.write_text('7')\n")
    env = {**tdbg.env, "PATH": f"{BINARY.parent}:{pathlib.Path(sys.executable).parent}:{tdbg.env['PATH']}"}
    done = subprocess.run(["bash", "-e", "-c", shell], cwd=tdbg.directory, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("begins at")] == ["0", "7"]
    assert "the checkpoints came back from s3://bucket/trainings/c" in done.stderr
