"""Frameworks that are not as the adaptors know them: what can be seen is recorded, the rest is said once, and the training
does not notice. The first four are a process each, under `tdbg run`, with a script that knows nothing.
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from frameworks.conformance.suite import HOME, tool

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")
tdbg = pytest.importorskip("tdbg")

BOOST = """
import numpy as np
x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
def boost():
    import xgboost
    data = xgboost.DMatrix(x, x[:, 0])
    return xgboost.train({"nthread": 1}, data, 3, evals=[(data, "train")], verbose_eval=False)
"""


@pytest.fixture
def launched(tmp_path):
    """launched(source) runs it as `tdbg run` does; returns (process, the run)."""

    def run(source, *folders):
        script = tmp_path / "train.py"
        script.write_text(BOOST + textwrap.dedent(source))
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("TDBG_")}
        env.update(TDBG_HOME=HOME, PYTHONPATH=os.pathsep.join(map(str, folders)))
        done = subprocess.run([tool(), "run", "--quiet", "--dir", str(tmp_path / "run"), "--", sys.executable, str(script)],
                              env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        return done, (tdbg.open(str(tmp_path / "run")) if (tmp_path / "run" / "0").exists() or any(
            pathlib.Path(tmp_path / "run").rglob("worker_*")) else None)

    return run


def test_two_frameworks_in_one_process(launched, tmp_path):
    done, trial = launched("""
        import torch
        boost()
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(torch.tensor(x)), torch.zeros(80, 1)).backward()
            optimizer.step()
        print("trained")
        """)
    assert done.stdout.splitlines()[-1] == "trained"
    trials = [tdbg.open(str(p)) for p in sorted(tmp_path.glob("run*")) if p.is_dir()]
    names = [set(t.tensor_names()) for t in trials]
    # Whoever trains first has the run; the other is recorded beside it, or it is said that it is not.
    assert "train-rmse" in names[0] and trials[0].steps() == [0, 1, 2]
    assert any("Linear_weight" in found for found in names) or "tdbg:" in done.stderr


def test_a_broken_install_is_the_scripts_own_affair(launched, tmp_path):
    (tmp_path / "broken" / "lightgbm").mkdir(parents=True)
    (tmp_path / "broken" / "lightgbm" / "__init__.py").write_text("raise OSError('lib_lightgbm.so: cannot open')\n")
    done, trial = launched("""
        try:
            import lightgbm
        except OSError as error:
            print("script:", error)
        boost()
        """, tmp_path / "broken")
    assert done.stdout.splitlines()[0] == "script: lib_lightgbm.so: cannot open" and "tdbg:" not in done.stderr
    assert trial.steps() == [0, 1, 2]


def test_a_framework_that_lacks_what_the_adaptor_needs(launched, tmp_path):
    (tmp_path / "other" / "lightgbm").mkdir(parents=True)
    (tmp_path / "other" / "lightgbm" / "__init__.py").write_text("__version__ = '99.0'\ndef train():\n    return 'trained'\n")
    done, _ = launched("""
        import lightgbm
        print(lightgbm.train())
        """, tmp_path / "other")
    assert done.stdout == "trained\n"
    assert done.stderr.count("cannot watch lightgbm") == 1


def boost(rounds=4):
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    data = xgb.DMatrix(x, x[:, 0])
    return xgb.train({"nthread": 1}, data, rounds, evals=[(data, "train")], verbose_eval=False)


def gradient_boost():
    x = np.random.default_rng(0).normal(size=(80, 3))
    data = lgb.Dataset(x, x[:, 0])
    return lgb.train({"num_threads": 1, "verbose": -1}, data, 4, valid_sets=[data])


def test_a_private_function_that_moved_costs_its_tensor_only(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TDBG_CLI", tool())
    monkeypatch.delattr(lgb.Booster, "_Booster__inner_predict")
    monkeypatch.setattr(lgb.Booster, "eval_train", lambda self, feval=None: [])     # it is built on the same function
    collections = {c: {"save_interval": 1, "summaries": False} for c in ("predictions", "labels")}
    with tdbg.attach(framework="lightgbm", dir=str(tmp_path / "run"), config={"rules": [], "collections": collections}):
        gradient_boost()
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor_names(collection="labels") == ["labels"] and trial.tensor_names(collection="predictions") == []
    assert len(trial.losses()) == 1 and trial.steps() == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("does not tell the predictions") <= 1


@pytest.mark.parametrize("method", ["get_score", "get_dump", "num_boosted_rounds"])
def test_a_booster_without_a_method_trains_and_says_what_is_missing(tmp_path, monkeypatch, capsys, method):
    monkeypatch.setenv("TDBG_CLI", tool())
    monkeypatch.delenv("TDBG_STRICT", raising=False)
    kept = {c: {"save_interval": 1, "summaries": False} for c in ("feature_importance", "trees", "metrics")}
    bare = bytes(boost().save_raw("ubj"))
    with monkeypatch.context() as moved:
        if method != "num_boosted_rounds":      # XGBoost's own train calls that one
            moved.delattr(xgb.Booster, method)
        else:
            moved.setattr(xgb.Booster, "__getitem__", lambda self, key: 1 / 0)
        with tdbg.attach(framework="xgboost", dir=str(tmp_path / "run"), config={"rules": [], "collections": kept}):
            model = boost()
    assert bytes(model.save_raw("ubj")) == bare
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor("train-rmse").steps() == [0, 1, 2, 3]
    assert trial.losses() and "Traceback" not in capsys.readouterr().err


def test_functions_that_are_gone_are_said_at_once(monkeypatch, capsys):
    from tdbg.adaptors.xgboost.attach import Session
    session = Session(lambda **options: pytest.fail("nothing to open"), {})
    monkeypatch.setattr(session, "functions", lambda: [("train", [os]), ("cv", [xgb])])
    session.install()
    session.disarm()
    assert capsys.readouterr().err.splitlines() == [
        "tdbg: xgboost has no function 'train' where it was: its trainings by it are not recorded"]
