"""The XGBoost adaptor: one training call (`xgboost.train`, `xgboost.cv`, an estimator's `fit`) is one run, one boosting
round is one TRAIN step.

Order of reading: attach.py (how it starts), training.py (what there is of a round; the rounds themselves: ../boosting),
shap.py and trees.py (what takes arithmetic). Names are smdebug's. Knows nothing about rules, files and plans' insides.
"""

from .attach import arm, attach

__all__ = ["arm", "attach"]
