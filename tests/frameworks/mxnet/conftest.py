import os
import pathlib
import warnings

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
os.environ["TDBG_STRICT"] = "1"          # a failure of the adaptor's own is a failure here
os.environ.setdefault("TDBG_CLI", str(ROOT / "build" / "tdbg"))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")      # MXNet's own, on this NumPy
    import mxnet  # noqa: F401


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("TDBG_RUN", "TDBG_ATTEMPT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
