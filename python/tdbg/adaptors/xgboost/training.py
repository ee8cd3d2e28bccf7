"""One training call: a run, a step per boosting round, and what smdebug's names promise of each round.

Everything that costs more than a look (importances, predictions, SHAP values, trees) is computed only where the plan
wants it, and only in steps in which it is due.
"""

import json
import platform

import numpy as np
import xgboost

from ..guard import say
from ..requests import obey
from .shap import RunningShap
from .trees import columns

TRAIN = 1
NOT_WANTED = 0xFFFFFFFF
IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
#: smdebug's `losses` are the metrics whose names do not end in these.
NOT_A_LOSS = ("auc", "map")


class Training:
    """:param open_run: called with Run.open's keyword arguments when the training begins.
    :param guard: keeps our failures to itself.
    :param training_data: DMatrix of the training; None in cv, where only metrics are seen.
    :param watched_data: DMatrix whose labels and predictions are recorded.
    :param booster: "gbtree", "dart" or "gblinear"; None: as `params` say
    """

    def __init__(self, open_run, guard, params, training_data=None, watched_data=None, scheduled=False,
                 booster=None):
        self._open_run, self._guard = open_run, guard
        self._params = {k: v for k, v in dict(params or {}).items() if v is not None}
        self._training_data, self._watched_data = training_data, watched_data
        self._scheduled = scheduled     # a callback changes the learning rate
        self._booster = booster or self._params.get("booster", "gbtree")
        self.run = None
        self._done = False
        self._ids, self._series = {}, {}
        self._sources = []

    # Events, called by the callback; nothing here may raise into the training ---------------------------------

    def begins(self, model):
        try:
            self._begin(model)
        except Exception as error:
            self._done = True
            if self._guard.strict:
                raise
            say(f"nothing is captured: {error}; training goes on")

    def round_ended(self, model, log):
        if self.run is None or self._done:
            return
        try:
            due = self.run.begin_step(TRAIN)
            try:
                if due:
                    self.record(model, log)
            finally:
                self.run.end_step(False)
            request = self.run.take_request()
            if request is not None:
                obey(self.run, request, model)
        except Exception as error:
            self._guard.failed("a boosting round", error)

    def finish(self, reason, message=""):
        """Idempotent."""
        if self.run is not None and not self._done:
            self._done = True
            self.run.end(reason, message)

    def abandon(self):
        """In the child of a fork."""
        if self.run is not None and not self._done:
            self._done = True
            self.run.abandon()

    # ----------------------------------------------------------------------------------------------------------

    def _begin(self, model):
        one = isinstance(model, xgboost.Booster)        # cv hands over a pack of them
        base = model.num_boosted_rounds() if one else 0
        collective = getattr(xgboost, "collective", None)
        rank, size = (collective.get_rank(), collective.get_world_size()) if collective else (0, 1)
        self.follow(self._open_run(step_base=base, rank=rank, world_size=size,
                                   adaptor=f"xgboost {xgboost.__version__}"), model)

    def follow(self, run, model, context=True):
        """Records in `run`, which is open and whose steps somebody begins and ends: `round_ended`, or a hook.

        :param context: False: neither hyperparameters nor learning rates, whatever the plan says
        """
        self.run = run
        one = isinstance(model, xgboost.Booster)
        self._context = context and bool(json.loads(run.plan() or "{}").get("context", True))
        if self._context:
            self.run.put_context("versions", json.dumps({"xgboost": xgboost.__version__,
                                                         "python": platform.python_version()}))
            self.run.put_context("hyperparameters", json.dumps(self._params, default=str))
        if one:
            self._sources = self._make_sources(model)
        else:
            say("xgboost.cv: metrics are recorded, its boosters are not")

    def _make_sources(self, model):
        """[(kind, names that tell whether it is due, function of the model)], the wanted ones."""
        features = model.feature_names or [f"f{i}" for i in range(model.num_features())]
        sources = []

        def add(kind, names, source):
            wanted = [name for name in names if self.run.wants(name, kind)]
            if wanted:
                sources.append((kind, wanted, source))

        add("hyperparameter", [f"hyperparameters/{k}" for k in self._params], lambda model: self._hyperparameters())
        importances = _Importances()
        linear = self._booster == "gblinear"
        for kind in IMPORTANCES[:1] if linear else IMPORTANCES:
            add("feature_importance", [f"feature_importance/{kind}/{f}" for f in features],
                _coefficients if linear else lambda model, kind=kind: importances.of(model, kind))
        add("tree", [f"trees/{c}" for c in ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain",
                                            "Cover", "Category")], _last_trees)
        if self._watched_data is not None:
            add("label", ["labels"], lambda model: {"labels": self._watched_data.get_label()})
            add("prediction", ["predictions"],
                lambda model: {"predictions": model.predict(self._watched_data)})
        if self._training_data is not None:
            shap = RunningShap(self._training_data, additive=self._booster == "gbtree")
            names = [*features, "bias"]
            add("average_shap", [f"average_shap/{n}" for n in names],
                lambda model: {f"average_shap/{n}": v for n, v in zip(names, _column_means(shap.values(model)))})
            # The whole matrix under every feature's name is smdebug's way; it is stored under each that is wanted.
            add("full_shap", [f"full_shap/{n}" for n in names],
                lambda model: dict.fromkeys([f"full_shap/{n}" for n in names], shap.values(model)))
        return sources

    def record(self, model, log):
        """What is due in the open step."""
        for data, metrics in log.items():
            for metric, values in metrics.items():
                self._metric(f"{data}-{metric}", values[-1], metric)
        if self._context:
            self._scalar("context/learning_rate", self._learning_rate(model))
        for source in list(self._sources):
            kind, names, values = source
            known = [self._ids[n] for n in names if n in self._ids]
            if known and not any(self.run.due(ident) for ident in known if ident != NOT_WANTED):
                continue
            try:
                found = values(model)
            except Exception as error:
                self._sources.remove(source)
                self.run.count_loss("unsupported", len(names), f"{names[0]}: {error}")
                continue
            wanted = set(names)
            for name, value in found.items():
                if name in wanted:
                    self._put(name, kind, value)

    def _metric(self, name, value, metric):
        collections = ["metrics"] if metric.endswith(NOT_A_LOSS) else ["metrics", "losses"]
        if isinstance(value, tuple):            # cv: mean and standard deviation over the folds
            self._put(f"{name}-std", "metric", [float(value[1])], ["metrics"])
            value = value[0]
        self._put(name, "metric", [float(value)], collections)

    def _put(self, name, kind, value, collections=()):
        array = np.ascontiguousarray(value)
        dtype, shape = array.dtype.name, list(array.shape)
        if array.dtype.kind == "U":
            width = max(1, array.dtype.itemsize // 4)
            array, dtype, shape = array.astype(f"<U{width}").view(np.uint32), "text", [*shape, width]
        ident = self._ids.get(name)
        if ident is None:
            # A column of texts is as wide as its longest one, and the length of most is the number of rows or nodes.
            ident = self._ids[name] = self.run.define(name, name, kind, "", dtype, shape, len(array) != 1
                                                      or dtype == "text", -1, [], list(collections))
        if ident == NOT_WANTED or not array.size:
            return
        if dtype == "text":
            strides = [shape[-1], 1] if len(shape) == 2 else [1]
            self.run.put_ptr(ident, array.ctypes.data, dtype, shape, strides)
        else:
            self.run.put_array(ident, array)

    def _scalar(self, name, value):
        ident = self._series.get(name)
        if ident is None:
            ident = self._series[name] = self.run.define_scalar(name)
        self.run.put_scalars([ident], [value])

    def _learning_rate(self, model):
        if self._scheduled and isinstance(model, xgboost.Booster):
            train = json.loads(model.save_config())["learner"]["gradient_booster"].get("tree_train_param", {})
            return float(train.get("learning_rate", train.get("eta", "nan")))
        return float(self._params.get("learning_rate", self._params.get("eta", 0.3)))

    def _hyperparameters(self):
        values = {}
        for key, value in self._params.items():
            if isinstance(value, (list, tuple)):
                array = np.array([str(v) for v in value] if any(isinstance(v, str) for v in value) else value)
            elif isinstance(value, (bool, int, float)):
                array = np.array([value])
            else:
                array = np.array([str(value)])
            if array.dtype.kind in "biufU" and array.size:
                values[f"hyperparameters/{key}"] = array
        return values


class _Importances:
    """`feature_importance/*` of a growing model, at the cost of its new trees: number of splits, gain and cover add up
    over trees (XGBoost walks all trees for each kind it is asked for), and the averages are totals over splits.
    """

    def __init__(self):
        self._rounds = 0
        self._totals = {}       # kind -> feature -> sum

    def of(self, model, kind):
        self._follow(model)
        scores = self._totals["total_" + kind if kind in ("gain", "cover") else kind]
        if kind in ("gain", "cover"):
            splits = self._totals["weight"]
            scores = {f: v / splits[f] for f, v in scores.items()}
        return _shares(kind, scores)

    def _follow(self, model):
        rounds = model.num_boosted_rounds()
        if rounds == self._rounds and self._totals:
            return
        if rounds < self._rounds or not self._totals:
            self._rounds = 0
            self._totals = {kind: {} for kind in ("weight", "total_gain", "total_cover")}
        new = model[self._rounds:rounds]
        for kind, totals in self._totals.items():
            for feature, score in new.get_score(importance_type=kind).items():
                totals[feature] = totals.get(feature, 0.0) + score
        self._rounds = rounds


def _coefficients(model):
    """A linear booster knows its coefficients and nothing else; with several classes each has its own."""
    scores = model.get_score(importance_type="weight")
    return _shares("weight", {f: float(np.sum(v)) for f, v in scores.items()})


def _shares(kind, scores):
    total = sum(scores.values())
    return {f"feature_importance/{kind}/{f}": [score / total if total else 0.0] for f, score in scores.items()}


def _last_trees(model):
    last = model.num_boosted_rounds() - 1
    dumps = model[last:last + 1].get_dump(dump_format="json", with_stats=True)
    return {f"trees/{name}": column for name, column in columns(dumps, last * len(dumps)).items()}


def _column_means(values):
    means = values.mean(axis=0)                 # (features + 1) or (classes, features + 1)
    return [np.atleast_1d(column) for column in np.moveaxis(means, -1, 0)]
