"""The libtorch example, built as its users would: a CMake project of its own against the torch wheel and the build folder."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TDBG_BUILD", ROOT / "build"))
torch = pytest.importorskip("torch")
tdbg = pytest.importorskip("tdbg")
pytestmark = pytest.mark.skipif(not (BUILD / "libtdbg_session.a").exists(), reason=f"{BUILD} has no libraries (make build)")


@pytest.fixture(scope="module")
def program():
    # In a place of its own in the clone, and by a compiler cache where there is one: libtorch's headers take half a minute.
    folder = BUILD / "libtorch_example"
    shutil.rmtree(folder, ignore_errors=True)
    cached = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"} if shutil.which("ccache") else {}
    for command in (["cmake", "-S", str(ROOT / "examples" / "cpp" / "libtorch"), "-B", str(folder), "-DCMAKE_CXX_FLAGS=-O0",
                     "-DCMAKE_BUILD_TYPE=Debug", f"-Dtdbg_DIR={BUILD}", f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"],
                    ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **cached})
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "libtorch_training"


def test_the_run_says_what_the_program_printed(program, tmp_path):
    done = subprocess.run([str(program), str(tmp_path / "run")], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    run = tdbg.open(str(tmp_path / "run"))
    assert run.state == "ended" and run.dropped() == [] and run.damage() == []
    assert len(run.steps(mode="TRAIN")) == 200 and len(run.steps(mode="EVAL")) == 4
    printed = re.findall(r"^(\d+) (\S+) mean (\S+)(?: l2 (\S+))?$", done.stdout, re.M)
    assert len(printed) == 4 * 9
    for step, name, mean, l2 in printed:
        got = run.tensor(name).summary(int(step), mode="TRAIN")
        np.testing.assert_allclose(got.mean, float(mean), rtol=1e-5, atol=1e-8, err_msg=f"{name} at {step}")
        if l2:
            np.testing.assert_allclose(got.l2, float(l2), rtol=1e-6, err_msg=f"{name} at {step}")
    evaluations = re.findall(r"held-out loss after step \d+: (\S+)", done.stdout)
    losses = run.tensor("MSELoss_output_0")
    assert [float(losses.value(n, mode="EVAL")) for n in range(4)] == pytest.approx(list(map(float, evaluations)), rel=1e-6)
    assert run.tensor("0.weight").name == "Sequential_0.weight" and run.tensor("0.weight").final_summary().count == 640
    assert run.tensor("context/lr/SGD/0").scalar(3) == 0.05


def test_under_tdbg_run_it_records_there(program, tmp_path):
    tdbg_program = os.environ.get("TDBG_BIN", str(BUILD / "tdbg"))
    done = subprocess.run([tdbg_program, "run", "--dir", "r", "--rule", "exploding_tensor", "--", str(program)], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and "ExplodingTensor  NoIssuesFound" in done.stderr, done.stderr
    names = tdbg.open(str(tmp_path / "r")).tensor_names()
    assert {"Sequential_0.weight", "gradient/Sequential_2.bias", "MSELoss_output_0"} <= set(names)
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_no_python_is_loaded(program):
    loaded = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    assert "libtorch" in loaded and "libpython" not in loaded and "torch_python" not in loaded
