"""What a training of boosted trees says of which nobody named a rule: real ones, by both libraries, under `tdbg run`."""

import json
import sys

import pytest

SCRIPT = """
import sys, numpy as np

library, fault = sys.argv[1:]
rng = np.random.default_rng(1)
x = rng.normal(size=(1200, 6))
z = x[:, 0] + np.sin(2 * x[:, 1]) + 0.7 * rng.normal(size=len(x))
y = (z > 0).astype(float)
if fault == "leak":
    x[:, 4] = 2 * y - 1
if fault == "one label":
    y[:600] = 1
if fault == "lost columns":
    x[600:] = np.nan
heart = fault in ("by heart", "stopped")
if heart:
    wrong = np.flatnonzero(rng.random(600) < 0.3)
    y[wrong] = 1 - y[wrong]
depth, rate = (8, 0.3) if heart else (3, 0.1)
rate = {"no rate": 1e-9, "low rate": 2e-4, "high rate": 2.7}.get(fault, rate)
rounds, huge = 200 if heart else 70, fault == "huge leaves"
binary = fault != "high rate"
if not binary:
    y = z
if library == "xgboost":
    import xgboost
    train, held = xgboost.DMatrix(x[:600], y[:600]), xgboost.DMatrix(x[600:], y[600:])
    sets = [(train, "train"), (held, "held")]
    more = {"early_stopping_rounds": 10} if fault in ("stopped", "stops by training") else {}
    objective = {"objective": "binary:logistic", "eval_metric": ["logloss"] if heart else ["auc", "logloss"]} if binary else {}
    xgboost.train({"nthread": 1, "max_depth": depth, "eta": rate, "min_child_weight": 1e6 if huge else 1, **objective}, train, rounds,
                  evals=sets[::-1] if fault == "stops by training" else sets, verbose_eval=False, **more)
else:
    import lightgbm
    train = lightgbm.Dataset(x[:600], y[:600])
    held = lightgbm.Dataset(x[600:], y[600:], reference=train)
    more = {"callbacks": [lightgbm.early_stopping(10, verbose=False)]} if fault == "stopped" else {}
    objective = {"objective": "binary", "metric": ["binary_logloss"] if heart else ["auc", "binary_logloss"]} if binary else {"objective": "regression"}
    lightgbm.train({"num_threads": 1, "verbose": -1, "num_leaves": 2 ** depth, "learning_rate": rate,
                    "min_data_in_leaf": 10000 if huge else 2, **objective}, train, rounds, valid_sets=[train, held],
                   valid_names=["train", "held"], **more)
"""


@pytest.fixture
def script(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT)

    def run(library, fault):
        pytest.importorskip(library)
        return tdbg("run", "--dir", "r", "--", sys.executable, "train.py", library, fault, timeout=600)

    return run


ALL = [(library, fault, id) for library in ("xgboost", "lightgbm") for fault, id in [
    ("by heart", "held_out_worsens"), ("leak", "label_leak"), ("one label", "one_label"), ("lost columns", "constant_evaluation"),
    ("no rate", "no_progress"), ("low rate", "no_progress"), ("high rate", "training_worsens"), ("huge leaves", "no_splits"),
    ("stops by training", "stops_by_training"), ("stopped", None), ("none", None)]
    if (library, fault) != ("lightgbm", "stops by training")]    # it never stops by the training's
GATE = {("xgboost", "leak"), ("lightgbm", "by heart"), ("lightgbm", "none")}


@pytest.mark.parametrize("library, fault, id", [
    pytest.param(*case, marks=[] if case[:2] in GATE else [pytest.mark.long]) for case in ALL])
def test_a_fault_is_one_incident_that_says_its_cause(tdbg, script, library, fault, id):
    done = script(library, fault)
    assert done.returncode == 0, done.stderr
    told = tdbg.json("status", "r")["incidents"]
    assert [incident["id"] for incident in told] == ([id] if id else []), done.stderr
    assert json.loads(tdbg("check", "r", "--own", "--json").stdout)["incidents"] == told, "judged again it is what was said live"
    story = tdbg("explain", "r")
    assert story.returncode == (1 if id else 0) and (id or "no incident") in story.stdout, story
    if not id:
        assert "no issue found" in done.stderr and "not judged" not in story.stdout.lower(), story.stdout
        return
    (incident,) = told
    assert incident["family"] == "boosting" and incident["sentence"] and incident["advice"] and incident["evidence"]
    assert max(map(len, story.stdout.splitlines())) <= 100
