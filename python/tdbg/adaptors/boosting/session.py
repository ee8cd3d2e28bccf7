"""The process's side of a boosting library: functions that train are replaced by ones that add a callback to the call,
and each call gets a run of its own. Knows no library.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import notes
from ..guard import Guard, say
from ..patches import Patches
from ..watch import ARMED, OFF
from .calls import Call
from .training import cause

if TYPE_CHECKING:
    from .training import Training

#: Trainings of one process that get a run of their own (a search over parameters may make thousands).
MAX_TRAININGS = 32


class Session:
    """What holds for the whole process: the patches, and which training is which run. It is ARMED until it is OFF: each
    training opens a run, and ends it.

    A library says in a subclass what it is called (`name`), which functions are replaced (`functions()`), what is
    added to a call of one of them (`prepare()`), and which arguments of several things that takes a look at
    (`looked_through`).
    """

    name = ""
    looked_through: tuple[str, ...] = ()
    accepts = None          # the library makes its models itself

    def __init__(self, open_run: Callable[..., Any], options: dict[str, Any]) -> None:
        self._open_run, self.options = open_run, dict(options)
        self.guard = Guard(self.name, self._lost, self.disarm)
        self.state = ARMED
        self._patches = Patches()
        self._lock = threading.Lock()
        self._count = 0
        self._first = self._latest = None       # runs
        self._wanted = ""                       # the directory that was asked for; set with the first run
        self._open: list[Training] = []    # trainings in progress
        self._names: list[str] = []        # of the functions that are replaced
        self._called: dict[str, str] = {}  # of these those that were called, each with what became of its last call
        self._unread = False               # a call whose arguments have no names was told of

    def functions(self) -> Iterable[tuple[str, list[Any]]]:
        """[(name, modules that export it, the defining one first)]."""
        raise NotImplementedError

    def prepare(self, name: str, given: dict[str, Any]) -> Training | None:
        """The `Training` of a call of the function `name`, whose bound arguments `given` it changes; None: not ours."""
        raise NotImplementedError

    def install(self) -> None:
        for name, owners in self.functions():
            owners = [o for o in owners if callable(getattr(o, name, None))]
            if not owners:
                say(f"{self.name} has no function {name!r} where it was: its trainings by it are not recorded")
                continue
            self._names.append(name)
            self._patches.replace(owners, name, functools.partial(self._wrapped, name=name))

    @staticmethod
    def when_over(session: Session) -> None:
        """What is to be called at the end of the watch: whoever began it says."""

    def watch(self, models: list[Any]) -> None:
        """Whatever trains from here on."""

    def disarm(self) -> None:
        """Takes the patches away; trainings in progress are recorded to their end."""
        self.state = OFF
        self._patches.undo()

    def finish(self, reason: str, message: str = "") -> None:
        """No training that begins later is recorded. One that is in progress was not the watch's to complete: whatever
        the reason, its run ends as `closed`. Idempotent."""
        self.disarm()
        for training in list(self._open):
            self._seal(training, "closed", message)
        self.when_over(self)

    def at_exit(self) -> None:
        """Trainings have ended by themselves. Where there was none, the launcher is told what was seen instead."""
        if self._first is None:
            try:
                notes.leave(self.what_was_seen(), instead=bool(self._called))   # who trains knows more
            except Exception:       # a failure to leave the note must not disturb the program
                pass

    def what_was_seen(self) -> str:
        """Why the process recorded nothing."""
        if self._called:
            return "; ".join(f"{self.name}.{name} was called, {what}" for name, what in self._called.items())
        functions = " or ".join(f"{self.name}.{name}" for name in self._names)
        return f"{self.name} was imported, and nothing was trained: there was no call of {functions}"

    @property
    def run(self) -> Any:
        """Of the latest training."""
        return self._latest

    def number(self) -> int | None:
        """Takes a number for a training call that is about to begin; None if this process has had enough of them."""
        with self._lock:
            self._count += 1
            if self._count == MAX_TRAININGS + 1:
                say(f"{MAX_TRAININGS} trainings of this process are recorded; later ones are not")
            return self._count if self._count <= MAX_TRAININGS else None

    def open_run(self, **given: Any) -> Any:
        """The next run: the first where the options say, every later one beside it and under the same plan."""
        with self._lock:
            options = {**given, **self.options}
            if self._first is not None:
                # Beside what was asked for, not beside what this process got: a search in parallel processes numbers
                # its trainings x, x-2, x-3, ... and not x-2-2. The attempt says that it is one start of the job: what
                # another training of it has taken, or ended in, is passed over.
                options.update(directory=self._wanted, first_sibling=2, attempt=self._first.attempt,
                               plan_json=self._first.plan())
            else:
                self._wanted = os.path.abspath(options.get("directory") or os.environ.get("TDBG_RUN") or ".")
            try:
                run = self._open_run(**options)
            except Exception as error:
                self._called = dict.fromkeys(self._called, f"and its run could not be opened: {error}")
                raise
            self._first = self._first or run
            self._latest = run
            return run

    def _wrapped(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def train(*args: Any, **kwargs: Any) -> Any:
            if self.state is OFF:
                return original(*args, **kwargs)
            self._called[name] = "and tdbg saw no round of it"
            call = Call.of(signature, args, kwargs)
            if call is None:
                result = original(*args, **kwargs)      # where the call is wrong, this says how
                self._could_not_read(name)
                return result
            self._listed(call)
            try:
                training = self.prepare(name, call.given)
            except BaseException as error:
                self.guard.failed("the beginning of a training", error)
                training = None
            args, kwargs = call.arguments()
            if training is None:
                return original(*args, **kwargs)
            self._open.append(training)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                text = f"{type(error).__name__}: {cause(error)}"
                self._called[name] = f"and raised {text}"
                self._ended(training, "exception", text)
                raise
            self._ended(training, "completed")
            return result

        return train

    def _listed(self, call: Call) -> None:
        """Puts lists for iterators of which we look through what the training looks through. What such an iterator
        raises is the training's own."""
        for name in self.looked_through:
            if isinstance(call.given.get(name), Iterator):
                call.given[name] = list(call.given[name])

    def _could_not_read(self, name: str) -> None:
        """Of a call that the library accepted."""
        self._called[name] = ("which something has replaced by a function that does not name its arguments: tdbg "
                              "could not add its callback")
        if not self._unread:
            self._unread = True
            say(f"a training is not recorded: {self.name}.{name} was called, {self._called[name]}")

    def _ended(self, training: Training, reason: str, message: str = "") -> None:
        self._open.remove(training)
        self._seal(training, reason, message)

    def _seal(self, training: Training, reason: str, message: str) -> None:
        try:
            training.finish(reason, message)
        except BaseException as error:
            self.guard.failed("the end of a training", error)

    def forked(self) -> None:
        """In the child of a fork: it is not the run's worker. One that was made before there was a run may still
        train."""
        for training in self._open:
            training.abandon()
        if self._first is not None:
            self.disarm()

    def _lost(self, text: str) -> None:
        if self._latest is not None:
            self._latest.count_dropped("adaptor_error", 1, text)
