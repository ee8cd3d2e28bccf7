"""smdebug's import names, and what the tests of its hooks share."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = str(ROOT / "smdebug-compat" / "src")
sys.path.insert(0, NAMES)


def maker(kind, out):
    """A fixture's body: yields hook(**arguments), which makes a `kind` that writes to `out`; it is closed afterwards."""
    import smdebug.tensorflow as smd
    made = []

    def make(**arguments):
        made.append(kind(str(out), **arguments))
        return made[-1]

    yield make
    for h in made:
        h.close()
    smd.del_hook()


def run_example(name, tmp_path, launched):
    """Eight steps of a script of examples/fashion_mnist that has a hook, saved every four, by `tdbg run` (in tmp_path/run)
    if `launched`. Returns what it wrote."""
    out = tmp_path / "out"
    command = [sys.executable, "-W", "ignore", str(ROOT / "examples" / "fashion_mnist" / name), "--out-dir", str(out),
               "--steps", "8", "--save-interval", "4"]
    if launched:
        program = os.environ.get("TDBG_CLI", str(ROOT / "build" / "tdbg"))
        command = [program, "run", "--dir", str(tmp_path / "run"), "--", *command]
    home = os.environ.get("TDBG_HOME", str(ROOT / "python"))
    env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
    env.update(TDBG_HOME=home, TDBG_STRICT="1", PYTHONPATH=os.pathsep.join([home, NAMES]))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return out
