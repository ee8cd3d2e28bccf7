"""One training call of XGBoost: what there is to record of a round, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from ..boosting import training as boosting
from ..boosting.facts import Data, Growth
from ..boosting.training import TREE_COLUMNS, column_means, shares
from .scores import Scores
from .shap import RunningShap
from .trees import columns

if TYPE_CHECKING:
    from ..guard import Guard

IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
#: Up to so many splits XGBoost walks a whole model sooner than it makes one of the new trees (0.4 ms; 10 ns a split).
FEW_SPLITS = 10_000


class Matrices(Data):
    """DMatrix and its like."""

    def rows(self, data: Any) -> int | None:
        return int(data.num_row())

    def labels(self, data: Any) -> Any:
        return data.get_label()

    def weights(self, data: Any) -> Any:
        return data.get_weight()

    def groups(self, data: Any) -> int | None:
        bounds = data.get_uint_info("group_ptr")
        return len(bounds) - 1 if len(bounds) > 1 else None


class Training(boosting.Training):
    """As its base, and:

    :param training_data: DMatrix of the training; None in cv, where only metrics are seen.
    :param watched_data: DMatrix whose labels and predictions are recorded.
    :param scheduled: a callback changes the learning rate
    :param booster: "gbtree", "dart" or "gblinear"; None: as `params` say
    """

    library, version = "xgboost", xgboost.__version__
    ask = Matrices()

    def __init__(self, open_run: Callable[..., Any] | None, guard: Guard, params: dict[str, Any] | None,
                 training_data: Any = None, watched_data: Any = None, scheduled: bool = False,
                 booster: str | None = None) -> None:
        super().__init__(open_run, guard, params)
        self._training_data, self._watched_data = training_data, watched_data
        self._scheduled = scheduled
        self._booster = booster or self._params.get("booster", "gbtree")

    def is_one(self, model: Any) -> bool:
        return isinstance(model, xgboost.Booster)

    def place(self, model: Any) -> dict[str, Any]:
        collective = getattr(xgboost, "collective", None)
        rank, size = (collective.get_rank(), collective.get_world_size()) if collective else (0, 1)
        one = self.is_one(model)    # a model without a round begins at round 0, and that is known
        base = model.num_boosted_rounds() if one else 0
        return {"step_base": base, "step_base_from": "model" if one else "", "rank": rank, "world_size": size}

    def metrics(self, log: Any) -> Iterator[tuple[str, str, float, float | None]]:
        for data, metrics in log.items():
            for metric, values in metrics.items():
                last = values[-1]
                yield (data, metric, *last[:2]) if isinstance(last, tuple) else (data, metric, last, None)

    def learning_rate(self, model: Any, log: Any) -> float:
        if self._scheduled and self.is_one(model):
            train = json.loads(model.save_config())["learner"]["gradient_booster"].get("tree_train_param", {})
            return float(train.get("learning_rate", train.get("eta", "nan")))
        return float(self._params.get("learning_rate", self._params.get("eta", 0.3)))

    def features(self, model: Any) -> int:
        return int(model.num_features())

    def growth(self, model: Any) -> Growth | None:
        # An update of a model takes its trees away, and puts them back one by one.
        if self._booster == "gblinear" or self._params.get("process_type") == "update":
            return None
        scores = Scores()
        return Growth(lambda model: (scores.of(model, "weight"), scores.of(model, "total_gain")))

    def sources(self, model: Any, add: Callable[..., Any]) -> None:
        features = model.feature_names or [f"f{i}" for i in range(model.num_features())]
        importances = _Importances()
        linear = self._booster == "gblinear"
        for kind in IMPORTANCES[:1] if linear else IMPORTANCES:
            add("feature_importance", [f"feature_importance/{kind}/{f}" for f in features],
                _coefficients if linear else lambda model, kind=kind: importances.of(model, kind))
        add("tree", [f"trees/{c}" for c in TREE_COLUMNS], _no_trees if linear else _last_trees)
        if self._watched_data is not None:
            add("label", ["labels"], lambda model: {"labels": self._watched_data.get_label()})
            add("prediction", ["predictions"],
                lambda model: {"predictions": model.predict(self._watched_data)})
        if self._training_data is not None:
            shap = RunningShap(self._training_data, additive=self._booster == "gbtree", sample=self.sample)
            names = [*features, "bias"]
            add("average_shap", [f"average_shap/{n}" for n in names],
                lambda model: {f"average_shap/{n}": v for n, v in zip(names, column_means(shap.values(model)))})
            # The whole matrix under every feature's name is smdebug's way; it is stored under each that is wanted.
            add("full_shap", [f"full_shap/{n}" for n in names],
                lambda model: dict.fromkeys([f"full_shap/{n}" for n in names], shap.values(model)))


class _Importances:
    """`feature_importance/*` of a growing model, at the cost of its new trees once it has many: number of splits, gain
    and cover add up over trees (XGBoost walks all trees for each kind it is asked for), and the averages are totals
    over splits.
    """

    def __init__(self) -> None:
        self._scores = Scores()
        self._rounds = 0        # that the totals are of
        # kind -> feature -> sum
        self._totals: dict[str, dict[str, float]] = {kind: {} for kind in ("weight", "total_gain", "total_cover")}

    def of(self, model: Any, kind: str) -> Any:
        self._follow(model)
        scores = self._totals["total_" + kind if kind in ("gain", "cover") else kind]
        if kind in ("gain", "cover"):
            splits = self._totals["weight"]
            scores = {f: v / splits[f] for f, v in scores.items()}
        return shares(kind, scores)

    def _follow(self, model: Any) -> None:
        rounds = model.num_boosted_rounds()
        if rounds == self._rounds:
            return
        added = model
        if rounds > self._rounds and sum(self._totals["weight"].values()) > FEW_SPLITS:
            added = model[self._rounds:rounds]
        for kind, totals in self._totals.items():
            if added is model:
                totals.clear()
            for feature, score in self._scores.of(added, kind).items():
                totals[feature] = totals.get(feature, 0.0) + score
        self._rounds = rounds


def _coefficients(model: Any) -> Any:
    """A linear booster knows its coefficients and nothing else; with several classes each has its own."""
    scores = model.get_score(importance_type="weight")
    return shares("weight", {f: float(np.sum(v)) for f, v in scores.items()})


def _no_trees(model: Any) -> None:
    raise NotImplementedError("a linear booster (gblinear) has no trees")


def _last_trees(model: Any) -> dict[Any, Any]:
    last = model.num_boosted_rounds() - 1
    dumps = model[last:last + 1].get_dump(dump_format="json", with_stats=True)
    return {f"trees/{name}": column for name, column in columns(dumps, last * len(dumps)).items()}
