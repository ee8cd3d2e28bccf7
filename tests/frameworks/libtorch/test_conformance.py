import subprocess

import pytest
from frameworks.conformance import Conformance
from frameworks.libtorch.framework import BUILD, Libtorch, program

pytest.importorskip("torch")
# Long: the example is built and its values are looked at in tests/libtorch.
pytestmark = [pytest.mark.long,
              pytest.mark.skipif(not (BUILD / "libtdbg_session.a").exists(), reason=f"{BUILD} has no libraries (make build)")]


class TestLibtorch(Conformance):
    framework = Libtorch()


def test_no_python_is_loaded():
    loaded = subprocess.run(["ldd", program()], capture_output=True, text=True, check=True).stdout
    assert "libtorch" in loaded and "libpython" not in loaded and "torch_python" not in loaded
