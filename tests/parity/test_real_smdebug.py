"""The same questions to the real smdebug and to our trial, over runs that the real one wrote: the same answers,
except where docs/smdebug.md says that ours is right and smdebug's is not."""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
REAL = ROOT / ".venv-smdebug" / "bin" / "python"
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)
RUNS = ("modes", "workers", "partial", "reductions", "types")

pytestmark = pytest.mark.skipif(not REAL.exists(), reason="the real smdebug is not installed (.venv-smdebug)")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("smdebug")
    subprocess.run([str(REAL), str(HERE / "write_with_smdebug.py"), str(directory)], check=True, capture_output=True)
    return directory


def answers(python, which, run):
    environment = {**os.environ, "PYTHONPATH": HOME if which == "tdbg" else "", "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0"}
    done = subprocess.run([str(python), str(HERE / "answers.py"), which, str(run)], capture_output=True, text=True,
                          timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def flat(answer, path=()):
    if isinstance(answer, dict) and answer and "exception" not in answer and "values" not in answer:
        for key, value in answer.items():
            yield from flat(value, (*path, key))
    else:
        yield path, answer


def same(real, ours):
    if isinstance(real, dict) and "exception" in real:  # ours may say more, and is also that one
        return isinstance(ours, dict) and real["exception"][0] in ours.get("exception", ())
    if isinstance(real, (int, float)) and isinstance(ours, (int, float)):
        return real == ours or (math.isnan(real) and math.isnan(ours)) or math.isclose(real, ours, rel_tol=1e-6, abs_tol=1e-12)
    return real == ours


def is_right_here(path, real, ours, names):
    """What docs/smdebug.md lists as smdebug's faults, and that ours has none of them."""
    question = path[-1]
    if path[0] == "collections" and question == "tensor_names":
        # The real one's are those it knew when its file was written, at the first saved step; ours its members in the run.
        return set(real) & set(names) <= set(ours) <= set(names)
    if path[1] == "text":
        # Whatever NumPy raises there.
        return "exception" in real and isinstance(ours, dict) and "TensorUnavailableForStep" in ours.get("exception", ())
    if question in ("l1", "l2", "abs l1", "abs l2"):
        # Matrix norms for two axes, and none for other ranks than one and two.
        return isinstance(ours, float) and (isinstance(real, float) or "exception" in real)
    if path[1] == "half" and question in ("std", "abs std"):
        return math.isclose(real, ours, rel_tol=1e-3)  # computed in half precision there
    return False


@pytest.mark.parametrize("run", RUNS)
def test_the_same_answers(runs, run):
    real = dict(flat(answers(REAL, "smdebug", runs / run)))
    ours = dict(flat(answers(sys.executable, "tdbg", runs / run)))
    assert len(real) > 100
    assert real.keys() == ours.keys()
    different = {path: (real[path], ours[path]) for path in real
                 if not same(real[path], ours[path]) and not is_right_here(path, real[path], ours[path], real[("names",)])}
    assert not different, "\n".join(f"{'/'.join(path)}: smdebug {a!r}, tdbg {b!r}" for path, (a, b) in sorted(different.items()))
