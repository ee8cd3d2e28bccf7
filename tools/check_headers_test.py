"""A public header that needs another one before it, or that may not be included twice, is found."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def check(root, **headers):
    (root / "tools").mkdir()
    (root / "include/tdbg").mkdir(parents=True)
    shutil.copy(ROOT / "tools/check_headers.py", root / "tools")
    for name, text in headers.items():
        (root / f"include/tdbg/{name}.h").write_text(text)
    return subprocess.run([sys.executable, root / "tools/check_headers.py"], capture_output=True, text=True, timeout=60)


def test_headers_that_compile_alone_are_fine(tmp_path):
    done = check(tmp_path, a="#pragma once\n#include <string>\nstd::string A();\n", b="#pragma once\n#include <tdbg/a.h>\n")
    assert done.returncode == 0 and done.stdout == "", done


def test_one_that_needs_another_and_one_that_may_come_once_only_are_found(tmp_path):
    done = check(tmp_path, a="#pragma once\nstd::string A();\n", b="inline int b = 1;\n", c="#pragma once\n")
    assert done.returncode == 1
    assert "tdbg/a.h does not compile alone" in done.stdout and "tdbg/b.h does not compile alone" in done.stdout, done
    assert "tdbg/c.h" not in done.stdout


def test_no_headers_at_all_is_a_fault(tmp_path):
    assert check(tmp_path).returncode == 1
