"""What boosting libraries have in common: a training call is a run, a round is a TRAIN step. Not a framework by itself.

session.py (functions that train, and which call is which run), calls.py (the arguments of such a call), training.py
(one call, round by round), facts.py (what rules judge it by), sample.py (rows of which SHAP values are computed).
"""
