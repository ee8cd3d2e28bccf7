"""Programs as smdebug's documentation has them, run twice: by the real smdebug and by ours. Same names, steps, values."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
COMPAT = ROOT / "smdebug-compat" / "src"
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
REAL = ROOT / ".venv-smdebug" / "bin" / "python"

pytest.importorskip("torch")
pytest.importorskip("xgboost")
if not any((pathlib.Path(HOME) / "tdbg").glob("_capture*.so")):
    pytest.skip("the extension modules are not built", allow_module_level=True)


NAMES = ["modes_and_collections", "json_file", "reductions", "rule", "own_values", "configuration",
         "event_files", "xgboost_hook", "checkpoints", "analysis",
         "own_hook", "scalars_between", "scalars_each_epoch", "odd_collections", "shapes_only", "trial_collections",
         "files_beside", "example_torch", "example_xgboost"]


def run(python, out, **environment):
    """{program: what it told}."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TDBG_", "SMDEBUG_", "TRAINING_JOB")) and k not in ("PYTHONPATH", "RANK", "WORLD_SIZE")}
    done = subprocess.run([str(python), str(PROGRAMS / "driver.py"), str(out), *NAMES], env={**env, **environment},
                          text=True, capture_output=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-1000:]
    found, name = {}, None
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "PROGRAM":
            name = rest
            found[name] = {}
        elif word == "FAILED":
            found[name] = {"failed": ast.literal_eval(rest)}
        elif word == "RESULT":
            found[name].update(json.loads(rest))
    return found


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    if not REAL.exists():
        pytest.skip("the real smdebug is not installed (.venv-smdebug)")
    return run(REAL, tmp_path_factory.mktemp("real"), SMDEBUG_LOG_LEVEL="off",
               XGBOOST_PACKAGES=sysconfig.get_path("platlib"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return run(sys.executable, tmp_path_factory.mktemp("ours"), PYTHONPATH=f"{HOME}{os.pathsep}{COMPAT}", TDBG_STRICT="1")


def same(real, ours):
    """Equal; numbers to a float32's precision (reductions are computed in float64 here, in float32 there)."""
    if isinstance(real, dict):
        assert set(real) == set(ours)
        for key in real:
            try:
                same(real[key], ours[key])
            except AssertionError as error:
                raise AssertionError(f"{key}: {error}") from None
    elif isinstance(real, list):
        assert len(real) == len(ours), (real, ours)
        for r, o in zip(real, ours):
            same(r, o)
    elif isinstance(real, float):
        assert ours == pytest.approx(real, rel=2e-5, abs=1e-6)
    else:
        assert real == ours


@pytest.mark.long
@pytest.mark.parametrize("program", NAMES)
def test_a_program_finds_what_the_real_smdebug_finds(program, real, ours):
    assert real[program] and "failed" not in real[program], real[program]
    assert "failed" not in ours[program], ours[program]["failed"]
    same(real[program], ours[program])
