"""XGBoost in the conformance suite: a regression of 80 rows and three features."""

import numpy as np
import xgboost as xgb
from frameworks.conformance.framework import STEPS, Framework, Step, Trained

FEATURES = ("f0", "f1", "f2")
KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")
COLUMNS = ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")
PARAMS = {"max_depth": 3, "eta": 0.3, "nthread": 1, "seed": 7, "objective": "reg:squarederror"}
BOOSTING = "a booster is a sum of trees"


class XGBoost(Framework):
    title = "XGBoost"
    adaptor = "xgboost"
    model_class = xgb.Booster
    second = "own run"
    late = "training"
    default = ("metrics", "losses")
    replaced = ((xgb, "train"), (xgb, "cv"), (xgb.training, "train"), (xgb.training, "cv"), (xgb.sklearn, "train"))
    names = {
        "metrics": ["train-rmse", "validation-rmse"],
        "losses": ["train-rmse", "validation-rmse"],
        "predictions": ["predictions"],
        "labels": ["labels"],
        "hyperparameters": [f"hyperparameters/{k}" for k in PARAMS],
        "feature_importance": [f"feature_importance/{k}/{f}" for k in KINDS for f in FEATURES],
        "average_shap": [f"average_shap/{f}" for f in (*FEATURES, "bias")],
        "full_shap": [f"full_shap/{f}" for f in (*FEATURES, "bias")],
        "trees": [f"trees/{c}" for c in COLUMNS],
    }
    absent = {
        "weights": f"{BOOSTING}: see trees", "biases": f"{BOOSTING}: see trees", "gradients": "they stay inside the library",
        "outputs": "there are no layers", "inputs": "there are no layers",
        "optimizer_variables": "boosting has no optimizer with a state",
    }
    #: Sums over trees in another order than XGBoost's: float32 of values of the order of one.
    approximate = {"^feature_importance/": 1e-6, "^(average|full)_shap/": 2e-6}

    def version(self):
        return xgb.__version__

    def train(self, steps=STEPS, after_step=None, seed=7):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(110, 3)).astype(np.float32)
        y = (2 * x[:, 0] - np.sin(3 * x[:, 1]) + 0.5 * x[:, 2]).astype(np.float32)
        data, validation = xgb.DMatrix(x[:80], y[:80]), xgb.DMatrix(x[80:], y[80:])
        log = {}
        booster = xgb.train(PARAMS, data, steps, evals=[(data, "train"), (validation, "validation")], evals_result=log,
                            verbose_eval=False, callbacks=[AfterRound(after_step)] if after_step else None)
        frame = None
        recorded = []
        for step in range(steps):
            model = booster[:step + 1]
            values = {f"{name}-rmse": np.array([log[name]["rmse"][step]]) for name in ("train", "validation")}
            values["predictions"] = model.predict(validation)
            values["labels"] = validation.get_label()
            values.update({f"hyperparameters/{k}": np.array([v]) for k, v in PARAMS.items()})
            for kind in KINDS:
                scores = model.get_score(importance_type=kind)
                values.update({f"feature_importance/{kind}/{f}": np.array([v / sum(scores.values())])
                               for f, v in scores.items()})
            shap = model.predict(data, pred_contribs=True)
            for column, feature in enumerate((*FEATURES, "bias")):
                values[f"average_shap/{feature}"] = shap[:, column].mean(keepdims=True)
                values[f"full_shap/{feature}"] = shap
            frame = booster.trees_to_dataframe() if frame is None else frame
            rows = frame[frame.Tree == step].sort_values("Node")
            for column in COLUMNS:
                cells = rows[column]
                values[f"trees/{column}"] = cells.to_numpy() if cells.dtype.kind in "if" and column != "Category" else \
                    np.array(["nan" if not isinstance(v, str) else v for v in cells])
            recorded.append(Step("TRAIN", values))
        return Trained(recorded, bytes(booster.save_raw("ubj")) + repr(log).encode())

    def train_two(self):
        import threading
        made = [None, None]

        def run(n):
            made[n] = self.train(seed=n)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return made


class AfterRound(xgb.callback.TrainingCallback):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def after_iteration(self, model, epoch, evals_log):
        self.function(epoch)
        return False
