"""LightGBM in the conformance suite: a regression of 80 rows and three features."""

import lightgbm as lgb
import numpy as np
from frameworks.conformance.framework import STEPS, Framework, Step, Trained

FEATURES = ("a", "b", "c")
COLUMNS = ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")
PARAMS = {"objective": "regression", "metric": "l2", "num_leaves": 5, "min_data_in_leaf": 5, "learning_rate": 0.3,
          "num_threads": 1, "seed": 7, "deterministic": True, "verbose": -1}
BOOSTING = "a booster is a sum of trees"


class LightGBM(Framework):
    title = "LightGBM"
    adaptor = "lightgbm"
    model_class = lgb.Booster
    second = "own run"
    late = "training"
    default = ("metrics", "losses")
    replaced = ((lgb, "train"), (lgb, "cv"), (lgb.engine, "train"), (lgb.engine, "cv"), (lgb.sklearn, "train"))
    names = {
        "metrics": ["train-l2", "validation-l2"],
        "losses": ["train-l2", "validation-l2"],
        "predictions": ["predictions"],
        "labels": ["labels"],
        "hyperparameters": [f"hyperparameters/{k}" for k in PARAMS],
        "feature_importance": [f"feature_importance/{k}/{f}" for k in ("weight", "gain", "total_gain") for f in FEATURES],
        "average_shap": [f"average_shap/{f}" for f in (*FEATURES, "bias")],
        "full_shap": [f"full_shap/{f}" for f in (*FEATURES, "bias")],
        "trees": [f"trees/{c}" for c in COLUMNS],
    }
    absent = {
        "weights": f"{BOOSTING}: see trees", "biases": f"{BOOSTING}: see trees", "gradients": "they stay inside the library",
        "outputs": "there are no layers", "inputs": "there are no layers",
        "optimizer_variables": "boosting has no optimizer with a state",
    }
    #: Sums over trees in another order than LightGBM's, in float64.
    approximate = {"^(average|full)_shap/": 1e-12}

    def version(self):
        return lgb.__version__

    def train(self, steps=STEPS, after_step=None, seed=7):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(110, 3))
        y = 2 * x[:, 0] - np.sin(3 * x[:, 1]) + 0.5 * x[:, 2]
        data = lgb.Dataset(x[:80], y[:80], feature_name=list(FEATURES), params={"verbose": -1})
        validation = lgb.Dataset(x[80:], y[80:], reference=data)
        log = {}
        callbacks = [lgb.record_evaluation(log)]
        if after_step:
            callbacks.append(lambda env: after_step(env.iteration))
        booster = lgb.train(PARAMS, data, steps, valid_sets=[data, validation], valid_names=["train", "validation"],
                            callbacks=callbacks, keep_training_booster=True)
        # As text, gains have six digits; contributions of trees in training cannot be asked for.
        loaded = lgb.Booster(model_str=booster.model_to_string())
        frame = booster.trees_to_dataframe()
        recorded = []
        for step in range(steps):
            values = {f"{name}-l2": np.array([log[name]["l2"][step]]) for name in ("train", "validation")}
            values["predictions"] = booster.predict(x[80:], num_iteration=step + 1)
            values["labels"] = np.asarray(y[80:], np.float32)
            values.update({f"hyperparameters/{k}": np.array([v]) for k, v in PARAMS.items()})
            splits, gains = (booster.feature_importance(kind, iteration=step + 1) for kind in ("split", "gain"))
            means = {n: g / s for n, (s, g) in enumerate(zip(splits, gains)) if s}
            for n, feature in enumerate(FEATURES):
                if splits[n]:
                    values[f"feature_importance/weight/{feature}"] = np.array([splits[n] / splits.sum()])
                    values[f"feature_importance/total_gain/{feature}"] = np.array([gains[n] / gains.sum()])
                    values[f"feature_importance/gain/{feature}"] = np.array([means[n] / sum(means.values())])
            shap = loaded.predict(x[:80], pred_contrib=True, num_iteration=step + 1, num_threads=1)
            for column, feature in enumerate((*FEATURES, "bias")):
                values[f"average_shap/{feature}"] = shap[:, column].mean(keepdims=True)
                values[f"full_shap/{feature}"] = shap
            values.update(tree(frame[frame.tree_index == step]))
            recorded.append(Step("TRAIN", values))
        return Trained(recorded, booster.model_to_string().encode() + repr(log).encode())

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


def tree(rows):
    """The columns of one tree, of the frame in which LightGBM itself lists it."""
    leaf = rows.left_child.isna().to_numpy()
    texts = {"ID": rows.node_index, "Feature": rows.split_feature.where(~leaf, "Leaf"), "Yes": rows.left_child,
             "No": rows.right_child, "Missing": rows.left_child.where(rows.missing_direction == "left", rows.right_child),
             "Category": [None] * len(rows)}
    numbers = {"Tree": rows.tree_index, "Node": rows.tree_index.reset_index(drop=True).index, "Split": rows.threshold,
               "Gain": rows.split_gain.where(~leaf, rows.value), "Cover": rows["count"]}
    values = {f"trees/{k}": np.array(["nan" if not isinstance(v, str) else v for v in column]) for k, column in texts.items()}
    values.update({f"trees/{k}": np.asarray(column, np.int64 if k in ("Tree", "Node") else np.float64)
                   for k, column in numbers.items()})
    return values
