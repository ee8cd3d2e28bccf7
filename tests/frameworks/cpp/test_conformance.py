import subprocess

import pytest
from frameworks.conformance import Conformance
from frameworks.cpp.framework import BUILD, PROGRAM, Cpp

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{BUILD} has no C++ tests (make build)")


class TestCpp(Conformance):
    framework = Cpp()


def test_no_python_is_loaded():
    loaded = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "libstdc++" in loaded and "libpython" not in loaded
