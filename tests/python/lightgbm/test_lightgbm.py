"""LightGBM trainings that are not plain: cv, early stopping, boosters whose earlier trees change, samples of rows. What
every training must keep is the conformance suite's (tests/frameworks/lightgbm)."""

import json

import lightgbm as lgb
import numpy as np
import pytest

import tdbg
from tdbg._capture import Run
from tdbg.adaptors import lightgbm as adaptor

ROUNDS = 6
PARAMS = {"objective": "regression", "metric": "l2", "num_leaves": 5, "min_data_in_leaf": 5, "learning_rate": 0.3,
          "num_threads": 1, "seed": 7, "deterministic": True, "verbose": -1}


def table(rows=200, features=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    return x, x[:, 0] * 2 + np.sin(3 * x[:, 1]) + 0.1 * rng.normal(size=rows)


def plan(*collections, **keys):
    """plan.json that keeps these built-in collections, raw in every round."""
    kinds = {"metrics": "metric", "losses": "loss", "trees": "tree", "predictions": "prediction", "labels": "label"}
    return json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, **keys, "collections": [
        {"name": name, "kinds": [kinds.get(name, name)], "keep": True, "raw": {"train": {"interval": 1}}}
        for name in collections]})


EVERYTHING = plan("metrics", "losses", "trees", "predictions", "labels", "feature_importance", "average_shap", "full_shap")


@pytest.fixture
def record(tmp_path):
    """record(function, plan) -> (what it returned, trial of what was recorded while it ran)."""
    directory = str(tmp_path / "run")

    def run(train, plan_json=""):
        with adaptor.attach(open_run=Run.open, directory=directory, plan_json=plan_json):
            result = train()
        return result, tdbg.open(directory)

    return run


def values(trial, name):
    return [float(trial.tensor(name).value(s)[0]) for s in trial.steps()]


@pytest.mark.parametrize("train_metric", [False, True])
def test_cv_records_its_means_and_deviations(record, train_metric):
    def run():
        return lgb.cv(PARAMS, lgb.Dataset(*table()), ROUNDS, nfold=3, stratified=False, seed=1,
                      eval_train_metric=train_metric)

    found, trial = record(run, EVERYTHING)
    assert found == run(), "the same folds, the same numbers"
    assert trial.steps() == list(range(ROUNDS)) and trial.dropped() == [] and trial.state == "ended"
    sets = ["train", "valid"] if train_metric else ["valid"]
    assert trial.tensor_names(collection="losses") == [f"{s}-l2" for s in sets]
    for s in sets:
        assert values(trial, f"{s}-l2") == found[f"{s} l2-mean"]
        assert values(trial, f"{s}-l2-std") == found[f"{s} l2-stdv"]
    assert trial.tensor_names(regex="^(trees|full_shap|average_shap|feature_importance|predictions|labels)") == []


def test_cv_that_stops_early_records_the_rounds_that_there_were(record):
    def run():
        return lgb.cv({**PARAMS, "learning_rate": 1.0}, lgb.Dataset(*table(60)), 80, nfold=3, stratified=False, seed=1,
                      callbacks=[lgb.early_stopping(2, verbose=False)])

    found, trial = record(run)
    recorded = values(trial, "valid-l2")
    best = len(found["valid l2-mean"])       # LightGBM cuts what it returns after the best round
    assert recorded[:best] == found["valid l2-mean"]
    assert len(recorded) == best + 2 < 80 and min(recorded) == recorded[best - 1]


def early(rounds=80, **params):
    x, y = table(60)
    log = {}
    data = lgb.Dataset(x, y)
    noise = lgb.Dataset(*table(60, seed=3), reference=data)
    model = lgb.train({**PARAMS, "learning_rate": 0.8, **params}, data, rounds, valid_sets=[noise], valid_names=["noise"],
                      callbacks=[lgb.early_stopping(3, verbose=False), lgb.record_evaluation(log)])
    return model, log["noise"]["l2"], x


@pytest.mark.parametrize("by", ["callback", "parameter"])
def test_early_stopping_and_its_last_round_are_recorded(record, by):
    def run():
        if by == "callback":
            return early()
        x, y = table(60)
        log = {}
        data = lgb.Dataset(x, y)
        model = lgb.train({**PARAMS, "learning_rate": 0.8, "early_stopping_round": 3}, data, 80,
                          valid_sets=[lgb.Dataset(*table(60, seed=3), reference=data)], valid_names=["noise"],
                          callbacks=[lgb.record_evaluation(log)])
        return model, log["noise"]["l2"], x

    (model, log, x), trial = record(run, EVERYTHING)
    bare = run()[0]
    assert model.model_to_string() == bare.model_to_string() and model.best_iteration == bare.best_iteration
    assert trial.steps() == list(range(model.best_iteration + 3)) and len(log) == len(trial.steps()) < 80
    assert values(trial, "noise-l2") == log
    assert trial.dropped() == [] and trial.state == "ended"
    last = trial.steps()[-1]
    # Of the trees that were there in that round: those after the best one too, which LightGBM drops at the end.
    assert trial.tensor("trees/Tree").value(last)[0] == last
    best = model.best_iteration - 1
    exact = lgb.Booster(model_str=model.model_to_string()).predict(x, pred_contrib=True, num_threads=1)
    np.testing.assert_allclose(trial.tensor("full_shap/Column_0").value(best), exact, atol=1e-12)


@pytest.mark.parametrize("boosting", ["dart", "rf"])
def test_boosters_whose_earlier_trees_count_differently_in_every_round(record, boosting):
    """DART rescales earlier trees, a random forest averages all: each round's values are the whole model's of that round."""
    params = {**PARAMS, "boosting": boosting, "drop_rate": 0.5, "skip_drop": 0.0, "bagging_freq": 1, "bagging_fraction": 0.7}
    x, y = table()
    xv, yv = table(40, seed=1)

    def run(rounds=ROUNDS):
        data = lgb.Dataset(x, y)
        return lgb.train(params, data, rounds, valid_sets=[data, lgb.Dataset(xv, yv, reference=data)],
                         valid_names=["train", "validation"])

    model, trial = record(run, EVERYTHING)
    assert model.model_to_string() == run().model_to_string()
    assert trial.steps() == list(range(ROUNDS)) and trial.dropped() == []
    for step in range(ROUNDS):
        then = run(step + 1)        # the same seed: what the model was in that round
        exact = then.predict(x, pred_contrib=True, num_threads=1)
        np.testing.assert_allclose(trial.tensor("full_shap/Column_1").value(step), exact, atol=1e-12)
        np.testing.assert_allclose(trial.tensor("average_shap/bias").value(step)[0], exact[:, -1].mean(), atol=1e-12)
        np.testing.assert_allclose(trial.tensor("predictions").value(step), then.predict(xv), rtol=1e-12)
        splits = then.feature_importance("split")
        assert trial.tensor("feature_importance/weight/Column_0").value(step)[0] == splits[0] / splits.sum()


@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
def test_shap_values_of_a_sample_are_exact_and_it_is_said_which_rows_they_are(record, capsys, kind):
    x, y = table()
    if kind == "frame":
        x = pytest.importorskip("pandas").DataFrame(x, columns=[f"Column_{n}" for n in range(4)])
    elif kind == "sparse":
        x = pytest.importorskip("scipy.sparse").csr_matrix(x)
    train = lambda: lgb.train(PARAMS, lgb.Dataset(x, y), ROUNDS)
    model, trial = record(train, plan("average_shap", "full_shap", shap_rows=30))
    assert model.model_to_string() == train().model_to_string() and trial.dropped() == []
    said = trial.context("shap_sample", 0)
    rows = said["rows"]
    assert said["of"] == 200 and len(set(rows)) == 30 and set(rows) <= set(range(200))
    assert capsys.readouterr().err == "tdbg: SHAP values are those of 30 of 200 rows (shap_rows)\n"
    for step in range(ROUNDS):
        exact = model.predict(x, pred_contrib=True, num_iteration=step + 1, num_threads=1)
        exact = exact.toarray() if kind == "sparse" else exact
        np.testing.assert_allclose(trial.tensor("full_shap/Column_1").value(step), exact[rows], atol=1e-12)
        np.testing.assert_allclose(trial.tensor("average_shap/Column_0").value(step)[0], exact[rows, 0].mean(), atol=1e-12)


def test_data_sets_that_come_as_an_iterator_are_watched_and_callbacks_that_do_are_refused_as_ever(record):
    def run():
        data = lgb.Dataset(*table())
        validation = lgb.Dataset(*table(50, seed=1), reference=data)
        with pytest.raises(TypeError, match="has no len"):
            lgb.train(PARAMS, data, ROUNDS, callbacks=(c for c in [lgb.log_evaluation(0)]))
        return lgb.train(PARAMS, data, ROUNDS, valid_sets=(s for s in [validation]), valid_names=["v"]).model_to_string()

    found, trial = record(run, EVERYTHING)
    assert found == run()
    assert trial.tensor_names(collection="metrics") == ["v-l2"]
    assert np.array_equal(trial.tensor("labels").value(0), table(50, seed=1)[1].astype(np.float32))
