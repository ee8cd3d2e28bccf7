"""The LightGBM adaptor: one training call (`lightgbm.train`, `lightgbm.cv`, an estimator's `fit`) is one run, one
boosting round is one TRAIN step.

attach.py (how it starts), training.py (what there is of a round; the rounds themselves: ../boosting), trees.py. Names
are those that smdebug gives XGBoost's tensors. Knows nothing about rules, files and plans' insides.
"""

from .attach import arm, attach

__all__ = ["arm", "attach"]
