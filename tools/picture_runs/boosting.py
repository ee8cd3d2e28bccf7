"""XGBoost on two classes that three of twelve features tell nearly apart, with trees deeper than they need be."""

import numpy as np
import xgboost

rng = np.random.default_rng(0)


def table(rows):
    x = rng.normal(size=(rows, 12))
    score = 4 * x[:, 0] + 3 * x[:, 1] + 2 * x[:, 2] + 0.1 * x[:, 3:].sum(axis=1) + rng.normal(size=rows)
    return xgboost.DMatrix(x, score > 0)


train, validation = table(800), table(400)
xgboost.train({"objective": "binary:logistic", "max_depth": 6, "eta": 0.2, "nthread": 1, "eval_metric": "logloss"}, train, 40,
              evals=[(train, "train"), (validation, "validation")], verbose_eval=False)
