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

from ..guard import Guard, say
from ..patches import Patches
from ..watch import ARMED, OFF
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
        """Trainings have ended by themselves."""

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
            run = self._open_run(**options)
            self._first = self._first or run
            self._latest = run
            return run

    def _wrapped(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = self._bound(signature, args, kwargs)
            if bound is None:
                return original(*args, **kwargs)
            try:
                training = self.prepare(name, bound.arguments)
            except BaseException as error:
                self.guard.failed("the beginning of a training", error)
                training = None
            if training is None:
                return original(*bound.args, **bound.kwargs)
            self._open.append(training)
            try:
                result = original(*bound.args, **bound.kwargs)
            except BaseException as error:
                self._ended(training, "exception", f"{type(error).__name__}: {cause(error)}")
                raise
            self._ended(training, "completed")
            return result

        return call

    def _bound(self, signature: inspect.Signature, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
        """The call's arguments, with lists for iterators of which we look through what the training looks through. What
        such an iterator raises is the training's own. None: the call is to go through as it came."""
        if self.state is OFF:
            return None
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return None                 # the original says what is wrong with the call
        for name in self.looked_through:
            if isinstance(bound.arguments.get(name), Iterator):
                bound.arguments[name] = list(bound.arguments[name])
        return bound

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
