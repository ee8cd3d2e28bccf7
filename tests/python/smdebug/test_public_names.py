"""Every public name of the real smdebug is there, or docs/migrating-from-smdebug.md says why not."""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
COMPAT = ROOT / "smdebug-compat" / "src"
REAL = ROOT / ".venv-smdebug" / "bin" / "python"
# Without blocks of commands: three backticks in front of one would make of what follows it what stands between names.
DOCUMENT = re.sub(r"```.*?```", "", (ROOT / "docs" / "migrating-from-smdebug.md").read_text(), flags=re.S)


def python(code, *paths):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([HOME, *map(str, paths or (COMPAT,))])}
    return subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=120)


def test_every_public_name_is_there_or_explained(monkeypatch):
    if not REAL.exists():
        pytest.skip("the real smdebug is not installed (.venv-smdebug)")
    listed = subprocess.run([str(REAL), str(pathlib.Path(__file__).with_name("list_names.py"))], text=True,
                            capture_output=True, timeout=200, env={**os.environ, "SMDEBUG_LOG_LEVEL": "off",
                                                            "XGBOOST_PACKAGES": sysconfig.get_path("platlib")})
    names = json.loads(listed.stdout[listed.stdout.index("{"):])
    assert len(names) > 40
    explained = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", " ".join(re.findall(r"`([^`]+)`", DOCUMENT))))
    monkeypatch.syspath_prepend(str(COMPAT))
    silent = []
    for module, members in names.items():
        try:
            ours = importlib.import_module(module)
        except ImportError:
            ours = None
        for name, of_class in members.items():
            value = getattr(ours, name, None)
            if type(value).__name__ == "NotOffered":
                value = None
            if value is None and name not in explained:
                silent.append(f"{module}.{name}")
            for member in of_class or () if value is not None else ():
                if not hasattr(value, member) and member not in explained:
                    silent.append(f"{module}.{name}.{member}")
    assert silent == [], "\n".join(silent)


def test_what_objects_have_is_there_or_explained(tmp_path):
    if not REAL.exists():
        pytest.skip("the real smdebug is not installed (.venv-smdebug)")
    told = {}
    for which, interpreter, path in (("real", REAL, ""), ("ours", sys.executable, os.pathsep.join([HOME, str(COMPAT)]))):
        (tmp_path / which).mkdir()
        done = subprocess.run([str(interpreter), str(pathlib.Path(__file__).with_name("list_attributes.py")), str(tmp_path / which)],
                              text=True, capture_output=True, timeout=100, env={
                                  **os.environ, "PYTHONPATH": path, "SMDEBUG_LOG_LEVEL": "off", "TDBG_SMDEBUG_FILES": "0"})
        assert done.returncode == 0, done.stderr[-3000:]
        told[which] = json.loads(done.stdout.partition("\nRESULT ")[2])
    explained = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", " ".join(re.findall(r"`([^`]+)`", DOCUMENT))))
    silent = [f"{what}.{name}" for what, names in told["real"]["names"].items()
              for name in names if name not in told["ours"]["names"][what] and name not in explained]
    assert silent == []
    assert told["ours"]["values"] == told["real"]["values"]


def test_small_things_of_smdebugs_take_what_the_real_ones_take(tmp_path):
    done = python(f"""
import pathlib
from smdebug.core.access_layer.utils import check_dir_exists, file_exists, has_training_ended, training_has_ended
from smdebug.core.collection import Collection
from smdebug.trials import create_trial
mine = Collection("mine")
mine.include_regex = ["a", "b"]
mine.include("c")
assert mine.include_regex == ["a", "b", "c"] and mine.matches("xbx")
mine.include_regex = "d"
assert mine.include_regex == ["d"]
mine.include_regex = None
assert mine.include_regex == []
try:
    mine.include_regex = 3
except TypeError:
    pass
else:
    raise AssertionError("3 is no regex")
place = pathlib.Path({str(tmp_path)!r}) / "run"
assert not has_training_ended(place) and not file_exists(place)
training_has_ended(place)
assert has_training_ended(place) and check_dir_exists(place) and file_exists(place)
""")
    assert done.returncode == 0, done.stderr


def test_a_boosters_trees_are_columns():
    pytest.importorskip("xgboost")
    done = python("""
import numpy as np, xgboost
from smdebug.xgboost.utils import parse_tree_model
data = xgboost.DMatrix(np.arange(40).reshape(20, 2) % 7, label=np.arange(20) % 3)
for booster in ("gbtree", "dart"):
    model = xgboost.train({"booster": booster, "max_depth": 2, "nthread": 1}, data, 2)
    table = model.trees_to_dataframe()
    for number in range(2):
        tree = table[table["Tree"] == number]
        columns = parse_tree_model(model, number)
        for name in ("Node", "ID", "Feature", "Gain"):
            assert columns[name].tolist() == tree[name].tolist(), (booster, number, name)
assert [len(column) for column in parse_tree_model(xgboost.train({"booster": "gblinear", "nthread": 1}, data, 2), 1).values()] == [0] * 11
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["smdebug.xgboost", "smdebug.mxnet", "smdebug.tensorflow"])
def test_other_frameworks_can_be_configured_without_being_there(module):
    done = python(f"""
import sys, importlib
for name in ("torch", "mxnet", "xgboost", "tensorflow"):
    sys.modules[name] = None           # an import of it fails
smd = importlib.import_module({module!r})
assert smd.modes.TRAIN.value == 1 and callable(smd.create_trial)
smd.SaveConfig(save_interval=3); smd.Collection("x")
hook = getattr(smd, "Hook", None) or smd.KerasHook
try:
    hook("/tmp/never")
except NotImplementedError as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    assert "cannot record here" in done.stdout


def test_analysis_needs_no_framework_and_no_capturing_side():
    done = python("""
import sys
sys.modules["torch"] = None
from smdebug.trials import create_trial
from smdebug.rules.rule import Rule
from smdebug.rules.rule_invoker import invoke_rule
import smdebug.exceptions
""")
    assert done.returncode == 0, done.stderr


def test_beside_the_real_distribution_it_refuses_and_says_what_to_do(tmp_path):
    info = tmp_path / "smdebug-1.0.34.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: smdebug\nVersion: 1.0.34\n")
    done = python("import smdebug", COMPAT, tmp_path)
    assert done.returncode != 0
    assert "ImportError" in done.stderr and "pip uninstall smdebug" in done.stderr


def test_what_is_not_offered_can_be_imported_and_says_so_when_it_is_used():
    done = python("""
from smdebug.profiler.utils import TimeUnits, str2bool
from smdebug.profiler.profiler_config_parser import ProfilerConfigParser
from smdebug.profiler.analysis.notebook_utils.training_job import TrainingJob
from smdebug.core.access_layer import TSAccessS3
from smdebug.rules.action.stop_training_action import StopTrainingAction
assert str2bool("yes") is str2bool("T") is str2bool(True) is True and str2bool("0") is False
for thing in (ProfilerConfigParser, lambda: TrainingJob("job", "region"), lambda: TSAccessS3("bucket", "key"),
              lambda: StopTrainingAction("rule", "prefix"), lambda: ProfilerConfigParser.profiling_enabled,
              lambda: ProfilerConfigParser()):
    try:
        thing()
    except NotImplementedError as error:
        print(error)
    else:
        raise AssertionError(thing)
try:
    str2bool("perhaps")
except ValueError as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is not offered: ") == 6 and "invalid truth value 'perhaps'" in done.stdout
    assert "tdbg does not profile" in done.stdout and "--on-issue stop" in done.stdout


def test_star_imports_bring_what_scripts_take_from_them():
    done = python("""
from smdebug.pytorch.collection import *
from smdebug.pytorch.hook import *
assert CollectionKeys.WEIGHTS == "weights" and Hook is not None and CollectionManager is not None
from smdebug.core.json_config import DEFAULT_RESOURCE_CONFIG_FILE
from smdebug.core.utils import flatten, is_s3, match_inc, split
assert is_s3("s3://a/b/c") == (True, "a", "b/c") and is_s3("s3://a") == (True, "a", "") and not is_s3("/a")[0]
assert flatten([1, [2, [3]]]) == [1, 2, 3] and split("a, b") == ["a", "b"] and match_inc("relu_1", ["^x", "lu"])
from smdebug.xgboost.collection import *
from smdebug.tensorflow.utils import get_num_workers_from_tf_config
assert get_num_workers_from_tf_config({"cluster": {"worker": ["a", "b"], "chief": ["c"]}}) == 3
""")
    assert done.returncode == 0, done.stderr
