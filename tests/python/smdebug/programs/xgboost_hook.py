"""A training with smdebug's hook for XGBoost, everything saved, and its trial."""

import json
import sys

import numpy as np
import xgboost
from smdebug import SaveConfig
from smdebug.trials import create_trial
from smdebug.xgboost import Hook, get_hook

OUT = sys.argv[1]
rng = np.random.default_rng(0)
x = rng.normal(size=(120, 5)).astype(np.float32)
y = (x[:, 0] * 2 + np.sin(3 * x[:, 1]) > 0).astype(np.float32)
dtrain = xgboost.DMatrix(x[:90], y[:90])
dtest = xgboost.DMatrix(x[90:], y[90:])
params = {"max_depth": 3, "eta": 0.3, "objective": "binary:logistic", "nthread": 1, "eval_metric": ["logloss", "auc"],
          "subsample": 0.5, "seed": 3}

hook = Hook(out_dir=OUT, save_config=SaveConfig(save_interval=3, save_steps=[1]), hyperparameters=params,
            include_collections=["metrics", "losses", "hyperparameters", "predictions", "labels", "feature_importance",
                                 "average_shap", "full_shap", "trees"],
            train_data=dtrain, validation_data=dtest)
assert get_hook() is hook
xgboost.train(params, dtrain, 8, evals=[(dtrain, "train"), (dtest, "validation")], verbose_eval=False, callbacks=[hook])
hook.close()

trial = create_trial(OUT)


def value(name, step):
    array = np.asarray(trial.tensor(name).value(step))
    if array.dtype.kind == "U":
        return [list(array.shape), array.tolist()]
    return [list(array.shape), array.dtype.kind, np.nan_to_num(array.astype("f8"), nan=-1e9).reshape(-1).tolist()]


found = {"names": trial.tensor_names(), "steps": trial.steps(), "modes": sorted(m.name for m in trial.modes()),
         "workers": trial.workers(),
         "collections": {name: trial.tensor_names(collection=name) for name in
                         ("metrics", "losses", "hyperparameters", "predictions", "labels", "feature_importance",
                          "average_shap", "full_shap", "trees")},
         "values": {name: {s: value(name, s) for s in trial.tensor(name).steps()} for name in trial.tensor_names()}}
sys.stdout.write("\nRESULT " + json.dumps(found) + "\n")
