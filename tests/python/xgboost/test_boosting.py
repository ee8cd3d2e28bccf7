"""Real XGBoost trainings, recorded by the real extension, against XGBoost's own numbers."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import xgboost as xgb

import tdbg
from tdbg._capture import Run
from tdbg.adaptors import xgboost as adaptor
from tdbg.adaptors.xgboost import scores as scores_module
from tdbg.adaptors.xgboost import training as adaptor_training

ROUNDS = 6
EVERYTHING = ("metrics", "losses", "feature_importance", "average_shap", "full_shap", "trees", "predictions", "labels",
              "hyperparameters")


def table(rows=200, features=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    return x, (x[:, 0] * 2 + np.sin(3 * x[:, 1]) + 0.1 * rng.normal(size=rows)).astype(np.float32)


def plan(*collections, interval=1, **keys):
    """plan.json that keeps these built-in collections, raw every `interval` rounds."""
    kinds = {"metrics": "metric", "losses": "loss", "trees": "tree", "predictions": "prediction", "labels": "label",
             "hyperparameters": "hyperparameter"}
    return json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, **keys, "collections": [
        {"name": name, "kinds": [kinds.get(name, name)], "keep": True,
         "raw": {"train": {"interval": interval}}} for name in collections]})


@pytest.fixture
def record(tmp_path):
    """record(function, plan) -> trial of what was recorded while function ran; .runs has all directories."""
    directory = str(tmp_path / "run")

    def run(train, plan_json=""):
        with adaptor.attach(open_run=Run.open, directory=directory, plan_json=plan_json):
            train()
        return tdbg.open(directory)

    run.directory = directory
    return run


def train(rounds=ROUNDS, evals=True, **options):
    x, y = table()
    xv, yv = table(60, seed=1)
    data, validation = xgb.DMatrix(x, y), xgb.DMatrix(xv, yv)
    log = {}
    params = {"max_depth": 3, "eta": 0.3, "nthread": 1, **options.pop("params", {})}
    booster = xgb.train(params, data, rounds, evals=[(data, "train"), (validation, "validation")] if evals else [],
                        evals_result=log, verbose_eval=False, **options)
    return booster, log, data, validation


def test_metrics_are_kept_by_default_and_every_round_is_a_step(record):
    made = []
    trial = record(lambda: made.append(train()))
    log = made[0][1]
    assert trial.steps() == list(range(ROUNDS))
    assert trial.tensor_names(collection="metrics") == ["train-rmse", "validation-rmse"]
    assert trial.tensor_names(collection="losses") == ["train-rmse", "validation-rmse"]
    for name, (data, metric) in {"train-rmse": ("train", "rmse"), "validation-rmse": ("validation", "rmse")}.items():
        values = [trial.tensor(name).value(s) for s in range(ROUNDS)]
        assert all(v.shape == (1,) and v.dtype == np.float64 for v in values)
        assert [float(v[0]) for v in values] == log[data][metric]        # to the last bit
    assert trial.tensor_names(regex="^(feature_importance|trees|full_shap|predictions)") == []
    assert trial.context("hyperparameters", 0)["max_depth"] == 3


def test_everything_equals_what_xgboost_says(record):
    made = []
    trial = record(lambda: made.append(train()), plan(*EVERYTHING))
    booster, _, data, validation = made[0]
    for step in range(ROUNDS):
        model = booster[: step + 1]
        assert np.array_equal(trial.tensor("predictions").value(step), model.predict(validation))
        for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
            scores = model.get_score(importance_type=kind)
            total = sum(scores.values())
            for feature in ("f0", "f1", "f2", "f3"):
                name = f"feature_importance/{kind}/{feature}"
                if feature in scores:
                    assert trial.tensor(name).value(step)[0] == pytest.approx(scores[feature] / total, rel=1e-6)
                elif trial.has_tensor(name) if hasattr(trial, "has_tensor") else name in trial.tensor_names():
                    assert step not in trial.tensor(name).steps()
        contributions = model.predict(data, pred_contribs=True)
        for column, feature in enumerate(["f0", "f1", "f2", "f3", "bias"]):
            average = trial.tensor(f"average_shap/{feature}").value(step)
            assert average.shape == (1,) and average.dtype == np.float32
            assert average[0] == pytest.approx(contributions[:, column].mean(), abs=2e-6)
        np.testing.assert_allclose(trial.tensor("full_shap/f2").value(step), contributions, atol=2e-6)
    assert np.array_equal(trial.tensor("labels").value(0), validation.get_label())
    assert trial.tensor("hyperparameters/max_depth").value(0).tolist() == [3]


def test_trees_are_those_of_trees_to_dataframe(record):
    pytest.importorskip("pandas")
    made = []
    trial = record(lambda: made.append(train()), plan("trees"))
    frame = made[0][0].trees_to_dataframe()
    for step in range(ROUNDS):
        rows = frame[frame.Tree == step].sort_values("Node")
        for column in ("Tree", "Node", "ID", "Feature", "Split", "Gain", "Cover"):
            recorded = trial.tensor(f"trees/{column}").value(step)
            if recorded.dtype.kind == "f":
                np.testing.assert_allclose(recorded, rows[column].to_numpy(), equal_nan=True)
            else:
                assert recorded.tolist() == rows[column].tolist()
        for column in ("Yes", "No", "Missing"):
            expected = ["nan" if not isinstance(v, str) else v for v in rows[column]]
            assert trial.tensor(f"trees/{column}").value(step).tolist() == expected


def test_intervals_are_the_plans(record):
    trial = record(lambda: train(12), plan("metrics", "feature_importance", "average_shap", interval=5))
    assert trial.tensor("average_shap/f0").steps(kind="raw") == [0, 5, 10]


@pytest.mark.parametrize("params", [{"objective": "multi:softprob", "num_class": 3}, {"booster": "dart"},
                                    {"booster": "gblinear"}, {"num_parallel_tree": 2}])
def test_other_boosters_and_objectives(record, params):
    def run():
        x, y = table()
        y = np.digitize(y, [-1, 1]) if "num_class" in params else y
        data = xgb.DMatrix(x, y)
        made.append((xgb.train({"nthread": 1, "max_depth": 2, **params}, data, 3, evals=[(data, "train")],
                               verbose_eval=False), data))

    made = []
    trial = record(run, plan("metrics", "average_shap", "full_shap", "predictions", "feature_importance"))
    booster, data = made[0]
    assert trial.steps() == [0, 1, 2]
    assert trial.dropped() == []
    expected = booster.predict(data, pred_contribs=True)
    np.testing.assert_allclose(trial.tensor("full_shap/f1").value(2), expected, atol=1e-5)
    np.testing.assert_allclose(trial.tensor("average_shap/f1").value(2),
                               np.atleast_1d(expected.mean(axis=0)[..., 1]), atol=1e-5)


def test_means_of_many_rows_are_exact():
    """In float32 two million rows of 0.7 add up to a mean of 0.714."""
    values = np.full((2_000_000, 2), 0.7, np.float32)
    assert [v.tolist() for v in adaptor_training.column_means(values)] == [[np.float32(0.7)]] * 2


def test_what_cannot_be_recorded_is_named_in_one_line(tmp_path):
    # In a process of its own: a kind of trouble is told once a process, and another test's may have been the first.
    script, directory = tmp_path / "train.py", str(tmp_path / "run")
    script.write_text(textwrap.dedent(f"""\
        import numpy, xgboost
        from tdbg._capture import Run
        from tdbg.adaptors import xgboost as adaptor

        with adaptor.attach(open_run=Run.open, directory={directory!r}, plan_json={plan("trees")!r}):
            data = xgboost.DMatrix(numpy.arange(20.0).reshape(10, 2), numpy.arange(10.0))
            xgboost.train({{"booster": "gblinear", "nthread": 1}}, data, 2)
    """))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sentence = "What tdbg cannot record: trees/Tree: a linear booster (gblinear) has no trees."
    assert [(drop.cause, drop.text) for drop in tdbg.open(directory).dropped()] == [("unsupported", sentence)]
    assert done.stderr == f"tdbg: {sentence}\n"
    tool = Path(tdbg.__file__).parent / "bin" / "tdbg"
    for command in ("status", "check"):     # who reads them has no log of the job
        said = subprocess.run([str(tool), command, directory, "--json"], capture_output=True, text=True, timeout=60)
        assert sentence in said.stdout, (command, said.stdout, said.stderr)
    assert sentence in " ".join(subprocess.run([str(tool), "status", directory], capture_output=True, text=True,
                                               timeout=60).stdout.split())


def test_a_library_s_own_words_come_without_its_stack(record):
    class Asks(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            return bool(model.get_score(importance_type="nothing"))

    def run():
        with pytest.raises(xgb.core.XGBoostError):
            train(callbacks=[Asks()])

    message = record(run).worker_ends()[0].message
    assert message.startswith("XGBoostError: Unknown feature importance type")
    assert "\n" not in message and "[bt]" not in message and ".cc:" not in message


def test_the_model_is_the_same_bit_for_bit(record):
    made = []
    record(lambda: made.append(train()), plan(*EVERYTHING))
    bare = train()[0]
    assert bytes(made[0][0].save_raw("ubj")) == bytes(bare.save_raw("ubj"))


def test_a_continued_model_continues_the_steps(record, tmp_path):
    first = train(3)[0]
    trial = record(lambda: train(2, xgb_model=first), plan(*EVERYTHING))
    assert trial.steps() == [3, 4]


def test_early_stopping_and_its_last_round_are_recorded(record):
    made = []

    def run():
        x, y = table(40)
        data, noise = xgb.DMatrix(x, y), xgb.DMatrix(*table(40, seed=3))
        made.append(xgb.train({"eta": 1.0, "max_depth": 6, "nthread": 1}, data, 50, evals=[(noise, "noise")],
                              early_stopping_rounds=2, verbose_eval=False))

    trial = record(run)
    assert trial.steps() == list(range(made[0].num_boosted_rounds()))
    assert len(trial.steps()) < 50


def test_cv_records_its_means(record):
    made = []

    def run():
        made.append(xgb.cv({"max_depth": 2, "nthread": 1}, xgb.DMatrix(*table()), 3, nfold=3, seed=1, as_pandas=False))

    trial = record(run)
    assert [float(trial.tensor("test-rmse").value(s)[0]) for s in trial.steps()] == made[0]["test-rmse-mean"]
    assert [float(trial.tensor("test-rmse-std").value(s)[0]) for s in trial.steps()] == made[0]["test-rmse-std"]


def test_an_estimator_and_a_second_training_have_runs_of_their_own(record):
    sklearn = pytest.importorskip("sklearn")    # noqa: F841  XGBRegressor needs it
    x, y = table()

    def run():
        for _ in range(2):
            xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(x, y, eval_set=[(x, y)], verbose=False)

    trial = record(run)
    assert trial.tensor_names(collection="metrics") == ["validation_0-rmse"]
    assert tdbg.open(record.directory + "-2").steps() == [0, 1, 2]


def test_runs_are_numbered_from_the_directory_that_was_asked_for(record):
    """As in a search over parameters in parallel processes: another one has x, so this one's are x-2 and x-3."""
    other = Run.open(directory=record.directory)
    record(lambda: [train(rounds=2), train(rounds=2)])
    other.end("completed")
    assert sorted(os.listdir(os.path.dirname(record.directory))) == ["run", "run-2", "run-3"]
    assert tdbg.open(record.directory + "-3").steps() == [0, 1]


def test_a_training_that_raises_ends_its_run_and_raises(record):
    class Breaks(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 2:
                raise KeyError("the script's own mistake")
            return False

    def run():
        with pytest.raises(KeyError):
            train(callbacks=[Breaks()])

    trial = record(run)
    assert trial.steps() == [0, 1, 2]
    assert trial.state == "ended"


def test_wrong_calls_fail_as_they_did(record):
    def run():
        with pytest.raises(TypeError):
            xgb.train()

    with adaptor.attach(dir="unused", open_run=lambda **o: pytest.fail("nothing to open")):
        run()


def test_our_failures_do_not_reach_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TDBG_STRICT")

    def refuse(**options):
        raise OSError("no room")

    with adaptor.attach(open_run=refuse):
        booster = train()[0]
    assert booster.num_boosted_rounds() == ROUNDS
    assert "nothing is captured: no room; training goes on" in capsys.readouterr().err


def test_under_the_launcher_an_untouched_script_is_recorded(tmp_path):
    tool = os.environ.get("TDBG_CLI") or os.environ.get("TDBG_BIN")
    if not tool:
        pytest.skip("no `tdbg` program: set TDBG_CLI")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent("""
        from xgboost import DMatrix, train
        import numpy as np
        x = np.random.default_rng(0).normal(size=(100, 3))
        train({"nthread": 1}, DMatrix(x, x[:, 0]), 4, evals=[(DMatrix(x, x[:, 0]), "train")], verbose_eval=False)
    """))
    done = subprocess.run([tool, "run", "--dir", str(tmp_path / "run"), "--", sys.executable, str(script)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor_names() == ["context/boosting/leading_share", "context/boosting/splits", "context/learning_rate", "train-rmse"]
    said = trial.context("boosting", 3)
    assert said["training"]["rows"] == 100 and said["features"] == 3 and said["objective"] == "reg:squarederror"
    assert said["sets"]["train"]["training"], "made once more, of the same labels"
    assert trial.context("boosting_leader", 3) == {"name": "f0"}
    assert trial.tensor("context/boosting/leading_share").value(3) > 0.99
    splits = [float(trial.tensor("context/boosting/splits").value(s)) for s in trial.steps()]
    assert splits == sorted(set(splits)) and splits[0] > 0, "each round has further ones"


def test_ranking_and_its_metric(record):
    made = []

    def run():
        x, _ = table(120)
        data = xgb.DMatrix(x, np.tile([0, 1, 2, 3], 30), group=[12] * 10)
        log = {}
        made.append((xgb.train({"objective": "rank:ndcg", "eval_metric": "ndcg@5", "nthread": 1}, data, 3,
                               evals=[(data, "train")], evals_result=log, verbose_eval=False), data, log))

    trial = record(run, plan("metrics", "losses", "predictions", "average_shap"))
    booster, data, log = made[0]
    assert trial.tensor_names(collection="metrics") == ["train-ndcg@5"]
    assert [trial.tensor("train-ndcg@5").value(s)[0] for s in trial.steps()] == log["train"]["ndcg@5"]
    assert np.array_equal(trial.tensor("predictions").value(2), booster.predict(data))
    assert trial.tensor("average_shap/f0").value(2)[0] == pytest.approx(
        booster.predict(data, pred_contribs=True)[:, 0].mean(), abs=2e-6)


def test_several_classes_by_an_estimator(record):
    pytest.importorskip("sklearn")
    x, y = table()
    classes = np.digitize(y, [-1, 1])
    made = []
    trial = record(lambda: made.append(xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(
        x, classes, eval_set=[(x, classes)], verbose=False)), plan("metrics", "losses", "predictions", "labels", "trees"))
    assert trial.tensor_names(collection="losses") == ["validation_0-mlogloss"]
    assert trial.tensor("predictions").value(2).shape == (200, 3)
    np.testing.assert_allclose(trial.tensor("predictions").value(2), made[0].predict_proba(x), rtol=1e-6)
    # A round is a tree per class: all of them are its trees.
    assert sorted(set(trial.tensor("trees/Tree").value(1).tolist())) == [3, 4, 5]


@pytest.mark.parametrize("few_splits", [10, 10_000], ids=["of the new trees", "of all trees"])
def test_importances_after_many_rounds_are_those_of_all_trees(record, monkeypatch, few_splits):
    monkeypatch.setattr(adaptor_training, "FEW_SPLITS", few_splits)
    made = []
    trial = record(lambda: made.append(train(60)), plan("feature_importance", interval=7))
    booster = made[0][0]
    for step in (0, 7, 56):
        for kind in ("weight", "gain", "total_cover"):
            scores = booster[: step + 1].get_score(importance_type=kind)
            for feature, score in scores.items():
                assert trial.tensor(f"feature_importance/{kind}/{feature}").value(step)[0] == pytest.approx(
                    score / sum(scores.values()), rel=1e-6)


class _Library:
    """XGBoost's C library, but for one function."""

    def __init__(self, function):
        self.asked = 0

        def counted(*arguments):
            self.asked += 1
            return function(*arguments)

        self.XGBoosterFeatureScore = counted


def test_scores_are_those_of_get_score(monkeypatch):
    model = train()[0]
    real = xgb.core._LIB.XGBoosterFeatureScore
    expected = {kind: model.get_score(importance_type=kind) for kind in ("weight", "total_gain", "cover")}

    def ask(function):
        library = _Library(function)
        monkeypatch.setattr(scores_module.core, "_LIB", library)
        found = scores_module.Scores()
        monkeypatch.undo()                  # get_score itself goes through it, too
        for _ in range(3):
            assert {kind: found.of(model, kind) for kind in expected} == expected
        return library.asked

    assert ask(real) == 9, "asked first and then believed"
    assert ask(lambda *arguments: -1) == 1, "an error is not asked again"

    def wrong(*arguments):
        status = real(*arguments)
        arguments[-1]._obj[0] = 123.0
        return status

    assert ask(wrong) == 1, "nor is whoever says something else"


@pytest.mark.parametrize("params", [{}, {"objective": "multi:softprob", "num_class": 3}, {"booster": "dart"}], ids=str)
@pytest.mark.parametrize("kind", [xgb.DMatrix, xgb.QuantileDMatrix])
def test_shap_values_of_a_sample_are_exact_and_it_is_said_which_rows_they_are(record, capsys, params, kind):
    x, y = table()
    x[::7, 2] = np.nan
    classes = params.get("num_class", 1)
    made = []

    def run():
        data = kind(x, np.digitize(y, [-1, 1]) if classes > 1 else y, feature_names=list("abcd"),
                    base_margin=np.linspace(0, 1, 200 * classes).reshape(200, classes))
        made.append((xgb.train({"nthread": 1, "max_depth": 3, "tree_method": "hist", **params}, data, ROUNDS), data))

    trial = record(run, plan("average_shap", "full_shap", shap_rows=30))
    run()
    (model, data), (bare, _) = made
    assert bytes(model.save_raw("ubj")) == bytes(bare.save_raw("ubj"))
    assert trial.dropped() == []
    said = trial.context("shap_sample", 0)
    rows = said["rows"]
    assert said["of"] == 200 and len(set(rows)) == 30 and rows == sorted(rows) and set(rows) <= set(range(200))
    assert capsys.readouterr().err == "tdbg: SHAP values are those of 30 of 200 rows (shap_rows)\n"
    rounds = [ROUNDS - 1] if "booster" in params else range(ROUNDS)      # DART's trees change afterwards
    for step in rounds:
        exact = model[: step + 1].predict(data, pred_contribs=True) if step < ROUNDS - 1 else \
            model.predict(data, pred_contribs=True)
        np.testing.assert_allclose(trial.tensor("full_shap/b").value(step), exact[rows], atol=5e-6)
        np.testing.assert_allclose(trial.tensor("average_shap/b").value(step),
                                   np.atleast_1d(exact[rows].mean(axis=0)[..., 1]), atol=5e-6)


@pytest.mark.parametrize("wanted", [0, 200, 1000])
def test_as_many_rows_as_there_are_is_no_sample(record, capsys, wanted):
    trial = record(train, plan("full_shap", shap_rows=wanted))
    assert trial.tensor("full_shap/f0").value(0).shape == (200, 5)
    assert trial.context("shap_sample", 0) is None and capsys.readouterr().err == ""


def test_the_configuration_says_how_many_rows(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    if not (os.environ.get("TDBG_CLI") or os.environ.get("TDBG_BIN")):
        pytest.skip("no `tdbg` program: set TDBG_CLI")
    monkeypatch.delenv("TDBG_RUN", raising=False)
    x, y = table()
    config = {"shap_rows": 40, "rules": [], "collections": {"full_shap": {"save_interval": 1}}}
    with adaptor.attach(dir=str(tmp_path / "run"), config=config):
        model = xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(x, y)        # trains on a QuantileDMatrix
    trial = tdbg.open(str(tmp_path / "run"))
    exact = model.get_booster().predict(xgb.DMatrix(x), pred_contribs=True)
    rows = trial.context("shap_sample", 2)["rows"]
    assert trial.dropped() == [] and len(rows) == 40
    np.testing.assert_allclose(trial.tensor("full_shap/f0").value(2), exact[rows], atol=5e-6)
    with pytest.raises(ValueError, match="shap_rows.*at least 1"):
        adaptor.attach(dir=str(tmp_path / "bad"), config={"shap_rows": 0})


@pytest.mark.parametrize("limit", [32, 0], ids=["recorded", "one too many"])
def test_what_comes_as_an_iterator_reaches_the_training(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("tdbg.adaptors.boosting.session.MAX_TRAININGS", limit)
    (x, y), (xv, yv) = table(), table(60, seed=1)
    data, validation = xgb.DMatrix(x, y), xgb.DMatrix(xv, yv)

    def run():
        log, seen = {}, []

        class Count(xgb.callback.TrainingCallback):
            def after_iteration(self, model, epoch, evals_log):
                seen.append(epoch)

        booster = xgb.train({"max_depth": 3, "nthread": 1}, data, ROUNDS, evals=zip([data, validation], ["train", "v"]),
                            callbacks=(c for c in [Count()]), early_stopping_rounds=3, evals_result=log, verbose_eval=False)
        return booster.save_raw("json"), log, seen

    bare = run()
    with adaptor.attach(open_run=Run.open, directory=str(tmp_path / "run"), plan_json=plan("metrics", "labels")):
        watched = run()
        with pytest.raises(ZeroDivisionError):
            xgb.train({}, data, 1, evals=((data, 1 / 0) for _ in range(1)))
    assert watched == bare and list(bare[1]) == ["train", "v"] and bare[2] == list(range(ROUNDS))
    if limit:
        trial = tdbg.open(str(tmp_path / "run"))
        assert trial.tensor_names(collection="metrics") == ["train-rmse", "v-rmse"]
        assert np.array_equal(trial.tensor("labels").value(0), yv)


def with_warnings(function):
    """(what it returned, the texts of the warnings of ways to call that will go)"""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = function()
    return result, [str(w.message) for w in said if w.category is FutureWarning]


def test_what_is_given_by_position_as_older_programs_do_is_recorded(record):
    """XGBoost takes it by position in the order of its signature, and warns; so it does under watch."""
    class Count(xgb.callback.TrainingCallback):
        def __init__(self):
            self.rounds = 0

        def after_iteration(self, model, epoch, evals_log):
            self.rounds += 1
            return False

    (x, y), params = table(), {"max_depth": 3, "nthread": 1}
    data = xgb.DMatrix(x, y)
    names = [n for n, p in inspect.signature(xgb.train).parameters.items() if n not in ("params", "dtrain")]

    def run(**by_position):
        """All that there is as far as the last of these, by position."""
        defaults = inspect.signature(xgb.train).parameters
        last = max(names.index(n) for n in by_position)
        return xgb.train(params, data, *[by_position.get(n, defaults[n].default) for n in names[: last + 1]])

    def both():
        log, count = {}, Count()
        first = run(num_boost_round=3, evals=[(data, "train")])
        second = run(num_boost_round=4, evals=iter([(data, "t")]), evals_result=log, verbose_eval=False, callbacks=[count])
        return first.save_raw("json"), second.save_raw("json"), log, count.rounds

    bare = with_warnings(both)
    seen = []
    trial = record(lambda: seen.append(with_warnings(both)))
    assert seen == [bare] and len(bare[1]) == 2 and bare[0][3] == 4
    assert trial.steps() == [0, 1, 2] and "train-rmse" in trial.tensor_names()
    second = tdbg.open(record.directory + "-2")
    assert second.steps() == [0, 1, 2, 3]
    assert [float(second.tensor("t-rmse").value(s)[0]) for s in range(4)] == bare[0][2]["t"]["rmse"]


def test_cv_and_an_estimator_s_fit_by_position_are_recorded(record):
    (x, y), (xv, yv) = table(), table(60, seed=1)

    def both():
        found = xgb.cv({"nthread": 1}, xgb.DMatrix(x, y), 3, 4, as_pandas=False)
        model = xgb.XGBRegressor(n_estimators=2, n_jobs=1).fit(x, y, None, None, [(xv, yv)], verbose=False)
        return found, model.evals_result()

    bare = with_warnings(both)
    seen = []
    trial = record(lambda: seen.append(with_warnings(both)))
    assert seen == [bare] and len(bare[1]) == 2
    assert [float(trial.tensor("test-rmse").value(s)[0]) for s in range(3)] == bare[0][0]["test-rmse-mean"]
    assert tdbg.open(record.directory + "-2").tensor_names(collection="metrics") == ["validation_0-rmse"]


def test_a_call_that_cannot_be_read_trains_and_that_is_said_once(monkeypatch, capsys):
    """Something has replaced the function by one that takes anything."""
    original = xgb.training.train

    def anything(*args, **kwargs):
        return original(*args, **kwargs)

    (x, y) = table()
    data = xgb.DMatrix(x, y)
    for owner in (xgb.training, xgb, xgb.sklearn):
        monkeypatch.setattr(owner, "train", anything)
    with adaptor.attach(open_run=lambda **o: pytest.fail("nothing to open")):
        assert xgb.train({"nthread": 1}, data, 2).num_boosted_rounds() == 2
        assert xgb.train({"nthread": 1}, data, 3).num_boosted_rounds() == 3
        with pytest.raises(TypeError):
            xgb.train({"nthread": 1}, data, no_such_thing=1)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("a training is not recorded: xgboost.train was called") == 1 and "(tdbg:" not in said
