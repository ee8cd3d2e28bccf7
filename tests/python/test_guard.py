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


def test_a_site_that_can_be_given_up_alone_ends_nothing_else():
    ended, recorded = [], []
    guard = Guard("torch", on_error=recorded.append, on_disarm=lambda: ended.append("all"))
    for _ in range(MAX_ERRORS):
        guard.failed("a module", ValueError("ours"), alone=lambda: ended.append("a module"))
    for _ in range(MAX_ERRORS - 1):
        guard.failed("a hook", ValueError("ours"))
    assert ended == ["a module"]
    assert recorded.count("a module: given up after 10 failures") == 1
    guard.failed("a hook", ValueError("ours"))
    assert ended == ["a module", "all"]


def test_failures_at_a_thousand_sites_are_no_thousand_lines(capsys):
    recorded = []
    guard = Guard("torch", on_error=recorded.append)
    for i in range(1000):
        guard.failed(f"module {i}", ValueError("ours"), alone=lambda: None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MAX_ERRORS + 1 and "counted in the run" in lines[-1]
    assert len(recorded) == 1000
