"""scikit-learn's search over gradient boosted trees, two processes at a time: sklearn_search.py xgboost|lightgbm"""

import sys

import numpy as np
import said
from sklearn.model_selection import GridSearchCV

ROUNDS, FOLDS, DEPTHS = 4, 2, [2, 3]

dice = np.random.default_rng(2)
x = dice.normal(size=(120, 5)).astype(np.float32)
y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
if sys.argv[1] == "xgboost":
    from xgboost import XGBClassifier
    model = XGBClassifier(n_estimators=ROUNDS, n_jobs=1)
else:
    from lightgbm import LGBMClassifier
    model = LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1)
search = GridSearchCV(model, {"max_depth": DEPTHS}, cv=FOLDS, scoring="neg_log_loss", n_jobs=2).fit(x, y, eval_set=[(x, y)])
for score in search.cv_results_["mean_test_score"]:
    said.evaluated(-score)
results, = search.best_estimator_.evals_result_.values()
for value in next(iter(results.values())):
    said.loss(value)
said.steps(ROUNDS)
