"""What smdebug's XGBoost hook does under tdbg beside what the real one does (test_programs.py compares those)."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("TDBG_HOME", str(ROOT / "python")))
xgboost = pytest.importorskip("xgboost")
pytest.importorskip("tdbg._capture")

import tdbg  # noqa: E402
from tdbg.adaptors import xgboost as adaptor  # noqa: E402
from tdbg.adaptors.plan import find_cli  # noqa: E402
from tdbg.exceptions import InvalidCollectionConfiguration, SMDebugError  # noqa: E402
from tdbg.hook import SaveConfig  # noqa: E402
from tdbg.hook.singleton import del_hook  # noqa: E402
from tdbg.hook.xgboost import Hook, get_hook  # noqa: E402
from tdbg.modes import ModeKeys  # noqa: E402

X = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.float32)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("TDBG_STRICT", "1")
    yield
    del_hook()


def train(hook, rounds=4, **options):
    data = xgboost.DMatrix(X, Y)
    params = {"max_depth": 2, "nthread": 1, **options.pop("params", {})}
    return xgboost.train(params, data, rounds, evals=[(data, "train")], verbose_eval=False, callbacks=[hook], **options)


def test_metrics_every_tenth_round_is_what_nobody_asked_for(tmp_path):
    hook = Hook(str(tmp_path / "run"))
    assert hook.has_default_hook_configuration()
    train(hook, 21)
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.tensor_names() == ["train-rmse"] and trial.steps() == [0, 10, 20]


def test_metrics_reach_tensorboard(tmp_path):
    cli = find_cli()
    if cli is None:
        pytest.skip("there is no `tdbg` program")
    hook, metrics = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=2)), {}
    train(hook, 4, evals_result=metrics)
    hook.close()
    subprocess.run([cli, "export", tmp_path / "run", tmp_path / "board", "--to", "tensorboard"], check=True, capture_output=True)
    (file,) = (tmp_path / "board").rglob("events.out.tfevents.*")
    dump = json.loads(subprocess.run([cli, "dump", file], check=True, capture_output=True, text=True).stdout)
    found = {(record["step"], value["tag"]): value["simple_value"]
             for record in dump["records"] for value in record.get("values", [])}
    rmse = metrics["train"]["rmse"]
    assert found == {(step, "losses/train-rmse"): pytest.approx(rmse[step]) for step in (0, 2)}


def test_a_round_is_there_when_it_has_ended(tmp_path):
    seen = []

    class Looks(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append(tdbg.open(str(tmp_path / "run")).steps())
            return False

    hook = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=1))
    data = xgboost.DMatrix(X, Y)
    xgboost.train({"nthread": 1}, data, 3, evals=[(data, "t")], verbose_eval=False, callbacks=[hook, Looks()])
    hook.close()
    assert seen == [[0], [0, 1], [0, 1, 2]]


def test_a_continued_training_goes_on_counting(tmp_path):
    first = train(Hook(str(tmp_path / "a"), save_config=SaveConfig(save_interval=1)), 3)
    hook = Hook(str(tmp_path / "b"), save_config=SaveConfig(save_interval=1))
    train(hook, 2, xgb_model=first)
    hook.close()
    assert tdbg.create_trial(str(tmp_path / "b")).steps() == [3, 4]


def test_own_scalars_and_modes(tmp_path):
    hook = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=1))
    hook.set_mode(ModeKeys.TRAIN)
    hook.save_scalar("before", 1.5)
    train(hook, 2)
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.tensor("scalar/before").value(0) == 1.5
    assert list(trial.modes()) == [ModeKeys.TRAIN] and trial.steps(ModeKeys.TRAIN) == [0, 1]


def test_what_the_launcher_arms_records_the_training_once(tmp_path, monkeypatch):
    opened = []
    with adaptor.attach(open_run=lambda **given: opened.append(given)):
        hook = Hook(str(tmp_path / "run"))
        train(hook)
        hook.close()
    assert opened == []
    assert tdbg.open(str(tmp_path / "run")).steps()


def test_dart_and_linear_boosters_are_taken_for_what_they_are(tmp_path):
    for booster in ("dart", "gblinear"):
        hook = Hook(str(tmp_path / booster), include_collections=["average_shap", "feature_importance"],
                    save_config=SaveConfig(save_interval=1), train_data=xgboost.DMatrix(X, Y))
        model = train(hook, 3, params={"booster": booster})
        hook.close()
        trial = tdbg.create_trial(str(tmp_path / booster))
        expected = model.predict(xgboost.DMatrix(X), pred_contribs=True).mean(axis=0)
        for i in range(3):
            assert float(trial.tensor(f"average_shap/f{i}").value(2)[0]) == pytest.approx(expected[i], abs=1e-5)


def test_data_from_files(tmp_path):
    (tmp_path / "a.csv").write_text("".join(f"{y},{','.join(map(str, x))}\n" for x, y in zip(X, Y)))
    hook = Hook(str(tmp_path / "run"), include_collections=["labels"], save_config=SaveConfig(save_interval=1),
                validation_data=(str(tmp_path / "a.csv"), "csv"))
    train(hook, 1)
    hook.close()
    assert tdbg.create_trial(str(tmp_path / "run")).tensor("labels").value(0).tolist() == Y.tolist()


@pytest.mark.parametrize("data, message", [("x", "is accepted"), (("nowhere.csv", "csv"), "no such file"),
                                           ((__file__, "parquet"), "are accepted"), ((1, "csv"), "is accepted")])
def test_data_that_cannot_be_meant(tmp_path, data, message):
    with pytest.raises(SMDebugError, match=message):
        Hook(str(tmp_path / "run"), train_data=data)


def test_configuration_that_can_mean_nothing_is_raised_before_the_first_round(tmp_path):
    hook = Hook(str(tmp_path / "run"))
    hook.get_collection("mine")
    with pytest.raises(InvalidCollectionConfiguration):
        train(hook)


def test_from_smdebugs_json_file(tmp_path, monkeypatch):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "run"), "CollectionConfigurations": [
        {"CollectionName": "feature_importance"}, {"CollectionName": "trees", "CollectionParameters": {"save_steps": "2"}}]}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    hook = get_hook()
    assert isinstance(hook, Hook) and get_hook() is hook
    train(hook, 4)
    hook.close()
    trial = tdbg.create_trial(str(tmp_path / "run"))
    assert trial.steps() == [0, 2] and "feature_importance/gain/f0" in trial.tensor_names(step=0)
    assert trial.tensor("trees/Tree").steps() == [0, 2]


def test_a_failure_of_ours_never_reaches_the_training(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TDBG_STRICT")
    hook = Hook(str(tmp_path / "run"), save_config=SaveConfig(save_interval=1))
    monkeypatch.setattr("tdbg.adaptors.xgboost.training.Training.record", lambda *unused: 1 / 0)
    model = train(hook, 15)
    hook.close()
    assert model.num_boosted_rounds() == 15
    said = capsys.readouterr().err
    assert said.count("could not capture") == 1 and "10 failures" in said
    assert tdbg.open(str(tmp_path / "run")).dropped()
