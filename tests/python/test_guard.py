"""What stands between the debugger's mistakes and the training, when recording a mistake fails too."""

import signal

import pytest

from tdbg.adaptors.guard import MAX_ERRORS, Guard


def broken(*_):
    raise OSError("no room to say so")


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch):
    monkeypatch.delenv("TDBG_STRICT", raising=False)


def test_the_trainings_own_exception_is_what_reaches_it():
    def handler(*_):
        raise TimeoutError("the training's")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError, match="the training's"):
            try:
                handler()
            except Exception as error:
                Guard("torch", on_error=broken).failed("a hook", error)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_adaptor_stops_also_where_its_failures_cannot_be_recorded():
    stopped = []
    guard = Guard("torch", on_error=broken, on_disarm=lambda: stopped.append(1))
    for _ in range(MAX_ERRORS + 1):
        guard.failed("a hook", ValueError("ours"))
    assert stopped == [1]
