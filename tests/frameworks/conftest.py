"""Frameworks with an environment of their own (tools/frameworks/NAME.txt) are tested there, by make test-frameworks."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)

collect_ignore = [
    wanted.stem for wanted in (ROOT / "tools" / "frameworks").glob("*.txt")
    if pathlib.Path(sys.prefix).name != f".venv-{wanted.stem}"
]
