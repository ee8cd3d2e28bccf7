"""Boosted trees, by XGBoost and LightGBM: written with the detectors that look at them, and so not unseen by them. What a kind
is: faults.py; what is healthy: healthy.py.
"""

from __future__ import annotations

import functools
import random
import zlib
from typing import Any

import lightgbm
import numpy as np
import xgboost
from faults import kind
from healthy import healthy

Rows = tuple[Any, Any]


class Boosted:
    """One call that trains; what is drawn from the name: library, task, rows, features, noise, size of trees, rate, rounds. A
    fault changes any of it before `run()`."""

    def __init__(self, name: str, libraries: tuple[str, ...] = ("xgboost", "lightgbm"),
                 tasks: tuple[str, ...] = ("binary", "regression", "multiclass")) -> None:
        self.r = random.Random(name)
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.library, self.task = self.r.choice(libraries), self.r.choice(tasks)
        self.noise = self.r.uniform(0.2, 0.8)
        self.features = self.r.randint(5, 20)
        self.train = self.draw(self.r.randint(900, 3000))
        self.held = {"valid": self.draw(self.r.randint(400, 1000))}
        self.depth, self.rate = self.r.randint(2, 3), self.r.choice([0.03, 0.05, 0.1])
        self.rounds = self.r.randint(40, 120)
        self.params: dict[str, Any] = {}            # in the library's own words
        self.metrics = {"binary": ["logloss", "auc"], "regression": ["rmse"], "multiclass": ["mlogloss"], "ranking": ["ndcg"]}[self.task]
        self.more: dict[str, Any] = {}              # arguments of the call
        self.evaluate_training, self.training_last = True, False
        self.gradients: Any = None                  # of a script's own objective
        self.train_call: Any = None                 # instead of the library's `train`

    def __str__(self) -> str:
        return (f"{self.library} {self.task} {len(self.train[1])}x{self.train[0].shape[1]} depth {self.depth} rate {self.rate:g} "
                f"{self.rounds} rounds")

    @property
    def attached(self) -> dict[str, Any]:
        return {"framework": self.library}

    @functools.cached_property
    def truth(self) -> Any:
        return self.rng.normal(size=(self.features, 2))

    def draw(self, rows: int) -> Rows:
        x = self.rng.normal(size=(rows, self.features))
        z = np.tanh(x @ self.truth[:, 0]) + 0.5 * np.sin(x[:, 0] * 2) + self.noise * self.rng.normal(size=rows)
        if self.task == "binary":
            return x, (z > 0).astype(float)
        if self.task in ("multiclass", "ranking"):
            return x, np.digitize(z, [-0.8, 0.0, 0.8]).astype(float)
        return x, 10 + 5 * z

    # ------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        (self.by_xgboost if self.library == "xgboost" else self.by_lightgbm)()

    def in_xgboosts_words(self) -> dict[str, Any]:
        objective = {"binary": "binary:logistic", "regression": "reg:squarederror", "multiclass": "multi:softprob",
                     "ranking": "rank:ndcg"}[self.task]
        classes = {"num_class": 4} if self.task == "multiclass" else {}
        return {"objective": objective, "eval_metric": self.metrics, "max_depth": self.depth, "eta": self.rate, "nthread": 1,
                "seed": 3, **classes, **self.params}

    def by_xgboost(self) -> None:
        def matrix(rows: Rows) -> Any:
            made = xgboost.DMatrix(rows[0], rows[1])
            if self.task == "ranking":
                made.set_group([20] * (len(rows[1]) // 20))
            return made
        train, held = matrix(self.train), [(matrix(rows), name) for name, rows in self.held.items()]
        own = [(train, "train")] if self.evaluate_training else []
        more = dict(self.more)
        if self.gradients is not None:
            more["obj"] = lambda out, data: self.gradients(out, data.get_label())
        (self.train_call or xgboost.train)(self.in_xgboosts_words(), train, self.rounds, verbose_eval=False, **more,
                                           **({} if self.train_call else
                                              {"evals": held + own if self.training_last else own + held}))

    def in_lightgbms_words(self) -> dict[str, Any]:
        objective = {"binary": "binary", "regression": "regression", "multiclass": "multiclass", "ranking": "lambdarank"}[self.task]
        metrics = [{"logloss": "binary_logloss", "mlogloss": "multi_logloss", "error": "binary_error"}.get(m, m) for m in self.metrics]
        classes = {"num_class": 4} if self.task == "multiclass" else {}
        return {"objective": objective, "metric": metrics, "num_leaves": 2 ** self.depth, "learning_rate": self.rate,
                "num_threads": 1, "seed": 3, "verbose": -1, **classes, **self.params}

    def by_lightgbm(self) -> None:
        def dataset(rows: Rows, reference: Any = None) -> Any:
            group = [20] * (len(rows[1]) // 20) if self.task == "ranking" else None
            return lightgbm.Dataset(rows[0], rows[1], reference=reference, group=group)
        train = dataset(self.train)
        sets = {"train": train} if self.evaluate_training else {}
        sets |= {name: dataset(rows, train) for name, rows in self.held.items()}
        params = self.in_lightgbms_words()
        if self.gradients is not None:
            params["objective"] = lambda out, data: self.gradients(out, data.get_label())
        (self.train_call or lightgbm.train)(params, train, self.rounds, **self.more,
                                            **({} if self.train_call else
                                               {"valid_sets": list(sets.values()), "valid_names": list(sets)}))


def logistic(out: Any, labels: Any) -> tuple[Any, Any]:
    p = 1 / (1 + np.exp(-out))
    return p - labels, p * (1 - p)


def squared(out: Any, labels: Any) -> tuple[Any, Any]:
    return out - labels, np.ones_like(labels)


class ByGradients(Boosted):
    """With an objective of the script's own."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, tasks=("regression",), **draws)
        self.gradients = squared


class Stopped(Boosted):
    """With early stopping."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, **draws)
        self.more = ({"early_stopping_rounds": 20} if self.library == "xgboost" else
                     {"callbacks": [lightgbm.early_stopping(20, verbose=False)]})


# Faults -------------------------------------------------------------------------------------------------------------

@kind("data", "label_leak", "F", make=Boosted)
def label_in_a_column(w: Boosted) -> None:
    w.rate, w.rounds = max(w.rate, 0.1), max(w.rounds, 80)
    place = w.r.randrange(w.features)
    for x, y in (w.train, *w.held.values()):
        x[:, place] = 3 * y - 1


@kind("generalisation", "held_out_worsens", "U F", make=Boosted, tasks=("binary", "multiclass"))
def trees_learnt_by_heart(w: Boosted) -> None:
    w.depth, w.rate, w.rounds, w.noise = 9, 0.3, 200, 0.8
    w.train = tuple(part[:500] for part in w.train)
    if w.library == "lightgbm":
        w.params["min_data_in_leaf"] = 2


@kind("data", "held_out_worsens", "F", make=Boosted)
def labels_of_other_rows(w: Boosted) -> None:
    w.train = w.train[0], w.rng.permutation(w.train[1])
    w.depth, w.rate, w.rounds = 8, 0.3, max(w.rounds, 100)


@kind("optimisation", "no_progress", "U", make=Boosted)
def rate_of_nothing(w: Boosted) -> None:
    w.rate *= 1e-7


@kind("optimisation", "no_progress", "F", make=Boosted)
def rate_too_low_for_its_rounds(w: Boosted) -> None:
    w.rate = 3e-4


@kind("wiring", "no_splits", "F", make=Boosted)
def leaves_too_large(w: Boosted) -> None:
    w.params["min_child_weight" if w.library == "xgboost" else "min_data_in_leaf"] = 10 * len(w.train[1])


@kind("wiring", "no_splits", "F", make=Boosted)
def gain_never_enough(w: Boosted) -> None:
    w.params["gamma" if w.library == "xgboost" else "min_gain_to_split"] = 1e9


@kind("wiring", "training_worsens", "F T", make=ByGradients)
def gradient_of_the_other_sign(w: Boosted) -> None:
    w.gradients = lambda out, labels: (labels - out, np.ones_like(labels))


@kind("optimisation", "training_worsens nonfinite", "U", make=Boosted, tasks=("regression",))
def rate_above_two(w: Boosted) -> None:
    w.rate = 2.6


@kind("wiring", "stops_by_training", "F", make=Stopped, libraries=("xgboost",))
def stops_by_the_training_set(w: Boosted) -> None:
    w.training_last = True


@kind("data", "one_label", "F", make=Boosted)
def one_class_is_left(w: Boosted) -> None:
    w.train = w.train[0], np.full_like(w.train[1], w.train[1][0])


@kind("data", "constant_evaluation", "F", make=Boosted, tasks=("binary",))
def columns_lost_in_validation(w: Boosted) -> None:
    w.held = {name: (np.full_like(x, np.nan), y) for name, (x, y) in w.held.items()}


# Healthy ------------------------------------------------------------------------------------------------------------

@healthy
def trees_of_all_tasks(name: str) -> Boosted:
    return Boosted(name)


@healthy
def trees_of_seldom_labels(name: str) -> Boosted:
    w = Boosted(name, tasks=("binary",))
    w.metrics = ["logloss", "auc", "error"]
    for rows in (w.train, *w.held.values()):
        rows[1][w.rng.random(len(rows[1])) < 0.96] = 0
    return w


@healthy
def trees_of_weighted_classes(name: str) -> Boosted:
    """The unweighted loss of the training data rises, and is meant to."""
    w = trees_of_seldom_labels(name)
    w.params["scale_pos_weight"] = 40
    return w


@healthy
def trees_that_rank(name: str) -> Boosted:
    w = Boosted(name, tasks=("ranking",))
    w.train = tuple(part[:len(part) // 20 * 20] for part in w.train)
    w.held = {"valid": tuple(part[:400] for part in w.held["valid"])}
    return w


@healthy
def trees_of_few_rounds(name: str) -> Boosted:
    w = Boosted(name)
    w.rounds = w.r.randint(1, 8)
    return w


@healthy
def trees_of_one_strong_feature(name: str) -> Boosted:
    """Nearly all that can be known stands in one column, and noise is left."""
    w = Boosted(name, tasks=("binary", "regression"))
    for x, y in (w.train, *w.held.values()):
        strong = x[:, 0] * 3 + 0.3 * w.rng.normal(size=len(y))
        y[:] = strong > 0 if w.task == "binary" else strong
    return w


@healthy
def trees_of_one_feature(name: str) -> Boosted:
    w = Boosted(name, tasks=("regression",))
    for rows in ("train", "held"):
        made = w.train if rows == "train" else w.held["valid"]
        x, y = made[0][:, :1], 4 * made[0][:, 0]
        w.train, w.held = ((x, y), w.held) if rows == "train" else (w.train, {"valid": (x, y)})
    return w


@healthy
def trees_that_are_stopped(name: str) -> Boosted:
    """Learning by heart, and the library ends it."""
    w = Stopped(name)
    w.depth, w.rate, w.rounds = 7, 0.2, 400
    return w


@healthy
def trees_with_a_flat_end(name: str) -> Boosted:
    w = Boosted(name, tasks=("regression", "binary"))
    w.rounds, w.depth, w.rate = 700, 2, 0.02
    w.params["gamma" if w.library == "xgboost" else "min_gain_to_split"] = 8
    return w


@healthy
def trees_that_are_dropped(name: str) -> Boosted:
    w = Boosted(name)
    w.params |= {"booster": "dart", "rate_drop": 0.2} if w.library == "xgboost" else {"boosting": "dart", "drop_rate": 0.2}
    return w


@healthy
def lines_that_are_boosted(name: str) -> Boosted:
    w = Boosted(name, libraries=("xgboost",))
    w.params |= {"booster": "gblinear"}
    return w


@healthy
def forests(name: str) -> Boosted:
    w = Boosted(name)
    if w.library == "xgboost":
        w.rounds, w.rate = 1, 1.0
        w.params |= {"num_parallel_tree": 30, "subsample": 0.7, "colsample_bynode": 0.7}
    else:
        w.params |= {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
    return w


@healthy
def trees_of_estimators(name: str) -> Boosted:
    w = Boosted(name, tasks=("binary", "regression"))
    binary = w.task == "binary"

    def run() -> None:
        given = {"n_estimators": w.rounds, "max_depth": w.depth, "learning_rate": w.rate, "n_jobs": 1}
        sets = [w.train, *w.held.values()]
        if w.library == "xgboost":
            made = (xgboost.XGBClassifier if binary else xgboost.XGBRegressor)(**given)
            made.fit(*w.train, eval_set=sets, verbose=False)
        else:
            made = (lightgbm.LGBMClassifier if binary else lightgbm.LGBMRegressor)(**given, verbose=-1)
            # Not the training's own arrays: LightGBM takes this set for another one.
            made.fit(*w.train, eval_set=[(w.train[0].copy(), w.train[1].copy()), *w.held.values()])
    w.run = run
    return w


@healthy
def trees_of_folds(name: str) -> Boosted:
    w = Boosted(name)
    w.train_call = xgboost.cv if w.library == "xgboost" else lightgbm.cv
    w.more = {"nfold": 3} if w.library == "xgboost" else {"nfold": 3, "stratified": False}
    return w


@healthy
def trees_and_forty_held_out_rows(name: str) -> Boosted:
    w = Boosted(name)
    w.held = {"valid": w.draw(40)}
    w.metrics = {"binary": ["error", "auc", "logloss"], "multiclass": ["merror", "mlogloss"], "regression": ["rmse", "mae"]}[w.task]
    if w.library == "lightgbm":
        w.metrics = [{"merror": "multi_error", "mae": "l1"}.get(m, m) for m in w.metrics]
    w.rounds *= 2
    return w


@healthy
def trees_that_are_sure_of_themselves(name: str) -> Boosted:
    """The held-out loss rises, since wrong answers get more certain; of what is judged by, the order, nothing is lost."""
    w = Boosted(name, tasks=("binary",))
    w.train, w.held = w.draw(6000), {"valid": w.draw(3000)}
    w.depth, w.rate, w.rounds = 4, 0.3, 150
    return w


@healthy
def trees_and_another_country(name: str) -> Boosted:
    """Two held-out sets: one like the training's, and one of which half of the rules are other ones."""
    w = Boosted(name)
    x, y = w.draw(600)
    other = x.copy()
    other[:, :2] = -other[:, :2]
    w.held["abroad"] = other, y
    return w


@healthy
def trees_of_a_metric_of_ones_own(name: str) -> Boosted:
    w = Boosted(name, tasks=("regression",))

    def spread(out: Any, data: Any) -> Any:
        return ("spread", float(np.std(out))) if w.library == "xgboost" else ("spread", float(np.std(out)), False)
    w.more = {"custom_metric" if w.library == "xgboost" else "feval": spread}
    return w


@healthy
def trees_of_a_quantile(name: str) -> Boosted:
    """The squared error of the training data rises on the way to an upper quantile."""
    w = Boosted(name, tasks=("regression",))
    w.params |= ({"objective": "reg:quantileerror", "quantile_alpha": 0.95} if w.library == "xgboost" else
                 {"objective": "quantile", "alpha": 0.95})
    return w


@healthy
def trees_by_gradients_of_ones_own(name: str) -> Boosted:
    return ByGradients(name)


@healthy
def trees_without_an_evaluation(name: str) -> Boosted:
    w = Boosted(name)
    w.held, w.evaluate_training = {}, False
    return w


@healthy
def trees_of_noise(name: str) -> Boosted:
    """Labels that nothing predicts, by small trees: there is little to learn by heart."""
    w = Boosted(name)
    for _, y in (w.train, *w.held.values()):
        w.rng.shuffle(y)
    w.depth, w.rate, w.rounds = 2, 0.03, 60
    return w
