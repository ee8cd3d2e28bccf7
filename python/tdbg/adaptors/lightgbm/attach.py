"""Attaching to LightGBM: `train` and `cv` are replaced by functions that add one callback to the call."""

from __future__ import annotations

from typing import Any

import lightgbm
from lightgbm import engine as _engine

from ..attached import AttachedRun
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
        given["callbacks"] = [Callback(training), *callbacks]
        return training


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
