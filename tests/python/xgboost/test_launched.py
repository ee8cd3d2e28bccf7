"""What `tdbg run` says of trainings by XGBoost and LightGBM for which no rule was named."""

import os
import subprocess
import sys

import pytest

TREES = """
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 4)), rng.integers(0, 2, 200)
"""
BY_XGBOOST = TREES + """
import xgboost as xgb
data = xgb.DMatrix(x, y)
xgb.train({"objective": "binary:logistic", "nthread": 1}, data, 20, evals=[(data, "train")], verbose_eval=False)
"""
BY_LIGHTGBM = TREES + """
import lightgbm as lgb
data = lgb.Dataset(x, y)
lgb.train({"objective": "binary", "num_threads": 1, "verbose": -1}, data, 20, valid_sets=[data], valid_names=["train"])
"""
OF_LINES = BY_XGBOOST.replace('"nthread": 1', '"nthread": 1, "booster": "gblinear"').replace('evals=[(data, "train")], ', "")
A_METRIC_IS_NAN = BY_XGBOOST.replace("verbose_eval=False", "verbose_eval=False, custom_metric=lambda p, d: ('m', float('nan'))")


@pytest.fixture
def launch(tmp_path):
    """launch(script, arguments of `tdbg run`...) -> what was said on stderr, in one line."""
    tool = os.environ.get("TDBG_CLI") or os.environ.get("TDBG_BIN")
    if not tool:
        pytest.skip("no `tdbg` program: set TDBG_CLI")

    def run(script, *arguments):
        done = subprocess.run([tool, "run", "--dir", str(tmp_path / "run"), *arguments, "--", sys.executable, "-c", script],
                              capture_output=True, text=True, timeout=240)
        assert done.returncode == 0 or "Error" in done.stderr, done.stderr
        return " ".join(done.stderr.split())

    return run


@pytest.mark.parametrize("source, why", [
    ("pass", "xgboost was imported, and nothing was trained: there was no call of xgboost.train or xgboost.cv"),
    ("xgboost.train({'nthread': 1, 'max_depth': -7}, data, 2)", "xgboost.train was called, and raised XGBoostError: "),
])
def test_where_no_round_was_recorded_the_summary_says_what_was_seen(launch, source, why):
    said = launch("import numpy, xgboost; x = numpy.random.default_rng(0).normal(size=(50, 2)); "
                  f"data = xgboost.DMatrix(x, x[:, 0]); {source}")
    assert why in said and "env -i" not in said and "-E, -I" not in said, said


@pytest.mark.parametrize("script", [BY_XGBOOST, BY_LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_trees_that_are_well_are_judged_and_nothing_is_said_of_layers(launch, script):
    if script is BY_LIGHTGBM:
        pytest.importorskip("lightgbm")
    said = launch(script)
    assert "no issue found (completed)" in said and "Profile NoIssuesFound, 20 steps judged" in said, said
    assert "Not judged: overfitting (no metric that is known of held-out rows)" in said
    assert "loss of an evaluation" not in said and "inputs" not in said and "optimizer" not in said, said


def test_a_training_of_which_nothing_can_be_judged_gets_no_clean_bill(launch):
    said = launch(OF_LINES)
    assert "nothing to judge (completed)" in said and "no issue found" not in said, said
    assert "boosted trees" in said and "LossNotDecreasing" in said


def test_a_metric_that_is_nan_is_found_all_the_same(launch):
    assert "NaN" in launch(A_METRIC_IS_NAN)


def test_a_rule_that_judges_trees_does(launch):
    assert "no issue found (completed)" in launch(BY_XGBOOST, "--rule", "LossNotDecreasing")
