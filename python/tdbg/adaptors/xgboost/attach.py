"""Attaching to XGBoost: by the launcher's environment (`arm`), or from the script (`attach`).

`train` and `cv` are replaced by functions that add one callback to the call. It comes first in the list, because
XGBoost stops asking callbacks after the first one that ends the training.
"""

import functools
import inspect
import os
import threading

import xgboost
from xgboost import callback as _callback
from xgboost import training as _training_module

from ..guard import Guard, say
from ..patches import Patches
from ..plan import resolve_plan
from .training import Training

#: Trainings of one process that get a run of their own (a search over parameters may make thousands).
MAX_TRAININGS = 32

_session = None


def _open_run(**options):
    from ..._capture import Run
    return Run.open(**options)


def arm(open_run=None, **options):
    """Records every XGBoost training of this process. Nothing is written before there is one. Idempotent.

    :param open_run: called with Run.open's keyword arguments at each training's begin; default: Run.open.
    """
    global _session
    if _session is None or _session.closed:
        _session = Session(open_run or _open_run, options)
        _session.install()
    return _session


def attach(model=None, config=None, dir=None, open_run=None, **options):
    """Records the trainings that follow in this process; returns an `Attached`. Raises on bad configuration, never later.

    :param model: not used: XGBoost makes its models itself
    :param config, dir: as for tdbg.adaptors.torch.attach
    :param options: passed on to Run.open
    """
    global _session
    launched = bool(os.environ.get("TDBG_RUN")) and dir is None
    if launched and open_run is None:
        if config is not None:
            say("attach: the run and its configuration are those of `tdbg run`; `config` is not used")
        return Attached(arm(open_run, **options))
    if _session is not None:
        _session.close()
    directory, plan = (dir, "") if open_run is not None else resolve_plan(dir, config)
    options.setdefault("directory", directory or "")
    if plan:
        options.setdefault("plan_json", plan)
    _session = None
    return Attached(arm(open_run, **options))


class Session:
    """What holds for the whole process: the patches, and which training is which run."""

    def __init__(self, open_run, options):
        self._open_run, self._options = open_run, dict(options)
        self.guard = Guard("xgboost", self._lost, self.uninstall)
        self.closed = False
        self._patches = Patches()
        self._lock = threading.Lock()
        self._count = 0
        self._first = self._latest = None       # runs
        self._open = []                         # trainings in progress

    def install(self):
        for name in ("train", "cv"):
            # sklearn's estimators imported `train` by name.
            owners = [xgboost, _training_module, getattr(xgboost, "sklearn", None)]
            owners = [o for o in owners if o is not None and callable(getattr(o, name, None))]
            self._patches.replace(owners[:1], name, functools.partial(self._wrapped, cv=name == "cv"))
            wrapper = getattr(xgboost, name)
            for owner in owners[1:]:
                self._patches.replace([owner], name, lambda original, wrapper=wrapper: wrapper)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def uninstall(self):
        self._patches.undo()

    def close(self):
        self.closed = True
        self.uninstall()
        for training in list(self._open):
            training.finish("closed")

    @property
    def directory(self):
        return None if self._latest is None else self._latest.directory

    def training(self, params=None, training_data=None, evals=(), callbacks=()):
        """The record of one training call that is about to begin; None if this process has had enough of them."""
        with self._lock:
            self._count += 1
            number = self._count
        if number > MAX_TRAININGS:
            if number == MAX_TRAININGS + 1:
                say(f"{MAX_TRAININGS} trainings of this process are recorded; later ones are not")
            return None
        watched = [data for data, _ in evals or () if data is not training_data]
        scheduler = getattr(_callback, "LearningRateScheduler", ())
        return Training(functools.partial(self._open_numbered, number), self.guard, params, training_data,
                        watched[-1] if watched else training_data,
                        any(isinstance(c, scheduler) for c in callbacks or ()))

    def _open_numbered(self, number, **given):
        options = {**given, **self._options}
        if number > 1 and self._first is not None:
            # A training of its own gets a run of its own, beside the first and under the same plan.
            options.update(directory=f"{self._first.directory}-{number}", plan_json=self._first.plan())
        run = self._open_run(**options)
        with self._lock:
            self._first = self._first or run
            self._latest = run
        return run

    def _wrapped(self, original, cv):
        signature = inspect.signature(original)

        def call(*args, **kwargs):
            try:
                prepared = self._prepare(signature, cv, args, kwargs)
            except Exception as error:
                self.guard.failed("the beginning of a training", error)
                prepared = None
            if prepared is None:
                return original(*args, **kwargs)
            training, bound = prepared
            self._open.append(training)
            try:
                result = original(*bound.args, **bound.kwargs)
            except BaseException as error:
                self._ended(training, "exception", f"{type(error).__name__}: {error}")
                raise
            self._ended(training, "completed")
            return result

        return call

    def _prepare(self, signature, cv, args, kwargs):
        if self.closed:
            return None
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return None                 # the original says what is wrong with the call
        given = bound.arguments
        callbacks = list(given.get("callbacks") or [])
        if any(isinstance(c, Callback) for c in callbacks):
            return None                 # the script put one there itself
        training = self.training(given.get("params"), None if cv else given.get("dtrain"),
                                 () if cv else given.get("evals"), callbacks)
        if training is None:
            return None
        given["callbacks"] = [Callback(training), *callbacks]
        return training, bound

    def _ended(self, training, reason, message=""):
        self._open.remove(training)
        try:
            training.finish(reason, message)
        except Exception as error:
            self.guard.failed("the end of a training", error)

    def _forked(self):
        """In the child of a fork: it is not the run's worker. One that was made before there was a run may still train."""
        for training in self._open:
            training.abandon()
        if self._first is not None:
            self.closed = True
            self.uninstall()

    def _lost(self, text):
        if self._latest is not None:
            self._latest.count_loss("adaptor_error", 1, text)


class Callback(_callback.TrainingCallback):
    """Tells a `Training` what XGBoost tells its callbacks."""

    def __init__(self, training):
        super().__init__()
        self._training = training

    def before_training(self, model):
        self._training.begins(model)
        return model

    def after_iteration(self, model, epoch, evals_log):
        self._training.round_ended(model, evals_log)
        return False

    def after_training(self, model):
        return model


class Attached:
    """The trainings of this process under watch, in the script's hands. A context manager: leaving it ends the watch."""

    def __init__(self, session):
        self._session = session

    @property
    def directory(self):
        """The run directory of the latest training; None before the first."""
        return self._session.directory

    def close(self):
        """No training that begins later is recorded. Later calls do nothing."""
        self._session.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()
        return False
