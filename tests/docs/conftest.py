import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE.parent / "cli", pathlib.Path(os.environ.get("TDBG_HOME", str(HERE.parents[1] / "python")))):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from program import tdbg  # noqa: E402,F401
