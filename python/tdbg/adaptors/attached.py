"""What `attach` returns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from ..words import error_text
from .guard import say
from .steps import EVAL, PREDICT, TRAIN

_MODES = {"TRAIN": TRAIN, "EVAL": EVAL, "PREDICT": PREDICT}


class AttachedRun:
    """What a script gets to control a watch. A context manager: leaving it ends the watch and the run."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __repr__(self) -> str:
        if self.directory is None:
            return "<tdbg: waiting for the first training event>"
        return f"<tdbg run {self.directory}: step {self.global_step}>"

    @property
    def directory(self) -> str | None:
        """The run directory (the latest training's, if each has its own); None before the first training event."""
        run = self._session.run
        return None if run is None else run.directory

    @property
    def global_step(self) -> int:
        run = self._session.run
        return -1 if run is None else run.global_step

    def close(self, reason: str = "completed", message: str = "") -> None:
        """Ends the watch: final weights, everything sealed. Later calls do nothing."""
        self._session.finish(reason, message)

    def __enter__(self) -> AttachedRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> Literal[False]:
        # sys.exit() is the end of a script whose training went well.
        if kind is None or isinstance(value, SystemExit) and value.code in (None, 0):
            self.close()
        else:
            self.close("exception", error_text(value) if value is not None else kind.__name__)
        return False


class Attached(AttachedRun):
    """Where a process has one run: the script may add to it. Its session has `record_value(name, tensor, collection)`
    and `record_scalar(name, value, collection)`. A failure to record is ours: counted and said, never raised; a name
    that fails again and again is given up, and nothing else."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._given_up: set[str] = set()

    def record(self, name: str, tensor: Any, collection: str = "default") -> None:
        """Records `tensor` (the framework's, or NumPy's) in the open step, or the next one, where the plan keeps
        `collection`. Not from inside a function that is being traced: there are no values there."""
        self._put(self._session.record_value, name, tensor, collection)

    def scalar(self, name: str, value: float, collection: str = "") -> None:
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._put(self._session.record_scalar, name, value, collection)

    def _put(self, put: Callable[[str, Any, str], None], name: str, value: Any, collection: str) -> None:
        if name in self._given_up or not self._session.ensure_open():
            return
        try:
            put(name, value, collection)
        except BaseException as error:
            self._session.guard.failed(f"recording {name}", error, functools.partial(self._given_up.add, name))


def step_ends(session: Any) -> None:
    """Ends the script's step here."""
    ends = getattr(session, "step_ends", None)
    if ends is not None:
        session.guarded("tdbg.step()", ends)
    elif not getattr(session, "_said_no_step", False):
        session._said_no_step = True
        say("step: what a step is, is this framework's own to say; tdbg.step() is for loops of torch")


class AttachedLoop(Attached):
    """Where the loop is the script's own."""

    def step(self) -> None:
        """The step of the loop ends here: tdbg.step()."""
        step_ends(self._session)

    def set_mode(self, mode: Any) -> None:
        """The mode of the steps to come: "eval", "predict" (of forwards that train nothing), "train" (torch, where
        steps are forwards); None: as the adaptor sees it."""
        name = getattr(mode, "name", str(mode)).upper()
        if mode is not None and name not in _MODES:
            raise ValueError(f"no mode {mode!r}: one of {', '.join(_MODES)}, or None")
        self._session.mode_wanted = None if mode is None else _MODES[name]
