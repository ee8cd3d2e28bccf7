"""What failed is run once more, alone; both results are kept. Real pytest and real ctest, on suites of a few lines."""

import os
import shutil
import subprocess
import sys
import pathlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import summarize_tests  # noqa: E402

TOOL = pathlib.Path(__file__).resolve().parent / "run_tests.py"
# Passes from its second run on, and says in which process of how many it ran.
SHAKY = """
import os, pathlib
def test_good(): pass
def test_shaky():
    seen = pathlib.Path("seen")
    with seen.open("a") as out: out.write(os.environ.get("PYTEST_XDIST_WORKER", "alone") + "\\n")
    assert len(seen.read_text().split()) > 1, "not yet"
"""
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(suite NONE)
enable_testing()
add_test(NAME good COMMAND true)
add_test(NAME shaky COMMAND sh -c "if test -e seen; then exit 0; fi; touch seen; echo not yet; exit 1")
add_test(NAME bad COMMAND false)
"""


def run(folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run([sys.executable, TOOL, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_pytest_runs_what_failed_again_alone(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text(SHAKY)
    done = run(tmp_path, "pytest", "build/it.xml", "test_it.py")
    assert done.returncode == 0, done.stdout
    first, second = (summarize_tests.outcomes(tmp_path / "build" / name) for name in ("it.xml", "it-again.xml"))
    assert {name: found for name, (found, _) in first.items()} == {"test_it.test_good": "passed", "test_it.test_shaky": "failed"}
    assert {name: found for name, (found, _) in second.items()} == {"test_it.test_shaky": "passed"}
    workers = (tmp_path / "seen").read_text().split()
    assert workers[0].startswith("gw") and workers[1] == "alone"
    # Nothing is left of the last time.
    (tmp_path / "build/it-again.xml").write_text("stale")
    assert run(tmp_path, "pytest", "build/it.xml", "test_it.py").returncode == 0
    assert not (tmp_path / "build/it-again.xml").exists()


def test_pytest_that_fails_twice_has_failed(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text("def test_bad(): assert 0\n")
    done = run(tmp_path, "pytest", "build/it.xml", "test_it.py")
    assert done.returncode == 1
    assert summarize_tests.summarize([tmp_path / "build/it.xml"], lambda line: None).failures == ["test_it.test_bad"]


def test_many_failures_are_not_run_again(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(21))\ndef test_bad(n): assert 0\n")
    done = run(tmp_path, "pytest", "build/it.xml", "test_it.py")
    assert done.returncode == 1 and "not run again" in done.stdout
    assert not (tmp_path / "build/it-again.xml").exists()


def test_a_suite_that_cannot_start_has_failed(tmp_path):
    done = run(tmp_path, "pytest", "build/it.xml", "--no-such-option")
    assert done.returncode == 1 and not (tmp_path / "build/it.xml").exists()


@pytest.mark.skipif(not shutil.which("ctest"), reason="no CMake here")
def test_ctest_runs_what_failed_again(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "build/scenarios.xml").write_text("stale")
    done = run(tmp_path, "ctest", "build")
    assert done.returncode == 1, done.stdout
    summary = summarize_tests.summarize([tmp_path / "build/ctest.xml"], lambda line: None)
    assert summary.line() == "2 passed, 1 failed, 0 skipped"
    assert (summary.failures, summary.unstable) == (["bad.bad"], ["shaky.shaky"])
    assert not (tmp_path / "build/scenarios.xml").exists()


@pytest.mark.skipif(not shutil.which("ctest"), reason="no CMake here")
def test_results_of_a_test_of_many_are_kept_of_both_times(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.replace("-c \"if", "-c \"echo $(ls) >> scenarios.xml; if"))
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=tmp_path, check=True, capture_output=True)
    run(tmp_path, "ctest", "build")
    first, second = (tmp_path / "build" / name for name in ("scenarios.xml", "scenarios-again.xml"))
    assert "seen" not in first.read_text() and "seen" in second.read_text()
