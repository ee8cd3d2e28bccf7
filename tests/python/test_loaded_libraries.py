"""What tdbg brings into a training process: each shared library of ours may be another version of one of its own."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")

LOADED = """
import sys
sys.path[:0] = {path!r}

def mapped():
    with open("/proc/self/maps") as maps:
        return {{line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}}

before = mapped()
import tdbg._capture
print("\\n".join(sorted(mapped() - before)))
"""


def test_capture_brings_nothing_but_highway():
    code = LOADED.format(path=sys.path)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = {re.split(r"[.-]", pathlib.PurePath(line).name)[0] for line in out.splitlines()}
    assert "_capture" in names, out
    assert names <= {"_capture", "libhwy", "libstdc++", "libgcc_s", "libm", "libc"}, out
