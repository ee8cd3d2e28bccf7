"""The life of a watch over one training, whatever the framework: how its run is opened, and how it ends, with the
process, in a forked child, after too many failures.

    ARMED  the framework is patched, nothing is on disk
    OPEN   the first training event opened the run
    OFF    ended, disarmed, or the child of a fork
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..modes import ModeKeys
from ..resume import BEHIND, Beginning, beginning, earlier_steps
from ..words import error_text
from . import notes
from .guard import Guard, is_the_trainings_own, say
from .patches import Patches
from .plan import write_earlier_steps
from .waiting import Waiting

ARMED, OPEN, OFF = "armed", "open", "off"


class Watch:
    """An adaptor's Session is one. It says `adaptor()`, its name and version in the run; `rank()`, (rank, world size);
    `_opened()`, called once there are `run` and `plan`; `_last_words()`: closes what is open and records the
    final weights; `disarm()`.

    :param framework: its name in messages
    :param open_run: called once, with the keyword arguments of Run.open; what it raises switches us off.
    :param options: those of these arguments that the script gave
    """

    def __init__(self, framework: str, open_run: Any, options: dict[str, Any] | None = None) -> None:
        self.framework, self.open_run, self.options = framework, open_run, dict(options or {})
        self.state = ARMED
        self.run: Any = None
        self.plan: dict[str, Any] = {}
        self.guard = Guard(framework, self._adaptor_error, self.disarm, self.interrupted)
        self.patches = Patches()
        self.waiting = Waiting(self.lost)
        # a training, as opposed to an evaluation, was seen in the thread that has the run
        self.has_trained = True
        self._thread: int | None = None    # the thread that opened the run, or took it over
        self._opening = threading.RLock()
        self._ended = False         # the run has ended, or is not ours to end
        self.exits = False          # the process is about to end
        self.failed = False         # the script ended with an exception

    @property
    def listening(self) -> bool:
        return self.state is not OFF

    def elsewhere(self, trains: bool = False) -> bool:
        """True in any thread but the training's. The training moves to the calling thread if its own has ended, or,
        with `trains` (the caller is in a step that trains), if its own thread only evaluated."""
        return self._thread is not None and threading.get_ident() != self._thread and not self._moves_here(trains)

    def _moves_here(self, trains: bool) -> bool:
        with self._opening:
            if self._thread in sys._current_frames() and (self.has_trained or not trains):
                return False
            self._thread = threading.get_ident()
            return True

    def trains_elsewhere(self) -> bool:
        """`elsewhere` for a step that trains: if it is not recorded here, it is counted as dropped."""
        if not self.elsewhere(trains=True):
            return False
        self.lost("unsupported", 1, "steps of a training in another thread than the one that is recorded")
        return True

    def lost(self, cause: str, tensors: int, detail: str) -> None:
        if self.run is not None:
            self.run.count_dropped(cause, tensors, detail)

    def guarded(self, site: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs our own work inside the training; its exceptions go no further."""
        try:
            return function(*arguments)
        except BaseException as error:
            self.guard.failed(site, error)
            return None

    def may_open(self) -> bool:
        """Could this process be the one that trains?"""
        return True

    def ensure_open(self) -> bool:
        """Opens the run, at the first training event; False where there is none, or none any more."""
        if self.state is ARMED and self.may_open():
            with self._opening:             # of several threads that begin at once one is the training
                if self.state is ARMED:
                    try:
                        self._open()
                    except BaseException as error:
                        if is_the_trainings_own(error):
                            self.state = ARMED          # the next event goes on where this one was cut short
                            raise
                        self.disarm()
                        if self.guard.strict:
                            raise
                        say(f"nothing is captured: {error}; training goes on")
        return self.state is OPEN

    def _open(self) -> None:
        rank, world_size = self.rank()
        self._thread = threading.get_ident()
        if self.run is None:
            begins, found, who = self._beginning(rank)
            self.run = self.open_run(**{"adaptor": self.adaptor(), "command": list(sys.orig_argv), "rank": rank,
                                        "world_size": world_size, **begins, **self.options})
            if rank == 0 and (words := self._begins_at(found, who)):
                say(words)
        self.plan = json.loads(self.run.plan() or "{}")
        self.state = OPEN
        self._opened()
        if 0 <= self.plan.get("include_workers", -1) != rank:
            # Merely abandoned, it would look like a living worker that has still to write: rules would wait for it.
            self._ended = True
            self.run.end("completed", "the plan captures another worker alone")
            self.disarm()

    def optimizer_count(self) -> tuple[int, str] | None:
        """(how often the optimizer has been stepped, its name), of the one that stepped most often, as its own state
        says; None: it keeps no count, or is not known yet. Asked once, before the run is opened."""
        return None

    def begins_with_evaluation(self) -> bool:
        """Does the run begin with a step that does not train?"""
        return False

    def _beginning(self, rank: int) -> tuple[dict[str, Any], Beginning, str]:
        """(of Run.open's arguments those that say where this attempt begins, that, who says so). A guess that fails is
        no reason not to record."""
        if "step_base" in self.options:     # the script's word, in attach
            return {"step_base_from": "script"}, Beginning(), ""
        try:
            directory = os.fspath(self.options.get("directory") or "")
            found, who, steps = beginning(self.optimizer_count, self.begins_with_evaluation(),
                                          lambda: earlier_steps(directory, rank, write_earlier_steps))
        except BaseException as error:
            self.guard.failed("the step at which this attempt begins", error)
            return {}, Beginning(), ""
        given: dict[str, Any] = {} if steps is None else {"optimizer_step": steps}
        if found.source:
            given |= {"step_base": found.step, "step_base_from": found.source,
                      "mode_step_bases": [(ModeKeys[mode].value, step) for mode, step in found.modes.items()]}
        return given, found, who

    def _begins_at(self, stated: Beginning, who: str) -> str:
        """A line for people; "": there is nothing to say, or it was said that another rank began elsewhere."""
        attempt, first = int(self.run.attempt), int(self.run.global_step) + 1
        if stated.source:
            return stated.words(attempt, who) if first == stated.step and (attempt or first) else ""
        if attempt == 0 or first == 0 or self.run.step_base_from != BEHIND:
            return ""
        return (f"attempt {self.run.attempt} begins at step {first}, behind the steps of the attempts before it: "
                f"where it goes on is not stated (tdbg.resume_step, metadata.json beside the checkpoints, an optimizer "
                f"that counts its steps)")

    @staticmethod
    def when_over(session: Any) -> None:
        """Sets what is called when everything is sealed."""

    def begin_end(self) -> bool:
        """From here on, values belong to the end of the run; values that wait for a step are written now.
        :return: are the final weights to be recorded, too?
        """
        final_weights = bool(self.plan.get("record_end", True))
        if final_weights or self.waiting.puts:
            self.run.begin_end()
            self.waiting.write()
        return final_weights

    def finish(self, reason: str, message: str = "") -> None:
        """Closes what is open, records the final weights, seals the run. Idempotent."""
        self.failed = reason == "exception"
        if self.state is OPEN and not self._ended:
            try:
                self._last_words()
            except BaseException as error:
                self.guard.failed("the end of the run", error)
        elif self.run is not None and not self._ended:
            try:
                self._words_under_way()
            except BaseException as error:
                self.guard.failed("the end of the run", error)
        self.disarm()
        if self.run is not None and not self._ended:    # disarmed by failures, it has an end all the same
            self._ended = True
            self.run.end(reason, message)
        self.when_over(self)

    def forked(self) -> None:
        """Called in the child of a fork, which is not the run's worker. If no run was opened, it may still train."""
        self._opening = threading.RLock()           # a thread that is not in the child may have held it
        if self.run is not None:
            if not self._ended:
                self._ended = True
                self.run.abandon()
            self.state = OFF

    def what_was_seen(self) -> str | None:
        """Why the process recorded nothing, for a message at its end; None: all that is known is that it did not
        train."""
        return None

    def _leave_word(self) -> None:
        word = self.what_was_seen()
        if word is not None:
            notes.leave(word)
        else:       # an adaptor of what it trains with, where there is one, knows more
            notes.leave(f"{self.framework} was imported, and no step of a training was seen (an evaluation is no "
                        f"training)", instead=False)

    def at_exit(self) -> None:
        if self.state is ARMED and self.run is None:
            try:
                self._leave_word()
            except Exception:       # a failure to leave the note must not disturb the program
                pass
        reason, message = "completed", ""
        # The interpreter leaves an uncaught exception here before atexit runs, whoever replaced sys.excepthook.
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            reason, message = "exception", error_text(error)
        self.exits = True
        try:
            self.finish(reason, message)
        except Exception as failure:
            say(f"while ending the run: {failure}")

    def interrupted(self) -> None:
        """An exception of the training's own has cut our work short, and goes on to the training."""

    # What an adaptor's Session has ------------------------------------------------------------------------------

    def adaptor(self) -> str:
        raise NotImplementedError

    def rank(self) -> tuple[int, int]:
        raise NotImplementedError

    def _opened(self) -> None:
        raise NotImplementedError

    def _last_words(self) -> None:
        raise NotImplementedError

    def _words_under_way(self) -> None:
        """In place of `_last_words` where failures have disarmed us: of steps that are over nothing is lost."""

    def disarm(self) -> None:
        raise NotImplementedError

    def _adaptor_error(self, text: str) -> None:
        self.lost("adaptor_error", 1, text)
