"""Attaching to XGBoost: by the launcher's environment (`arm`), or from the script (`attach`).

`train` and `cv` are replaced by functions that add one callback to the call. It comes first in the list, because
XGBoost stops asking callbacks after the first one that ends the training.
"""

from __future__ import annotations

from typing import Any

import xgboost
from xgboost import callback as _callback
from xgboost import training as _training_module

from ..attached import AttachedRun
from ..boosting.facts import Facts
from ..boosting.session import Session as _Session
from ..door import Door
from .training import Training


class Session(_Session):
    name = "xgboost"
    looked_through = "evals", "callbacks"

    def functions(self) -> list[Any]:
        # sklearn's estimators imported `train` by name.
        exporting = [o for o in (xgboost, getattr(xgboost, "sklearn", None)) if o is not None]
        return [("train", [_training_module, *exporting]), ("cv", [_training_module, xgboost])]

    def prepare(self, name: str, given: dict[str, Any]) -> Any:
        callbacks = list(given.get("callbacks") or [])
        if any(isinstance(c, Callback) for c in callbacks):
            return None                 # the script put one there itself
        cv = name == "cv"
        training = self.training(given.get("params"), None if cv else given.get("dtrain"),
                                 () if cv else given.get("evals"), callbacks)
        if training is not None:
            training.facts = _facts(given, cv, callbacks)
            given["callbacks"] = [Callback(training), *callbacks]
        return training

    def training(self, params: dict[str, Any] | None = None, training_data: Any = None, evals: Any = (),
                 callbacks: Any = ()) -> Any:
        """The record of one training call that is about to begin; None if this process has had enough of them."""
        if self.number() is None:
            return None
        watched = [data for data, _ in evals or () if data is not training_data]
        scheduler = getattr(_callback, "LearningRateScheduler", ())
        return Training(self.open_run, self.guard, params, training_data, watched[-1] if watched else training_data,
                        any(isinstance(c, scheduler) for c in callbacks or ()))


def _facts(given: dict[str, Any], cv: bool, callbacks: Any) -> Facts:
    params = dict(given.get("params") or {})
    evaluated = [("train", None), ("test", None)]
    if not cv:
        evaluated = [(str(name), data) for data, name in given.get("evals") or ()]
    stopping = next((c for c in callbacks if isinstance(c, _callback.EarlyStopping)), None)
    asked = stopping is not None or bool(given.get("early_stopping_rounds"))
    # The last one, unless its name is given.
    last = "" if cv or not evaluated else evaluated[-1][0]
    custom = given.get("obj") is not None
    weight = params.get("scale_pos_weight", 1)
    return Facts(None if cv else given.get("dtrain"), evaluated, cv, asked,
                 (getattr(stopping, "data", None) or last) if asked else "",
                 "" if custom else str(params.get("objective", "reg:squarederror")), weight not in (1, None),
                 params.get("booster") == "dart",
                 xgboost.collective.get_world_size() == 1 if hasattr(xgboost, "collective") else True)


class Callback(_callback.TrainingCallback):  # type: ignore[misc]
    """Tells a `Training` what XGBoost tells its callbacks."""

    def __init__(self, training: Training) -> None:
        super().__init__()
        self._training = training

    def before_training(self, model: Any) -> Any:
        self._training.begins(model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._training.round_ended(model, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        return model


_door = Door(Session, AttachedRun)
arm, attach = _door.arm, _door.attach
