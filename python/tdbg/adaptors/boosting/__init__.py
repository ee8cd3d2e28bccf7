"""What boosting libraries have in common: a training call is a run, a round is a TRAIN step. Not a framework by itself.

session.py (functions that train, and which call is which run), training.py (one call, round by round), sample.py (rows
of which SHAP values are computed).
"""
