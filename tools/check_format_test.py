"""Code that clang-format would change is found with its file, and changed on request."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATTED = "int Sum(int a, int b) { return a + b; }\n"


def check(root, *arguments):
    (root / "tools").mkdir(exist_ok=True)
    for name in (".clang-format", "tools/check_format.sh"):
        shutil.copy(ROOT / name, root / name)
    return subprocess.run([root / "tools/check_format.sh", *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "src/room").mkdir(parents=True)
    return tmp_path / "src/room/a.cc"


@pytest.mark.skipif(shutil.which("clang-format-19") is None, reason="no clang-format-19 (tools/setup.sh --ci)")
def test_what_is_not_formatted_is_found_and_mended(tmp_path, source):
    source.write_text(FORMATTED.replace("a + b", "a+b"))
    done = check(tmp_path)
    assert done.returncode != 0 and "src/room/a.cc:1" in done.stderr, done
    assert check(tmp_path, "--fix").returncode == 0
    assert source.read_text() == FORMATTED
    assert check(tmp_path).returncode == 0


def test_without_the_formatter_it_says_that_nothing_was_checked(tmp_path, source, monkeypatch):
    source.write_text("int   a ;\n")
    monkeypatch.setenv("CLANG_FORMAT", "no-such-clang-format")
    monkeypatch.delenv("TDBG_REQUIRE_FORMAT", raising=False)
    done = check(tmp_path)
    assert done.returncode == 0 and "nothing was checked" in done.stderr, done
    monkeypatch.setenv("TDBG_REQUIRE_FORMAT", "1")
    assert check(tmp_path).returncode == 1
