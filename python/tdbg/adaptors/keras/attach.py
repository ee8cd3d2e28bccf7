"""Attaching to Keras: by the launcher's environment (`arm`), or from the script (`attach`)."""

import atexit
import os

from ..attached import AttachedRun
from ..ending import ARMED, OFF, OPEN
from ..guard import say
from ..plan import resolve_plan
from .session import Session

_session = None       # this process's; a second one would record everything twice


def _open_run(**options):
    from ..._capture import Run
    return Run.open(**options)


def arm(open_run=None, **options):
    """Watches whatever trains with Keras in this process. Nothing is written before it does. Idempotent.

    :param open_run: called with Run.open's keyword arguments at the first training event; default: Run.open.
    """
    global _session
    if _session is None or _session.state is OFF:
        _session = _start(Session(open_run or _open_run, options))
    return _session


def watching():
    """This process's session, begun if there was none; None when its watch is over."""
    session = arm() if _session is None else _session
    return None if session.state is OFF else session


def _start(session):
    session.install()
    if session.backend is not None and session.backend.name == "tensorflow":
        from .. import tensorflow
        tensorflow.arm()
        session.on_disarm.append(tensorflow.disarm)
    atexit.register(session.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=session.forked)
    return session


def stand_down(why):
    """A hook that the script made watches from here on: what was armed without it must not record the same again."""
    if _session is not None and _session.state is OPEN:
        _session.finish("closed", why)
    elif _session is not None:
        _session.disarm()


def attach(model=None, config=None, dir=None, open_run=None, **options):
    """Records this training; returns an `Attached`. Raises on bad configuration, never later.

    :param model: the Keras model (or list of models) to watch; None: every model that is trained.
    :param config: a dict (the schema of docs/configuration.md), a path of a YAML or JSON file, or None for the
                     defaults: statistics of weights, gradients and losses at every step.
    :param dir: the run directory; default: $TDBG_RUN, else a fresh one under tdbg-runs/.
    :param options: passed on to Run.open (rank, world_size, step_base).

    Under `tdbg run` the launcher's run and plan are used and `config` is left alone, unless `dir` names another run.
    A model that has trained already is watched from its next call of `fit` or `train_on_batch` on.
    """
    global _session
    launched = bool(os.environ.get("TDBG_RUN")) and dir is None
    models = [] if model is None else list(model) if isinstance(model, (list, tuple)) else [model]
    if _session is not None and _session.state is OPEN:
        if dir is None or os.path.abspath(dir) == os.path.abspath(_session.run.directory):
            return _take_over(_session, models)
        _session.finish("closed", "another run was attached")
    if launched:
        if config is not None:
            say("attach: the run and its configuration are those of `tdbg run`; `config` is not used")
        return _take_over(arm(open_run, **options), models)

    if _session is not None and _session.state is ARMED:
        _session.disarm()
    directory, plan = (dir, "") if open_run is not None else resolve_plan(dir, config)
    options.setdefault("directory", directory or "")
    if plan:
        options.setdefault("plan_json", plan)
    _session = _start(Session(open_run or _open_run, options))
    return _take_over(_session, models)


def _take_over(session, models):
    for model in models:
        session.only(model)
    session.catch_up()
    return Attached(session)


class Attached(AttachedRun):
    """A training under watch, in the script's hands. A context manager: leaving it ends the run."""

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (of the backend, or NumPy's) in the open step, or the next one, where the plan keeps
        `collection`. Not from inside a function that is being traced: there are no values there."""
        self._guarded(self._session.record_value, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._guarded(self._session.record_scalar, name, value, collection)
