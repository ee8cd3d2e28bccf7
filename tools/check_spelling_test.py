"""A misspelt word is found with its place; names, and what tests mistype on purpose, are not."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
VENV = pathlib.Path(os.environ.get("TDBG_VENV", ".venv"))

pytestmark = pytest.mark.skipif(not (ROOT / VENV / "bin" / "codespell").exists(), reason="codespell is not installed (make setup)")


def check(path, text):
    path.write_text(text)
    return subprocess.run([ROOT / "tools" / "check_spelling.sh", path], capture_output=True, text=True, timeout=60)


def test_a_misspelt_word_is_found_with_its_line(tmp_path):
    done = check(tmp_path / "a.md", "fine\nwe recie" + "ve it\n")
    assert done.returncode == 1 and "a.md:2: recie" + "ve ==> receive" in done.stdout, done


def test_names_and_words_mistyped_on_purpose_are_fine(tmp_path):
    mistyped = "tresh" + "old"
    assert check(tmp_path / "a.py", "nd = kInf\n").returncode == 0
    assert check(tmp_path / "a_test.py", f"run('{mistyped}=1')\n").returncode == 0
    assert check(tmp_path / "a.md", f'unknown key "{mistyped}"; did you mean "threshold"?\n').returncode == 0
    assert check(tmp_path / "b.md", f"the {mistyped} of a rule\n").returncode == 1
