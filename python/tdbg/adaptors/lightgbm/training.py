"""One training call of LightGBM: what there is to record of a round, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from ..boosting import training as boosting
from ..boosting.facts import Data, Growth
from ..boosting.training import TREE_COLUMNS, column_means, shares
from .trees import columns

if TYPE_CHECKING:
    from ..guard import Guard

#: Of a feature: number of its splits, mean gain of one, sum of their gains. LightGBM keeps no covers.
IMPORTANCES = ("weight", "gain", "total_gain")
THREADS = ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs")
RATES = ("learning_rate", "shrinkage_rate", "eta")


class Datasets(Data):
    """Once they are constructed, as they are after a round."""

    def rows(self, data: Any) -> int | None:
        return int(data.num_data())

    def labels(self, data: Any) -> Any:
        return data.get_label()

    def weights(self, data: Any) -> Any:
        return data.get_weight()

    def groups(self, data: Any) -> int | None:
        sizes = data.get_group()
        return None if sizes is None else len(sizes)


class Training(boosting.Training):
    """As its base, and:

    :param training_data: Dataset of the training; None in cv, where only metrics are seen
    :param valid_sets: Datasets that are evaluated, the training's may be among them
    :param continued: earlier trees are in another model and only their scores in this one
    """

    library, version = "lightgbm", lightgbm.__version__
    ask = Datasets()

    def __init__(self, open_run: Callable[..., Any] | None, guard: Guard, params: dict[str, Any] | None,
                 training_data: Any = None, valid_sets: Any = (), continued: bool = False) -> None:
        super().__init__(open_run, guard, params)
        self._training_data, self._continued = training_data, continued
        # LightGBM numbers the data sets of a model: 0 is the training's, then those to watch.
        watched = [data for data in valid_sets if data is not training_data]
        self._watched = (len(watched), watched[-1]) if watched else (0, training_data)
        # It lets go of the rows once they are binned; SHAP values need them, so they are held until it is known
        # whether any are wanted.
        self._rows = getattr(training_data, "data", None)

    def begins(self, env: Any) -> None:
        self._first = env.begin_iteration
        super().begins(env.model)

    def is_one(self, model: Any) -> bool:
        return isinstance(model, lightgbm.Booster)

    def place(self, model: Any) -> dict[str, Any]:
        # A model without a round begins at round 0, and that is known.
        return {"step_base": self._first, "step_base_from": "model" if self._first or self.is_one(model) else ""}

    def metrics(self, env: Any) -> Iterator[tuple[str, str, float, float | None]]:
        for result in env.evaluation_result_list or ():
            data, metric, value = result[:3]
            if data == "cv_agg":                # until 4.5: "train l2" of all folds
                data, _, metric = metric.partition(" ")
            if self.facts is not None:
                self.facts.higher_is_better.setdefault(metric, bool(result[3]))
            yield data, metric, value, result[4] if len(result) > 4 else None

    def learning_rate(self, model: Any, env: Any) -> float:
        return float(next((env.params[name] for name in RATES if name in env.params), 0.1))

    def features(self, model: Any) -> int:
        return int(model.num_feature())

    def growth(self, model: Any) -> Growth | None:
        names = model.feature_name()

        def totals(model: Any) -> tuple[dict[str, float], dict[str, float]]:
            splits, gains = (dict(zip(names, model.feature_importance(what, iteration=-1).tolist()))
                             for what in ("split", "gain"))
            return splits, gains

        return Growth(totals)

    def sources(self, model: Any, add: Callable[..., Any]) -> None:
        features = model.feature_name()
        for kind in IMPORTANCES:
            add("feature_importance", [f"feature_importance/{kind}/{f}" for f in features],
                lambda model, kind=kind: _importance(model, kind))
        add("tree", [f"trees/{c}" for c in TREE_COLUMNS], _last_trees)
        number, data = self._watched
        if data is not None:
            add("label", ["labels"], lambda model: {"labels": np.asarray(data.get_label())})
            add("prediction", ["predictions"], lambda model: {"predictions": _predictions(model, number)})
        if self._training_data is not None:
            shap = _Shap(self._rows, self._continued, self._params, self.sample)
            names = [*features, "bias"]
            before = len(self._sources)
            add("average_shap", [f"average_shap/{n}" for n in names],
                lambda model: {f"average_shap/{n}": v for n, v in zip(names, column_means(shap.values(model)))})
            add("full_shap", [f"full_shap/{n}" for n in names],
                lambda model: dict.fromkeys([f"full_shap/{n}" for n in names], shap.values(model)))
            if len(self._sources) == before:
                self._rows = None


def _importance(model: Any, kind: str) -> Any:
    # Of all iterations: by default LightGBM stops at the best one, which another callback may have set.
    splits, gains = (dict(zip(model.feature_name(), model.feature_importance(what, iteration=-1)))
                     for what in ("split", "gain"))
    scores = {"weight": splits, "total_gain": gains,
              "gain": {f: gains[f] / count for f, count in splits.items() if count}}[kind]
    return shares(kind, {f: float(scores[f]) for f, count in splits.items() if count})


def _predictions(model: Any, number: int) -> Any:
    """What the model says of a data set it evaluates: kept by LightGBM, a copy of its own buffer."""
    predict = getattr(model, "_Booster__inner_predict", None)
    if predict is None:
        raise NotImplementedError("this LightGBM does not tell the predictions it keeps")
    return np.array(predict(data_idx=number))


def _last_trees(model: Any) -> dict[Any, Any]:
    last = model.current_iteration() - 1
    return {f"trees/{name}": column for name, column in columns(
        model.dump_model(num_iteration=1, start_iteration=last)).items()}


class _Shap:
    """SHAP values of a growing model at the cost of its new trees: they add up over trees, the bias too."""

    def __init__(self, rows: Any, continued: Any, params: dict[str, Any], sample: Callable[[int], Any]) -> None:
        self._rows, self._continued = rows, continued
        self._sample: Callable[[int], Any] | None = sample
        boosting_kind = next((params[k] for k in ("boosting", "boosting_type", "boost") if k in params), "gbdt")
        self._additive = boosting_kind not in ("dart", "rf")        # earlier trees change, or are averaged
        self._threads = next((params[k] for k in THREADS if k in params), 0)
        self._verbosity = next((params[k] for k in ("verbosity", "verbose") if k in params), 1)
        self._sum: Any = None
        self._iterations = 0

    def values(self, model: Any) -> Any:
        """(rows, features + 1) float64, or (rows, classes, features + 1); the last column is the bias."""
        if self._continued:
            raise NotImplementedError("the trees before init_model's end are in another model")
        if self._rows is None or isinstance(self._rows, str) or hasattr(self._rows, "__fspath__"):
            raise NotImplementedError("the Dataset has let go of its rows: free_raw_data=False keeps them")
        if self._sample is not None:
            chosen, self._sample = self._sample(model.train_set.num_data()), None
            self._rows = self._rows if chosen is None else _take(self._rows, chosen)
        iterations = model.current_iteration()
        if not self._additive:
            return self._of(model, 0, iterations)
        if iterations < self._iterations:
            self._sum, self._iterations = None, 0
        if iterations > self._iterations:
            new = self._of(model, self._iterations, iterations)
            self._sum = new if self._sum is None else self._sum + new
            self._iterations = iterations
        return self._sum

    def _of(self, model: Any, begin: int, end: int) -> Any:
        # Of a copy: LightGBM aborts the process when it is asked for the contributions of trees that are being trained,
        # because it has not measured their depth yet. It writes numbers so that they are read back as they were.
        text = model.model_to_string(num_iteration=end - begin, start_iteration=begin)
        copy = lightgbm.Booster(model_str=text)
        # Both are the process's, whoever sets them: with another number of threads the training's own sums would be
        # taken in another order.
        values = copy.predict(self._rows, pred_contrib=True, num_threads=self._threads, verbosity=self._verbosity)
        values = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
        columns = model.num_feature() + 1
        return values if values.shape[1] == columns else values.reshape(len(values), -1, columns)


def _take(rows: int, chosen: Any) -> Any:
    """These rows, in the type in which the Dataset got them."""
    if hasattr(rows, "iloc"):
        return rows.iloc[chosen]
    if hasattr(rows, "tocsr"):
        return rows.tocsr()[chosen]
    if isinstance(rows, np.ndarray):
        return rows[chosen]
    raise NotImplementedError(f"shap_rows: rows are not taken out of a {type(rows).__name__}")
