import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE.parent / "cli", pathlib.Path(os.environ.get("TDBG_HOME", str(HERE.parents[1] / "python")))):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import servers
from program import Tdbg


@pytest.fixture(scope="session")
def bucket():
    with servers.moto() as server:
        yield server


@pytest.fixture
def tdbg(tmp_path, bucket):
    """The program, with credentials for the bucket, a cache and a state of its own."""
    program = Tdbg(tmp_path)
    program.env = {k: v for k, v in program.env.items() if not k.startswith("AWS_")}
    program.env.update(bucket.env(), HOME=str(tmp_path), TDBG_CACHE=str(tmp_path / ".cache"))
    return program
