"""smdebug's hook for XGBoost: a callback of a training, for which a boosting round is a step.

    hook = Hook(out_dir="run", include_collections=["metrics", "feature_importance"], train_data=dtrain)
    xgboost.train(params, dtrain, callbacks=[hook])

What of a round is kept under which name is the adaptor's matter (adaptors/xgboost/training.py).
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import xgboost

from ..adaptors.xgboost.attach import Callback
from ..adaptors.xgboost.training import Training
from ..adaptors.xgboost.trees import booster_of
from ..exceptions import SMDebugError
from .base import BaseHook

logger = logging.getLogger("smdebug")
_FORMATS = {"csv": "csv", "text/csv": "csv", "libsvm": "libsvm", "text/libsvm": "libsvm", "text/x-libsvm": "libsvm"}


class Hook(BaseHook, Callback):
    """:param hyperparameters: kept as `hyperparameters/<key>`
    :param train_data: what SHAP values are computed for: a DMatrix, or (path, "csv" or "libsvm") with the label first
    :param validation_data: whose labels and predictions are kept; as train_data
    :param reduction_config: not used, and said so, as in smdebug

    The others are BaseHook's. `hyperparameters`, `train_data` and `validation_data` may be set until the training
    begins. A round is there for readers when it has ended; the script's own scalars and tensors belong to the round in
    which they are saved, those saved after the last one to a step of their own.
    """

    framework = "xgboost"
    _keeps_state = False

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: Any = None,
        save_config: Any = None,
        include_regex: str | Sequence[str] | None = None,
        include_collections: Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        hyperparameters: dict[str, Any] | None = None,
        train_data: Any = None,
        validation_data: Any = None,
    ) -> None:
        if reduction_config is not None:
            logger.warning("'reduction_config' is not supported for XGBoost and is not used")
        super().__init__(out_dir, export_tensorboard, tensorboard_dir, dry_run, None, save_config, include_regex,
                         include_collections, save_all, include_workers)
        self.hyperparameters = hyperparameters
        self.train_data = _data(train_data)
        self.validation_data = _data(validation_data)
        self._training: Any = None

    # What XGBoost calls -----------------------------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        self._prepare()             # what cannot be meant is raised here
        self._training = None
        self._watched("the beginning of a training", self._begin, model)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._watched("a boosting round", self._round, model, evals_log)
        return False

    # --------------------------------------------------------------------------------------------------------------

    def _begin(self, model: Any) -> None:
        if self._closed:
            return
        one = isinstance(model, xgboost.Booster)        # cv hands over a pack of them
        if self._run is None and one:
            self._step_base, self._step_base_from = model.num_boosted_rounds(), self._step_base_from or "model"
        if not self._ensure_run():
            return
        params = dict(self.hyperparameters or {})
        self._training = Training(None, self._guard, params, self.train_data, self.validation_data,
                                  booster=booster_of(model) if one else None)
        self._training.follow(self._run, model, context=False)

    def _round(self, model: Any, evals_log: Any) -> None:
        if self._training is None or self._closed:
            return
        if self._begin_step():
            self.last_saved_step = self.step
            self._training.record(model, evals_log)
        self._end_step()

    def _rank(self) -> tuple[int, int]:
        collective = getattr(xgboost, "collective", None)
        return (collective.get_rank(), collective.get_world_size()) if collective else (0, 1)

    def _adaptor(self) -> str:
        return f"xgboost {xgboost.__version__}, smdebug hook"


def _data(data: Any) -> Any:
    if data is None or isinstance(data, xgboost.DMatrix):
        return data
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[0], str):
        raise SMDebugError(f"{data!r}: a DMatrix or (path, 'csv' or 'libsvm') is accepted")
    path = os.path.expanduser(data[0])
    kind = _FORMATS.get(str(data[1] or "libsvm").lower())
    if kind is None:
        raise SMDebugError(f"{data[1]!r}: {', '.join(_FORMATS)} are accepted")
    if not os.path.isfile(path):
        raise SMDebugError(f"no such file: {path} (a local file is accepted)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # XGBoost would have others read texts
        try:
            return xgboost.DMatrix(f"{path}?format={kind}" + ("&label_column=0" if kind == "csv" else ""))
        except xgboost.core.XGBoostError as error:
            raise SMDebugError(f"{path}: {error}") from None


def get_hook(json_config_path: str | None = None) -> Any:
    """The process's hook, or one from the configuration file where there is one."""
    from .singleton import get_hook as get

    return get(Hook, json_config_path, create=True)
