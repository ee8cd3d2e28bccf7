"""What stands between the debugger's mistakes and the training, when recording a mistake fails too."""

import ctypes
import json
import opcode
import os
import queue
import signal
import threading
import unittest.mock

import pytest

from tdbg.adaptors.guard import MAX_ERRORS, Guard, is_the_trainings_own, pass_on, say
from tdbg.places import write_whole
from tdbg.words import error_text


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


class TimeLimit(Exception):
    pass


def caught(function):
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def set_by_another_thread(kind):
    """As it looks where it lands: between two instructions, here after a call."""
    me, looping = threading.get_ident(), threading.Event()

    def other():
        looping.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(kind))

    def ours():
        looping.set()
        while True:
            len("")

    threading.Thread(target=other).start()
    return caught(ours)


def asserts():
    assert not TimeLimit        # without words


@pytest.mark.parametrize("kind", [TimeLimit, TimeoutError, RuntimeError, MemoryError, StopIteration, StopAsyncIteration,
                                  queue.Empty])
def test_what_another_thread_set_is_the_trainings_own(kind):
    assert is_the_trainings_own(set_by_another_thread(kind))


def set_here(kind):
    """Lands where the interpreter looks next: as this call returns."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


@pytest.mark.skipif("RESUME" not in opcode.opmap, reason="3.10 looks for them at any instruction")
@pytest.mark.parametrize("kind", [StopIteration, queue.Empty])
def test_what_is_set_between_calls_is_of_no_function_in_c(kind):
    """Also in code that calls what could raise the like."""
    looping, me = threading.Event(), threading.get_ident()

    def other():
        looping.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(kind))

    def ours(wanted=False):
        looping.set()
        while True:
            if wanted:
                next(wanted.get_nowait())

    threading.Thread(target=other).start()
    assert is_the_trainings_own(caught(ours))


def test_what_is_set_in_a_generator_of_ours_comes_out_as_it_was_set():
    def ours():
        set_here(StopIteration)
        yield 1

    with pytest.raises(StopIteration):
        Guard("torch").failed("a hook", caught(lambda: list(ours())))
    with pytest.raises(StopIteration):
        pass_on(caught(lambda: list(ours())))


def test_no_memory_is_ours_where_little_of_it_is_allowed(monkeypatch):
    error = caught(lambda: set_here(MemoryError))
    monkeypatch.setattr("resource.getrlimit", lambda limit: (1 << 30, 1 << 30))
    monkeypatch.setattr("tdbg.adaptors.guard._BETWEEN", set())
    assert not is_the_trainings_own(error)


@pytest.mark.parametrize("fails", [
    lambda: {}["absent"], lambda: int("x"), lambda: [][0], lambda: 1 // 0, lambda: object().absent, lambda: next(iter(())),
    lambda: bytearray(1 << 62), lambda: queue.SimpleQueue().get_nowait(), lambda: json.loads("{"), lambda: os.stat("/nowhere"),
    lambda: (_ for _ in ()).throw(ValueError("ours")), lambda: unittest.mock.Mock(side_effect=TimeLimit)(), asserts])
def test_what_our_own_calls_raise_is_ours(fails):
    assert not is_the_trainings_own(caught(fails))


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


@pytest.mark.parametrize("text, printed", [
    ("a\x1b[2Jb\r\n\t\x7f", r"a\x1b[2Jb\x0d\x0a\x09\x7f"),      # as PrintableTest of src/base says, for the command line
    ("\u009b2J", r"\u009b2J"), ("a\u202eb\u2066c\u061c\u200f", r"a\u202eb\u2066c\u061c\u200f"),
    ("x\u200by\u2060\ufeff\u00ad\u3164", r"x\u200by\u2060\ufeff\u00ad\u3164"), ("\u2028\U000e0041", r"\u2028\U000e0041"),
    ("größe/Ø 損失 потери ▁█ …× 😀 a\u0301", "größe/Ø 損失 потери ▁█ …× 😀 a\u0301")])
def test_what_is_said_sends_a_terminal_nothing(text, printed, capsys):
    say(text)
    assert capsys.readouterr().err == f"tdbg: {printed}\n"


def test_a_file_is_replaced_whole_and_no_link_written_through(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "mine")
    write_whole(str(tmp_path / "file"), "new")
    assert (tmp_path / "file").read_text() == "new" and not (tmp_path / "file").is_symlink()
    (tmp_path / "file.tmp").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError):
        write_whole(str(tmp_path / "file"), b"newer")
    assert (tmp_path / "mine").read_text() == "precious"


class Speechless(RuntimeError):
    def __str__(self):
        raise AttributeError("what it would say of is gone")


@pytest.mark.parametrize("error, said", [
    (ValueError("too large"), "ValueError: too large"), (ValueError(), "ValueError"), (ValueError(" "), "ValueError"),
    (Speechless(), "Speechless"), (KeyError("w"), "KeyError: 'w'")])
def test_an_exception_without_words_is_its_name(error, said, capsys):
    assert error_text(error) == said
    records = []
    Guard("torch", on_error=records.append).failed("a hook", error)
    assert records == [f"a hook: {said}"]
    assert capsys.readouterr().err == f"tdbg: could not capture (a hook: {said}); training goes on\n"
