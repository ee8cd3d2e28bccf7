"""Attaching to LightGBM: `train` and `cv` are replaced by functions that add one callback to the call."""

from __future__ import annotations

from typing import Any

import lightgbm
from lightgbm import engine as _engine

from ..attached import AttachedRun
from ..boosting.facts import Facts
from ..boosting.session import Session as _Session
from ..door import Door
from .training import Training


class Session(_Session):
    name = "lightgbm"
    looked_through = "valid_sets",

    def functions(self) -> list[Any]:
        # The estimators imported `train` by name.
        exporting = [o for o in (lightgbm, getattr(lightgbm, "sklearn", None)) if o is not None]
        return [("train", [_engine, *exporting]), ("cv", [_engine, lightgbm])]

    def prepare(self, name: str, given: dict[str, Any]) -> Any:
        callbacks = given.get("callbacks") or ()
        if not hasattr(callbacks, "__len__") or self.number() is None:
            return None                 # LightGBM raises for an iterator, as it does unwatched
        train = given.get("train_set")
        sets = given.get("valid_sets") or []
        sets = list(sets) if isinstance(sets, (list, tuple)) else [sets]
        training = Training(self.open_run, self.guard, given.get("params"), None if name == "cv" else train,
                            [] if name == "cv" else sets, given.get("init_model") is not None)
        training.facts = _facts(given, name == "cv", sets, callbacks)
        given["callbacks"] = [Callback(training), *callbacks]
        return training


#: What LightGBM calls them, too.
OBJECTIVE = ("objective", "objective_type", "app", "application", "loss")
EARLY_STOPPING = ("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change")
UNBALANCED = ("is_unbalance", "unbalance", "unbalanced_sets")
KINDS = ("boosting", "boosting_type", "boost")
MACHINES = ("num_machines", "num_machine")


def _facts(given: dict[str, Any], cv: bool, sets: list[Any], callbacks: Any) -> Facts:
    params = dict(given.get("params") or {})

    def of(names: tuple[str, ...], default: Any) -> Any:
        return next((params[name] for name in names if params.get(name) is not None), default)

    train = given.get("train_set")
    names = given.get("valid_names") or []
    names = [names] if isinstance(names, str) else list(names)
    if cv:
        evaluated: list[tuple[str, Any]] = [("train", None), ("valid", None)]
    else:
        evaluated = [(names[i] if i < len(names) else "training" if data is train else f"valid_{i}", data)
                     for i, data in enumerate(sets)]
    stops = any(type(c).__name__ == "_EarlyStoppingCallback" for c in callbacks) or of(EARLY_STOPPING, 0)
    objective = of(OBJECTIVE, "regression")
    return Facts(None if cv else train, evaluated, cv, bool(stops), "",
                 "" if callable(objective) or objective in ("none", "custom", "null") else str(objective),
                 bool(of(UNBALANCED, False)) or of(("scale_pos_weight",), 1) != 1, of(KINDS, "gbdt") == "dart",
                 of(MACHINES, 1) in (1, "1"))


class Callback:
    """Tells a `Training` what LightGBM tells its callbacks: before all others, of which one may end the training."""

    before_iteration = False

    def __init__(self, training: Training) -> None:
        self._training = training
        self.order = -1_000_000     # the instance's: LightGBM gives a number of its own to those that have none

    def __call__(self, env: Any) -> None:
        if env.iteration == env.begin_iteration:
            self._training.begins(env)
        self._training.round_ended(env.model, env)


_door = Door(Session, AttachedRun)
arm, attach = _door.arm, _door.attach
