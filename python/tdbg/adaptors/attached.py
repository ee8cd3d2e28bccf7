"""What `attach` returns."""

from .guard import say
from .steps import EVAL, PREDICT, TRAIN

_MODES = {"TRAIN": TRAIN, "EVAL": EVAL, "PREDICT": PREDICT}


class AttachedRun:
    """What is under watch, in the script's hands. A context manager: leaving it ends the watch, and the run with it."""

    def __init__(self, session):
        self._session = session

    def __repr__(self):
        if self.directory is None:
            return "<tdbg: waiting for the first training event>"
        return f"<tdbg run {self.directory}: step {self.global_step}>"

    @property
    def directory(self):
        """The run directory (of the latest training, where each has its own); None before the first training event."""
        run = self._session.run
        return None if run is None else run.directory

    @property
    def global_step(self):
        run = self._session.run
        return -1 if run is None else run.global_step

    def close(self, reason="completed", message=""):
        """Ends the watch: final weights, everything sealed. Later calls do nothing."""
        self._session.finish(reason, message)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.close()
        else:
            self.close("exception", f"{kind.__name__}: {value}")
        return False


class Attached(AttachedRun):
    """Where a process has one run: the script may add to it. Its session has `record_value(name, tensor, collection)` and
    `record_scalar(name, value, collection)`. A failure to record is ours: counted and said, never raised."""

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (the framework's, or NumPy's) in the open step, or the next one, where the plan keeps
        `collection`. Not from inside a function that is being traced: there are no values there."""
        if self._session.ensure_open():
            self._session.guarded(f"recording {name}", self._session.record_value, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        if self._session.ensure_open():
            self._session.guarded(f"recording {name}", self._session.record_scalar, name, value, collection)


def step_ends(session):
    """The script says that its step ends here."""
    ends = getattr(session, "step_ends", None)
    if ends is not None:
        session.guarded("tdbg.step()", ends)
    elif not getattr(session, "_said_no_step", False):
        session._said_no_step = True
        say("step: what a step is, is this framework's own to say; tdbg.step() is for loops of torch")


class AttachedLoop(Attached):
    """Where the loop is the script's own."""

    def step(self):
        """The step of the loop ends here: tdbg.step()."""
        step_ends(self._session)

    def set_mode(self, mode):
        """The mode of the steps to come: "eval", "predict" (of forwards that train nothing), "train" (torch, where steps
        are forwards); None: as the adaptor sees it."""
        name = getattr(mode, "name", str(mode)).upper()
        if mode is not None and name not in _MODES:
            raise ValueError(f"no mode {mode!r}: one of {', '.join(_MODES)}, or None")
        self._session.mode_wanted = None if mode is None else _MODES[name]
