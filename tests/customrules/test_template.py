"""`tdbg rules new`: what it writes builds and passes its own test."""

import os
import subprocess
import sys

import pytest

from judging import BINARY, HOME


def _environment():
    return {**os.environ, "TDBG_HOME": HOME, "TDBG_CLI": str(BINARY), "PYTHONPATH": HOME, "TDBG_PYTHON": sys.executable}


def test_a_python_rule_passes_its_test(judge):
    done = judge("rules", "new", "LargeGradient", "mine")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["mine/test_large_gradient.py", "mine/large_gradient.py"]
    tried = subprocess.run([sys.executable, "mine/test_large_gradient.py"], cwd=judge.directory, env=_environment(),
                           capture_output=True, text=True)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.count("ok test_") == 2
    again = judge("rules", "new", "large_gradient", "mine")
    assert again.returncode != 0 and "it is there already" in again.stderr


def test_a_cpp_rule_builds_and_passes_its_test(judge):
    if subprocess.run(["sh", "-c", "command -v make && command -v c++"], capture_output=True).returncode:
        pytest.skip("no make or no C++ compiler")
    done = judge("rules", "new", "SpikyLoss", "--cpp", "mine")
    assert done.returncode == 0, done.stderr
    env = _environment()
    # A build of the tests has tdbg-rule-host beside tdbg.
    tried = subprocess.run(["make", "-C", "mine", "test"], cwd=judge.directory, env=env,
                           capture_output=True, text=True)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert tried.stdout.count("ok test_") == 2


@pytest.mark.parametrize("words", [["new"], ["new", "9lives"], ["new", "a-b"], ["new", "A", "--cpp", "--python"],
                                   ["--cpp"]])
def test_words_that_make_no_rule_are_refused(judge, words):
    assert judge("rules", *words).returncode == 2
