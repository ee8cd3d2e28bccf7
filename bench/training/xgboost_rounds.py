"""What recording costs an XGBoost training: ratios, interleaved in one process.

    bench/training/xgboost_rounds.py [--rounds 100 300] [--repeat 5] [--json FILE]

Rows: metrics and importances every 5 rounds against bare; exact average SHAP every 5 rounds, the time it adds against
the time that predict(pred_contribs=True) over all trees at the same rounds adds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time

import numpy as np
import xgboost as xgb

from tdbg._capture import Run
from tdbg.adaptors import xgboost as adaptor

PARAMS = {"max_depth": 5, "eta": 0.2, "gamma": 4, "min_child_weight": 6, "subsample": 0.7,
          "objective": "reg:squarederror", "nthread": 1, "seed": 1}
EVERY = 5


def table():
    """The shape of abalone: 3,341 rows to train on, 836 to watch, 8 features."""
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, 0.2, size=(4177, 8)).astype(np.float32)
    y = np.round(3 + 8 * x[:, 7] + 4 * x[:, 2] + rng.normal(scale=1.5, size=4177)).clip(1, 29)
    return xgb.DMatrix(x[:3341], y[:3341]), xgb.DMatrix(x[3341:], y[3341:])


def plan(*collections):
    kinds = {"metrics": "metric"}
    return json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, "summaries_every": 0, "collections": [
        {"name": c, "kinds": [kinds.get(c, c)], "keep": True, "raw": {"train": {"interval": EVERY}}}
        for c in collections]})


class FullShap(xgb.callback.TrainingCallback):
    def __init__(self, data):
        super().__init__()
        self.data = data

    def after_iteration(self, model, epoch, evals_log):
        if epoch % EVERY == 0:
            model.predict(self.data, pred_contribs=True).mean(axis=0)
        return False


class Stopwatch(xgb.callback.TrainingCallback):
    """Seconds of the rounds themselves: opening and sealing a run cost the same however long the training is."""

    def before_iteration(self, model, epoch, evals_log):
        if epoch == 0:
            self.start = time.perf_counter()
        return False

    def after_training(self, model):
        self.seconds = time.perf_counter() - self.start
        return model


def train(rounds, callbacks=()):
    data, validation = table()
    watch = Stopwatch()
    xgb.train(PARAMS, data, rounds, evals=[(data, "train"), (validation, "validation")], verbose_eval=False,
              callbacks=[watch, *[make(data) for make in callbacks]])
    return watch.seconds


def recorded(rounds, *collections):
    with tempfile.TemporaryDirectory() as folder:
        with adaptor.attach(open_run=Run.open, directory=folder + "/run", plan_json=plan(*collections)):
            return train(rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, nargs="*", default=[100, 300])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    figures = []
    for rounds in options.rounds:
        cases = {
            "bare": lambda: train(rounds),
            "bare again": lambda: train(rounds),
            "metrics and importances": lambda: recorded(rounds, "metrics", "feature_importance"),
            "average SHAP": lambda: recorded(rounds, "average_shap"),
            "full passes": lambda: train(rounds, [FullShap]),
        }
        times = {name: [] for name in cases}
        for _ in range(options.repeat):
            for name, case in cases.items():
                times[name].append(case())
        median = {name: statistics.median(t) for name, t in times.items()}
        bare = median["bare"]
        print(f"{rounds} rounds, every {EVERY}th recorded, bare {bare:.3f} s")
        for name in ("bare again", "metrics and importances", "average SHAP", "full passes"):
            ratios = sorted(t / b for t, b in zip(times[name], times["bare"]))
            print(f"  {name:26} {median[name] / bare:8.3f} of bare   ({ratios[0]:.3f} to {ratios[-1]:.3f})")
        added = (median["average SHAP"] - bare) / (median["full passes"] - bare)
        print(f"  average SHAP adds 1/{1 / added:.1f} of what full passes add")
        figures.append({"rounds": rounds, "importances": median["metrics and importances"] / bare,
                        "noise": median["bare again"] / bare, "shap_share": added})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
