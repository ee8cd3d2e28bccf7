"""Keeps the debugger's mistakes out of training.

Every function that a framework calls (hooks, patched functions) runs its own work through a `Guard`.
An exception there is counted, said once on stderr and never reaches the training script. After
`MAX_ERRORS` of them the adaptor disarms itself; a place that can be given up alone (one module's outputs) is
given up after as many failures of its own, and the rest goes on. With TDBG_STRICT=1 (tests, people debugging the
debugger) the exception is raised instead. An exception that is the training's own is always passed on, whatever it
interrupted: what a signal handler raised (a timeout, DataLoader's message that a worker was killed), what another
thread set (PyThreadState_SetAsyncExc: stopit, Ray's cancel), what is no Exception (Ctrl-C). All of these arrive
wherever the interpreter happens to be, in our code too.
"""

from __future__ import annotations

import opcode
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..words import error_text, printable, wrapped

MAX_ERRORS = 10
_RAISE = {opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in opcode.opmap}
#: Where the interpreter looks for an exception of another thread and no function in C has been called.
_BETWEEN = {opcode.opmap[name] for name in ("RESUME", "JUMP_BACKWARD") if name in opcode.opmap}
#: What functions in C raise without arguments, and the names of those that do: an iterator's end, an empty queue, and
#: no memory for what is given a size.
_RAISED_BARE = {"StopIteration": {"next", "__next__", "send"}, "StopAsyncIteration": {"anext", "__anext__"},
                "Empty": {"get", "get_nowait"}, "MemoryError": {"bytes", "bytearray", "read", "recv", "join"}}


def say(message: str) -> None:
    """A note on stderr, marked as ours, in lines of 100 columns. Never raises: stderr may be closed."""
    try:
        sys.stderr.write("tdbg: " + wrapped(printable(message), len("tdbg: ")) + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def _code_of(handler: Any) -> Any:
    """The code that runs when a handler is called; None where that is not Python's."""
    if not callable(handler):       # SIG_DFL and SIG_IGN, whose class is called to make them; None
        return None
    handler = getattr(handler, "func", handler)                 # functools.partial
    if not hasattr(handler, "__code__"):
        handler = getattr(type(handler), "__call__", None)      # noqa: B004  an object that can be called
    return getattr(handler, "__code__", None)                   # a method has its function's


def is_the_trainings_own(error: BaseException) -> bool:
    """Did it come from outside of what we called? Then the training expects it, whatever it interrupted."""
    return not isinstance(error, Exception) or _was_raised_by_a_handler(error) or _was_set_by_a_thread(error)


def pass_on(error: BaseException) -> None:
    """For an `except` block that goes on another way: raises an error that is the training's own."""
    error = _as_it_was_set(error)
    if is_the_trainings_own(error):
        raise error


def _as_it_was_set(error: BaseException) -> BaseException:
    """A StopIteration that landed in a generator of ours comes out of it as a RuntimeError; itself, if it is the
    training's own."""
    cause = error.__cause__
    if type(error) is not RuntimeError or not isinstance(cause, (StopIteration, StopAsyncIteration)):
        return error
    return cause if is_the_trainings_own(cause) else error


def _was_raised_by_a_handler(error: BaseException) -> bool:
    handlers = {id(code) for code in map(_code_of, map(signal.getsignal, signal.valid_signals())) if code is not None}
    at = error.__traceback__
    while at is not None:
        if id(at.tb_frame.f_code) in handlers:
            return True
        at = at.tb_next
    return False


def _was_set_by_a_thread(error: BaseException) -> bool:
    """Was it set by another thread? Such a thread names a class, and the interpreter makes the exception of it, without
    arguments, between two instructions. So the innermost frame stands at no `raise`; and what a call of a function in C
    raises has arguments, which say what is wrong, with the exceptions of `_RAISED_BARE`."""
    at = error.__traceback__
    if at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    code = at.tb_frame.f_code
    instruction = code.co_code[at.tb_lasti]
    if instruction in _RAISE or not _is_made_bare(error):
        return False
    return instruction in _BETWEEN or not _may_be_of_c(error, code)


def _may_be_of_c(error: BaseException, code: Any) -> bool:
    """Could a function in C that `code` calls have raised it?"""
    kind = type(error).__name__
    if not _RAISED_BARE.get(kind, set()).isdisjoint(code.co_names):
        return True
    return kind == "MemoryError" and _memory_is_limited()


def _memory_is_limited() -> bool:
    """Can a small allocation fail? Where nothing limits it, Linux gives memory that is not there, and ends a process
    that uses it."""
    import resource

    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        if resource.getrlimit(limit)[0] != resource.RLIM_INFINITY:
            return True
    try:
        with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
            return file.read().strip() == "2"
    except OSError:
        return True


def _is_made_bare(error: BaseException) -> bool:
    """Is it what its class gives without arguments? A class of the script's may find words of its own."""
    if not error.args:
        return True
    if not hasattr(type(error).__init__, "__code__"):
        return False
    try:
        return type(error)().args == error.args
    except Exception:       # it wants arguments: it was not made without
        return False


class Guard:
    """Counts an adaptor's own failures. `on_error(site, text)` records one, `on_disarm()` is the end. `on_interrupt()`
    is called before an exception of the training's own is passed on: it may have landed between any two lines of
    ours."""

    def __init__(self, framework: str, on_error: Callable[[str], None] | None = None,
                 on_disarm: Callable[[], None] | None = None, on_interrupt: Callable[[], None] | None = None) -> None:
        self._framework = framework
        self.strict = os.environ.get("TDBG_STRICT", "") not in ("", "0")
        self.errors = 0
        self._failures: Counter[str] = Counter()    # by site
        self._on_error = on_error
        self._on_disarm = on_disarm
        self._on_interrupt = on_interrupt

    def failed(self, site: str, error: BaseException, alone: Callable[[], None] | None = None) -> None:
        """Call from an `except BaseException as error` block.

        :param alone: called to give up this site only; its failures then count for this site only
        """
        error = _as_it_was_set(error)
        if is_the_trainings_own(error):
            # The work that it interrupted is lost, but that is no failure of ours.
            self._record(f"{site}: cut short by the training's own exception: {error_text(error)}")
            if self._on_interrupt is not None:
                self._stop(self._on_interrupt)
            raise error
        if self.strict:
            raise error
        self._failures[site] += 1
        text = f"{site}: {error_text(error)}"
        if self._failures[site] == 1:
            self._say_first(text)
        self._record(text)
        if alone is not None:
            if self._failures[site] == MAX_ERRORS:
                self._record(f"{site}: given up after {MAX_ERRORS} failures")
                self._stop(alone)
            return
        self.errors += 1
        if self.errors == MAX_ERRORS and self._on_disarm:
            say(f"{MAX_ERRORS} failures of the {self._framework} adaptor: it stops capturing; training goes on")
            self._stop(self._on_disarm)

    def _say_first(self, text: str) -> None:
        said = len(self._failures)
        if said <= MAX_ERRORS:
            say(f"could not capture ({text}); training goes on")
            if os.environ.get("TDBG_TRACEBACK"):
                traceback.print_exc()
        if said == MAX_ERRORS:
            say("where else that happens is counted in the run, and not said here")

    @staticmethod
    def _stop(stop: Callable[[], None]) -> None:
        try:
            stop()
        except Exception as again:
            say(f"while it stopped: {again}")

    def _record(self, text: str) -> None:
        try:
            if self._on_error:
                self._on_error(text)
        except Exception as again:
            say(f"while recording a failure: {again}")
