"""The untouched examples under `tdbg run`: the names that the specification gives, every fifth round."""

import os
import pathlib
import subprocess
import sys

import pytest

import tdbg

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
ABALONE = ROOT / "examples" / "abalone"


@pytest.mark.parametrize("script,library", [("train.py", "xgboost"), ("train_lightgbm.py", "lightgbm")])
def test_an_untouched_example(tmp_path, script, library):
    pytest.importorskip(library)
    if not BINARY.exists():
        pytest.skip(f"no binary at {BINARY}; build it (make build) or set TDBG_BIN")
    env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k != "PYTHONPATH"}
    env["TDBG_HOME"] = os.environ.get("TDBG_HOME", str(ROOT / "python"))
    done = subprocess.run([str(BINARY), "run", "--quiet", "--dir", str(tmp_path / "run"), "--config",
                           str(ABALONE / "scenario.yaml"), "--", sys.executable, str(ABALONE / script), "--rounds", "11"],
                          env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor_names(collection="metrics") == ["train-rmse", "validation-rmse"]
    assert "feature_importance/weight/length" in trial.tensor_names(collection="feature_importance")
    for name in ("train-rmse", "average_shap/length", "feature_importance/gain/sex"):
        assert trial.tensor(name).steps(kind="raw") == [0, 5, 10], name
