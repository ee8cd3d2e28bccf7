"""The life of a watch over one training, whatever the framework: how its run is opened, and how it ends, with the process,
in a forked child, after too many failures.

    ARMED  the framework is patched, nothing is on disk
    OPEN   the first training event opened the run
    OFF    ended, disarmed, or the child of a fork
"""

import json
import os
import sys
import threading
from typing import Any

from .guard import Guard, is_the_trainings_own, say
from .patches import Patches
from .waiting import Waiting

ARMED, OPEN, OFF = "armed", "open", "off"


def multiprocessing_child():
    """Is it a process that another Python started to work for it (a data loader's worker)?"""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


class Watch:
    """An adaptor's Session is one. It says `adaptor()`, its name and version in the run; `rank()`, (rank, world size);
    `_opened()`, what follows once there are `run` and `plan`; `_last_words()`: closes what is open and records the final
    weights; `disarm()`.

    :param framework: what failures are said to be of
    :param open_run: called once, with the keyword arguments of Run.open; what it raises switches us off.
    :param options: of those arguments, the ones that the script gave
    """

    def __init__(self, framework: str, open_run: Any, options: dict[str, Any] | None = None) -> None:
        self.open_run, self.options = open_run, dict(options or {})
        self.state = ARMED
        self.run: Any = None
        self.plan: dict[str, Any] = {}
        self.guard = Guard(framework, self._adaptor_error, self.disarm)
        self.patches = Patches()
        self.waiting = Waiting(self.lost)
        self.has_trained = True         # a training, as opposed to an evaluation, was seen in the thread that has the run
        self._thread = None         # the thread that opened the run, or took it over
        self._opening = threading.RLock()
        self._ended = False         # the run has ended, or is not ours to end

    @property
    def listening(self):
        return self.state is not OFF

    def elsewhere(self, trains=False):
        """True in any thread but the training's. The training moves to the calling thread if its own has ended, or, with
        `trains` (the caller is in a step that trains), if its own thread only evaluated."""
        return self._thread is not None and threading.get_ident() != self._thread and not self._moves_here(trains)

    def _moves_here(self, trains):
        with self._opening:
            if self._thread in sys._current_frames() and (self.has_trained or not trains):
                return False
            self._thread = threading.get_ident()
            return True

    def trains_elsewhere(self):
        """`elsewhere` for a step that trains: if it is not recorded here, it is counted as dropped."""
        if not self.elsewhere(trains=True):
            return False
        self.lost("unsupported", 1, "steps of a training in another thread than the one that is recorded")
        return True

    def lost(self, cause, tensors, detail):
        if self.run is not None:
            self.run.count_dropped(cause, tensors, detail)

    def guarded(self, site, function, *arguments):
        """Our own work inside the training's: what goes wrong in it stays here."""
        try:
            return function(*arguments)
        except Exception as error:
            self.guard.failed(site, error)
            return None

    def may_open(self):
        """Could this process be the one that trains?"""
        return True

    def ensure_open(self):
        """Opens the run, at the first training event; False where there is none, or none any more."""
        if self.run is None and self.state is ARMED and self.may_open():
            with self._opening:             # of several threads that begin at once one is the training
                if self.run is None and self.state is ARMED:
                    try:
                        self._open()
                    except Exception as error:
                        self.disarm()
                        if self.guard.strict or is_the_trainings_own(error):
                            raise
                        say(f"nothing is captured: {error}; training goes on")
        return self.state is OPEN

    def _open(self):
        rank, world_size = self.rank()
        self._thread = threading.get_ident()
        self.run = self.open_run(**{"adaptor": self.adaptor(), "command": list(sys.orig_argv), "rank": rank,
                                    "world_size": world_size, **self.options})
        self.plan = json.loads(self.run.plan() or "{}")
        self.state = OPEN
        self._opened()
        if 0 <= self.plan.get("include_workers", -1) != rank:
            # Abandoned, it would be taken for a worker that lives and has still to write: nobody would judge.
            self._ended = True
            self.run.end("completed", "the plan captures another worker alone")
            self.disarm()

    @staticmethod
    def when_over(session):
        """What is to be called when everything is sealed: whoever began the watch says."""

    def begin_end(self):
        """What is put from here on belongs to the end of the run; what waits for a step is.
        :return: are the final weights to be put, too?
        """
        final_weights = self.plan.get("record_end", True)
        if final_weights or self.waiting.puts:
            self.run.begin_end()
            self.waiting.write()
        return final_weights

    def finish(self, reason, message=""):
        """Closes what is open, records the final weights, seals the run. Idempotent."""
        if self.state is OPEN and not self._ended:
            try:
                self._last_words()
            except Exception as error:
                self.guard.failed("the end of the run", error)
        self.disarm()
        if self.run is not None and not self._ended:    # disarmed by failures, it has an end all the same
            self._ended = True
            self.run.end(reason, message)
        self.when_over(self)

    def forked(self):
        """In the child of a fork: it is not the run's worker. One that has not opened may still train."""
        self._opening = threading.RLock()           # a thread that is not in the child may have held it
        if self.run is not None:
            if not self._ended:
                self._ended = True
                self.run.abandon()
            self.state = OFF

    def what_was_seen(self):
        """Why a process that ends has recorded nothing; None: there is nothing to say of it."""
        return None

    def _leave_word(self):
        """For the launcher, which says why nothing was captured: the process is over, and had no run to say it in."""
        run, attempt = os.environ.get("TDBG_RUN"), os.environ.get("TDBG_ATTEMPT", "0")
        word = self.what_was_seen() if run and not multiprocessing_child() else None
        if word is None:
            return
        place = os.path.join(run, attempt)
        if os.path.isdir(place) and not os.path.islink(place):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            mode = 0o600 | os.stat(run).st_mode & 0o066     # for whom the run is
            with os.fdopen(os.open(os.path.join(place, f"seen_{os.getpid()}.log"), flags, mode), "wb") as file:
                file.write(word.encode() + b"\n")

    def at_exit(self):
        if self.state is ARMED and self.run is None:
            try:
                self._leave_word()
            except Exception:       # a word that nobody may hear is none of the program's business
                pass
        reason, message = "completed", ""
        # The interpreter leaves an uncaught exception here before atexit runs, whoever replaced sys.excepthook.
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            reason, message = "exception", f"{type(error).__name__}: {error}"
        try:
            self.finish(reason, message)
        except Exception as failure:
            say(f"while ending the run: {failure}")

    def _adaptor_error(self, text):
        self.lost("adaptor_error", 1, text)
