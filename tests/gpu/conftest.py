"""Which case runs where. Counted as skipped: what needs a GPU, where there is none."""

import os
import pathlib
import sys
import tempfile

import pytest

os.environ.setdefault("TDBG_OVERHEAD", "none")      # as tests/conftest.py, which is not carried
# What the compiler measures to be fastest it writes down for others. Two workers beside each other would take one another's
# choice in the middle of a case, and its bits would be others.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor-")
# Beside a carried wheel the suite lies alone: nothing of the repository is needed but this folder.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
if "TDBG_HOME" in os.environ:
    sys.path.insert(0, os.environ["TDBG_HOME"])

pytest.importorskip("torch")
pytest.importorskip("tdbg._capture", reason="the wheel is not installed")

import torch  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu(count=1): needs that many GPUs")


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("gpu")
    if marker is not None:
        wanted = marker.kwargs.get("count", 1)
        if torch.cuda.device_count() < wanted:
            pytest.skip(f"no GPU here ({wanted} wanted, {torch.cuda.device_count()} there)")


@pytest.fixture(autouse=True)
def one_case_is_none_of_the_nexts_business():
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
