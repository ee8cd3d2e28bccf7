"""The commands of docs/storage.md, as they stand there."""

import pathlib
import shutil
import subprocess
import sys

import ship_run
from program import BINARY, ROOT


def test_the_commands_of_the_page_are_executed(tdbg):
    page = (ROOT / "docs/storage.md").read_text()
    shell = page.split("```sh\n")[1].split("```")[0]
    code = page.split("```python\n")[1].split("```")[0]
    (tdbg.directory / "train.py").write_text(
        f"import runpy, sys\nsys.argv[1:] = ['8']\nrunpy.run_path({str(pathlib.Path(ship_run.__file__))!r}, run_name='__main__')\n")
    env = {**tdbg.env, "PATH": f"{BINARY.parent}:{pathlib.Path(sys.executable).parent}:{tdbg.env['PATH']}"}
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
