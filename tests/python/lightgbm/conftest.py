import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, os.environ.get("TDBG_HOME", str(ROOT / "python")))
pytest.importorskip("lightgbm")
os.environ["TDBG_STRICT"] = "1"
