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
DOCUMENT = (ROOT / "docs" / "migrating-from-smdebug.md").read_text()


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
            if value is None and name not in explained:
                silent.append(f"{module}.{name}")
            for member in of_class or () if value is not None else ():
                if not hasattr(value, member) and member not in explained:
                    silent.append(f"{module}.{name}.{member}")
    assert silent == [], "\n".join(silent)


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
