"""Attaching to a Gluon training: by the launcher's environment (`arm`), or from the script (`attach`)."""

import atexit
import os

import numpy as np
from mxnet.gluon import Block
from mxnet.ndarray import NDArray

from ..attached import AttachedRun
from ..ending import ARMED, OFF, OPEN
from ..guard import say
from ..plan import resolve_plan
from ..steps import EVAL, PREDICT, TRAIN
from . import arrays
from .blocks import NOT_WANTED
from .session import Session

_MODES = {"TRAIN": TRAIN, "EVAL": EVAL, "PREDICT": PREDICT}

_session = None       # this process's; a second one would record everything twice


def _open_run(**options):
    from ..._capture import Run
    return Run.open(**options)


def arm(open_run=None, **options):
    """Watches whatever trains with Gluon in this process. Nothing is written before it does. Idempotent.

    :param open_run: called with Run.open's keyword arguments at the first training event; default: Run.open.
    """
    global _session
    if _session is None or _session.state is OFF:
        _session = _start(Session(open_run or _open_run, options))
    return _session


def _start(session):
    session.install()
    atexit.register(session.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=session.forked)
    return session


def stand_down(why):
    """A hook that the script made watches from here on: what was armed without it must not record the same again."""
    global _session
    if _session is not None and _session.state is OPEN:
        _session.finish("closed", why)
    elif _session is not None:
        _session.disarm()


def attach(model=None, config=None, dir=None, open_run=None, **options):
    """Records this training; returns an `Attached`. Raises on bad configuration, never later.

    :param model: the block (or list of blocks) to watch; None: whatever a Trainer trains.
    :param config: a dict (the schema of docs/configuration.md), a path of a YAML or JSON file, or None for the
                     defaults: statistics of weights, gradients and losses at every step.
    :param dir: the run directory; default: $TDBG_RUN, else a fresh one under tdbg-runs/.
    :param options: passed on to Run.open (rank, world_size, step_base).

    Under `tdbg run` the launcher's run and plan are used and `config` is left alone, unless `dir` names another run.
    Call it before the first step; before the first call of a hybridized model, if the blocks inside it are wanted.
    """
    global _session
    launched = bool(os.environ.get("TDBG_RUN")) and dir is None
    models = [] if model is None else list(model) if isinstance(model, (list, tuple)) else [model]
    for block in models:
        if not isinstance(block, Block):
            raise TypeError(f"attach(model=...): a gluon.Block is accepted, or a list of them, not {type(block).__name__}")
    if _session is not None and _session.state is OPEN:
        if dir is not None and os.path.abspath(dir) != os.path.abspath(_session.run.directory):
            _session.finish("closed", "another run was attached")
        else:
            return _take_over(_session, models)
    if launched:
        if config is not None:
            say("attach: the run and its configuration are those of `tdbg run`; `config` is not used")
        session = _session
        if session is None or session.state is OFF:
            session = _session = _start(Session(open_run or _open_run, options))
        return _take_over(session, models)

    if _session is not None and _session.state is ARMED:
        _session.disarm()
    directory, plan = (dir, "") if open_run is not None else resolve_plan(dir, config)
    options.setdefault("directory", directory or "")
    if plan:
        options.setdefault("plan_json", plan)
    _session = _start(Session(open_run or _open_run, options, explicit=bool(models)))
    return _take_over(_session, models)


def _take_over(session, models):
    if models:
        session.explicit = True
    for model in models:
        session.add_model(model)
    return Attached(session)


class Attached(AttachedRun):
    """A training under watch, in the script's hands. A context manager: leaving it ends the run."""

    def __init__(self, session):
        super().__init__(session)
        self._ids = {}

    def set_mode(self, mode):
        """The mode of the evaluations to come: "eval", "predict"; None: as the adaptor sees it."""
        name = getattr(mode, "name", str(mode)).upper()
        if mode is not None and name not in _MODES:
            raise ValueError(f"no mode {mode!r}: one of {', '.join(_MODES)}, or None")
        self._session.mode_wanted = None if mode is None else _MODES[name]

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (NDArray or NumPy) in the open step, or the next one, where the plan keeps `collection`."""
        self._guarded(self._record, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._guarded(self._scalar, name, value, collection)

    def _guarded(self, function, name, *arguments):
        if self._session.ensure_open():
            self._session.guarded(f"recording {name}", function, name, *arguments)

    def _record(self, name, tensor, collection):
        session = self._session
        array = arrays.values(tensor) if isinstance(tensor, NDArray) else np.array(tensor, order="C")
        key = (name, array.dtype.str, array.ndim)
        ident = self._ids.get(key)
        if ident is None:
            ident = self._ids[key] = session.run.define(name, name, "", "", array.dtype.name, list(array.shape), True,
                                                        -1, [], [collection])
            if ident == NOT_WANTED:
                say(f"record: the plan does not keep the collection {collection!r}, so {name!r} is not recorded")
        if ident != NOT_WANTED:
            session.soon(lambda: session.put_values(ident, array))

    def _scalar(self, name, value, collection):
        session = self._session
        number = float(value.asscalar() if isinstance(value, NDArray) else value)
        ident = session.context.id("scalar/" + name, collection)
        session.soon(lambda: session.run.put_scalars([ident], [number], 0))
