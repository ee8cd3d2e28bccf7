"""What ruff finds and what mypy finds are both told in one go, with their files."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
VENV = ROOT / os.environ.get("TDBG_VENV", ".venv")

pytestmark = pytest.mark.skipif(not all((VENV / "bin" / name).exists() for name in ("ruff", "mypy")), reason="no ruff, mypy (make setup)")


def check(root, text):
    for folder in ("tools", "build", "python/tdbg"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("pyproject.toml", "tools/check_python.sh"):
        shutil.copy(ROOT / name, root / name)
    (root / "python/tdbg/__init__.py").write_text(text)
    return subprocess.run([root / "tools/check_python.sh"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TDBG_VENV": str(VENV)})


def test_typed_and_tidy_code_is_fine(tmp_path):
    done = check(tmp_path, "def half(x: float) -> float:\n    return x / 2\n")
    assert done.returncode == 0, done


def test_a_function_without_types_and_a_wrong_one_are_found_beside_an_unused_import(tmp_path):
    done = check(tmp_path, "import os\n\n\ndef half(x):\n    return x / 2\n\n\ndef name() -> str:\n    return 1\n")
    assert done.returncode != 0
    assert "__init__.py:1" in done.stdout and "F401" in done.stdout, done
    assert "no-untyped-def" in done.stdout and "return-value" in done.stdout, done
