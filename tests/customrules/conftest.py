import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from judging import BINARY, Judge, write_run  # noqa: E402


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
    if not BINARY.exists():
        pytest.skip(f"no binary at {BINARY}; build it (make build) or set TDBG_BIN")
    run = tmp_path_factory.mktemp("runs") / "run"
    write_run(run)
    return run


@pytest.fixture
def judge(tmp_path, recorded):
    return Judge(tmp_path, recorded)
