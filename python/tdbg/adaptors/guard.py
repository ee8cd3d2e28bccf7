"""Keeps the debugger's mistakes out of training.

Every function that a framework calls (hooks, patched functions) runs its own work through a `Guard`.
An exception there is counted, said once on stderr and never reaches the training script. After
`MAX_ERRORS` of them the adaptor disarms itself; a place that can be given up alone (one module's outputs) is,
after as many of its own, and the rest goes on. With TDBG_STRICT=1 (tests, people debugging the
debugger) the exception is raised instead. So is one that is the training's own: its signal handlers
(a timeout, DataLoader's word that a worker was killed) run wherever the interpreter happens to be, in our code too.
"""

import os
import signal
import sys
import traceback
from collections import Counter

from ..words import printable

MAX_ERRORS = 10


def say(message):
    """One line on stderr, marked as ours. Never raises: stderr may be closed."""
    try:
        sys.stderr.write("tdbg: " + printable(message) + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def _code_of(handler):
    """The code that runs when a handler is called; None where that is not Python's."""
    if not callable(handler):       # SIG_DFL and SIG_IGN, whose class is called to make them; None
        return None
    handler = getattr(handler, "func", handler)                 # functools.partial
    if not hasattr(handler, "__code__"):
        handler = getattr(type(handler), "__call__", None)      # an object that can be called
    return getattr(handler, "__code__", None)                   # a method has its function's


def is_the_trainings_own(error):
    """Did a signal handler raise it? Then the training waits for it, whatever it interrupted."""
    handlers = {id(code) for code in map(_code_of, map(signal.getsignal, signal.valid_signals())) if code is not None}
    at = error.__traceback__
    while at is not None:
        if id(at.tb_frame.f_code) in handlers:
            return True
        at = at.tb_next
    return False


class Guard:
    """Counts an adaptor's own failures. `on_error(site, text)` records one, `on_disarm()` is the end."""

    def __init__(self, framework, on_error=None, on_disarm=None):
        self._framework = framework
        self.strict = os.environ.get("TDBG_STRICT", "") not in ("", "0")
        self.errors = 0
        self._failures = Counter()      # by site
        self._on_error = on_error
        self._on_disarm = on_disarm

    def failed(self, site, error, alone=None):
        """Call from an `except Exception as error` block.

        :param alone: gives this site up and leaves the others, where that can be: its failures count for it only
        """
        if self.strict:
            raise error
        if is_the_trainings_own(error):
            # What it cut short is lost all the same, and is no failure of ours.
            self._record(f"{site}: cut short by the training's signal handler: {type(error).__name__}: {error}")
            raise error
        self._failures[site] += 1
        text = f"{site}: {type(error).__name__}: {error}"
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

    def _say_first(self, text):
        said = len(self._failures)
        if said <= MAX_ERRORS:
            say(f"could not capture ({text}); training goes on")
            if os.environ.get("TDBG_TRACEBACK"):
                traceback.print_exc()
        if said == MAX_ERRORS:
            say("where else that happens is counted in the run, and not said here")

    @staticmethod
    def _stop(stop):
        try:
            stop()
        except Exception as again:
            say(f"while it stopped: {again}")

    def _record(self, text):
        try:
            if self._on_error:
                self._on_error(text)
        except Exception as again:
            say(f"while recording a failure: {again}")
