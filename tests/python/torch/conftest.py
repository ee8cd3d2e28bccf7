import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("TDBG_HOME", str(ROOT / "python")))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch  # noqa: E402
from recording_run import RecordingRun  # noqa: E402

from tdbg.adaptors.torch import attach as attach_module  # noqa: E402,F401
from tdbg.adaptors.torch.session import OFF, Session  # noqa: E402

os.environ["TDBG_STRICT"] = "1"
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def as_in_a_process_that_compiled_nothing():
    yield
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].counters.clear()     # the adaptor looks there


@pytest.fixture
def watch():
    """watch(**RecordingRun's options) arms a session and returns (session, function that gives the run)."""
    sessions = []

    def start(force_lane=False, explicit=False, strict=True, **options):
        made = []

        def open_run(**given):
            made.append(RecordingRun(**options, **given))
            return made[-1]

        session = Session(open_run, explicit=explicit, force_lane=force_lane)
        session.guard.strict = strict
        session.install()
        session.made = made
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        if session.state is not OFF:
            session.finish("closed")
