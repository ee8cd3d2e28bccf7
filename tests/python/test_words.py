"""What we say beside a training fits 100 columns, wherever it is said from."""

import importlib.util
import re
from pathlib import Path

import pytest

from tdbg.adaptors import guard
from tdbg.words import wrapped

ROOT = Path(__file__).parents[2]
#: Who names it to stderr, and why that may be.
PYTHON = {"adaptors/guard.py": "say, which breaks lines", "boot/sitecustomize.py": "before anything of ours is there: breaks lines itself",
          "export.py": "a child's word to its parent", "checkpoint.py": "a child's word to its parent",
          "hook/base.py": "says so of guard.py", "__main__.py": "an error: one line", "adaptors/plan.py": "reads a child's", "rules/testing.py": "reads a child's",
          "forward/main.py": "an error: one line", "handlers/endpoint.py": "reads a child's", "handlers/host.py": "hands on what a handler prints",
          "adaptors/torch/replay.py": "flushes it, and turns torch's own aside", "migrate/main.py": "errors: one line each; progress",
          "container/archive.py": "an error, to the service: one line", "container/xgboost_algorithm.py": "an error, to the service: one line",
          "container/requirements.py": "an error, to the service: one line",
          "agents/main.py": "an error: one line",
          "agents/questions.py": "reads a child's", "reading/notebook.py": "reads a child's"}


@pytest.mark.parametrize("text, indent, columns, lines", [
    ("one two three", 4, 11, ["one two", "    three"]), ("one two", 4, 11, ["one two"]), ("", 2, 80, [""]),
    ("größe größer", 2, 8, ["größe", "  größer"]), ("anythingthatislong x", 2, 8, ["anythingthatislong", "  x"]),
    ("  gradients: 3 of 4", 6, 100, ["  gradients: 3 of 4"]),
])
def test_a_text_is_broken_at_blanks(text, indent, columns, lines):      # as src/cli/terminal_test.cc has it
    assert wrapped(text, indent, columns).split("\n") == lines


def test_notes_of_any_length_fit_100_columns(capsys):
    for length in (10, 93, 94, 95, 300, 3000):
        guard.say(" ".join(["word"] * (length // 5)))
    guard.say(f"could not capture (an optimizer's step: {'RuntimeError: expected all tensors on one device ' * 9})")
    said = capsys.readouterr().err.splitlines()
    assert len(said) > 40 and max(map(len, said)) <= 100
    assert all(line.startswith(("tdbg: ", "      ")) for line in said)


def test_nobody_else_writes_to_stderr():
    package = ROOT / "python" / "tdbg"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if "stderr" in path.read_text()}
    assert found <= set(PYTHON), "say() breaks lines at 100 columns"
    sources = [path for room in ("session", "capture", "cli", "store/writer", "jobs", "ship") for path in (ROOT / "src" / room).rglob("*.cc")
               if not path.name.endswith("_test.cc")]
    assert len(sources) > 60
    direct = {path.name for path in sources if re.search(r"std::cerr|fprintf\(stderr|write\(STDERR_FILENO|fputs\(.*stderr", path.read_text())}
    assert direct <= {"notices.cc"}, "TellOnce and cli::Tell break lines at 100 columns"


def test_what_the_attached_part_says_fits_too(capsys):
    spec = importlib.util.spec_from_file_location("attached", ROOT / "python" / "tdbg" / "boot" / "sitecustomize.py")
    attached = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(attached)
    attached._say("cannot watch torch (" + "ImportError: undefined symbol in a library " * 8 + "); the program goes on without")
    attached._say("/" + "a" * 200)
    said = capsys.readouterr().err.splitlines()
    assert len(said) > 4 and said[-1] == "tdbg: /" + "a" * 200 and max(map(len, said[:-1])) <= 100
    assert all(line.startswith(("tdbg: ", "      ")) for line in said)
