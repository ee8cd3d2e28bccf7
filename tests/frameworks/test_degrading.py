"""Frameworks that are not as the adaptors know them: what can be seen is recorded, the rest is said once, and the training
does not notice. All but the last are a process each, under `tdbg run`, with a script that knows nothing: what is said is
said once per process.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
from frameworks.conformance.suite import HOME, tool

xgb = pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")
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
    """launched(source) runs it as `tdbg run` does; returns (process, the run).

    :param kept: collections that are recorded raw at every step; all others, and rules, are not
    """

    def run(source, *folders, kept=()):
        script = tmp_path / "train.py"
        script.write_text(BOOST + textwrap.dedent(source))
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD")}
        env.update(TDBG_HOME=HOME, PYTHONPATH=os.pathsep.join(map(str, folders)))
        command = [tool(), "run", "--quiet", "--dir", str(tmp_path / "run")]
        if kept:
            (tmp_path / "config.json").write_text(json.dumps({
                "rules": [], "collections": {c: {"save_interval": 1, "summaries": False} for c in kept}}))
            command += ["--config", str(tmp_path / "config.json")]
        done = subprocess.run([*command, "--", sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=200)
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
    assert sorted(p.name for p in tmp_path.glob("run*") if p.is_dir()) == ["run", "run-2"]
    # Whoever trains first has the run; the other is recorded beside it, all of it.
    assert trial.steps() == [0, 1, 2] and trial.state == "ended" and trial.dropped() == []
    assert trial.tensor_names(collection="metrics") == ["train-rmse"] and trial.tensor_names(collection="weights") == []
    beside = tdbg.open(str(tmp_path / "run-2"))
    assert beside.steps() == [0, 1] and beside.state == "ended" and beside.dropped() == []
    assert beside.tensor_names(collection="weights") == ["Linear_weight"] and beside.tensor_names(collection="metrics") == []
    assert beside.tensor("gradient/Linear_weight").steps() == [0, 1] and "tdbg:" not in done.stderr


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


def lost(trial):
    """(cause, number of tensors) of everything that is lost."""
    return [(loss.cause, loss.count) for loss in trial.dropped()]


def said(done):
    """What tdbg said, a message each: one that was broken at 100 columns goes on in lines that are indented."""
    return [message for message in re.sub(r"\n {2,}", " ", done.stderr).splitlines() if message.startswith("tdbg:")]


def test_a_private_function_that_moved_costs_its_tensor_only(launched):
    done, trial = launched("""
        import lightgbm
        del lightgbm.Booster._Booster__inner_predict
        lightgbm.Booster.eval_train = lambda self, feval=None: []     # it is built on the same function
        data = lightgbm.Dataset(x, x[:, 0])
        lightgbm.train({"num_threads": 1, "verbose": -1}, data, 4, valid_sets=[data])
        """, kept=("predictions", "labels"))
    assert trial.tensor_names(collection="labels") == ["labels"] and trial.tensor_names(collection="predictions") == []
    assert trial.steps() == [0, 1, 2, 3] and trial.tensor("labels").steps() == [0, 1, 2, 3]
    assert lost(trial) == [("unsupported", 1)]
    assert len(said(done)) == 1 and "predictions: this LightGBM does not tell the predictions it keeps" in said(done)[0]


#: What of a Booster has moved -> (what is lost with it: tensors, and once how trees grow; what is said; collections that are still there).
MOVED = {"get_score": (16, "has no attribute 'get_score'", {"metrics", "trees"}),
         "get_dump": (11, "has no attribute 'get_dump'", {"metrics", "feature_importance"}),
         "__getitem__": (26, "no slices", {"metrics"}),
         "__getitem__ of few splits": (11, "no slices", {"metrics", "feature_importance"})}


@pytest.mark.parametrize("method", MOVED)
def test_a_booster_without_a_method_trains_and_says_what_is_missing(launched, method):
    kept = ("feature_importance", "trees", "metrics")
    done, trial = launched(f"""
        import hashlib
        import xgboost
        method = "{method}"
        def moved(self, key):
            raise TypeError("no slices")
        if method.startswith("__getitem__"):
            xgboost.Booster.__getitem__ = moved
            if method == "__getitem__":
                from tdbg.adaptors.xgboost import training
                training.FEW_SPLITS = -1
        else:
            delattr(xgboost.Booster, method)
        print(hashlib.sha256(bytes(boost().save_raw("ubj"))).hexdigest())
        """, kept=kept)
    bare = {}
    exec(BOOST, bare)
    assert done.stdout.strip() == hashlib.sha256(bytes(bare["boost"]().save_raw("ubj"))).hexdigest()
    count, word, there = MOVED[method]
    assert {cause for cause, _ in lost(trial)} == {"unsupported"} and sum(n for _, n in lost(trial)) == count
    assert {c for c in kept if trial.tensor_names(collection=c)} == there
    for name in (n for c in there for n in trial.tensor_names(collection=c)):
        assert trial.tensor(name).steps() == [0, 1, 2], name
    assert len(said(done)) == 1 and word in said(done)[0]


def test_functions_that_are_gone_are_said_at_once(monkeypatch, capsys):
    from tdbg.adaptors.xgboost.attach import Session
    session = Session(lambda **options: pytest.fail("nothing to open"), {})
    monkeypatch.setattr(session, "functions", lambda: [("train", [os]), ("cv", [xgb])])
    session.install()
    session.disarm()
    assert capsys.readouterr().err.splitlines() == [
        "tdbg: xgboost has no function 'train' where it was: its trainings by it are not recorded"]
