import os
import pathlib
import sys

HOME = os.environ.get("TDBG_HOME", str(pathlib.Path(__file__).resolve().parents[2] / "python"))
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)
