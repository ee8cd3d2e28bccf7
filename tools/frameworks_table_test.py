"""The table of docs/frameworks.md: written from records, and seen when it is out of date."""

import json
import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import frameworks_table  # noqa: E402

RECORD = {"framework": "Boost", "version": "1.0", "python": "3.11.2", "collections": ["metrics", "trees"],
          "default": ["metrics"], "absent": {"weights": "a sum of trees", "biases": "a sum of trees", "inputs": "no layers"},
          "checks": {"test_names": "passed", "test_late": "known: named too late", "test_fork": "passed"}}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "build" / "conformance").mkdir(parents=True)
    page = f"# Frameworks\n\n{frameworks_table.BEGIN}\n{frameworks_table.END}\n\nThe rest.\n"
    (tmp_path / "docs" / "frameworks.md").write_text(page)

    def record(**changed):
        made = {**RECORD, **changed}
        (tmp_path / "build" / "conformance" / f"{made['framework']}.json").write_text(json.dumps(made))

    return types.SimpleNamespace(path=tmp_path, page=tmp_path / "docs" / "frameworks.md", record=record,
                                 main=lambda *arguments: frameworks_table.main(list(arguments), tmp_path))


def test_a_row_says_what_the_run_did(root):
    root.record()
    assert root.main() == 0
    text = root.page.read_text()
    assert ("| Boost | 1.0, Python 3.11.2 | **metrics**, trees | weights, biases: a sum of trees; inputs: no layers | "
            "2 of 3; known: late: named too late |") in text
    assert text.endswith(f"{frameworks_table.END}\n\nThe rest.\n")
    assert root.main("--check") == 0


def test_a_framework_without_a_python_names_none(root):
    root.record(python=None)
    root.main()
    assert "| Boost | 1.0 | **metrics**" in root.page.read_text()


def test_versions_move_and_what_is_verified_does_not(root, capsys):
    root.record()
    root.main()
    root.record(version="9.9", python="3.14.0")
    assert root.main("--check") == 0
    root.record(collections=["metrics"])
    assert root.main("--check") == 1
    assert "Boost: its row is not what its run says" in capsys.readouterr().err


def test_other_rows_stay_and_a_framework_without_one_is_named(root, capsys):
    root.record()
    root.main()
    (root.path / "build" / "conformance" / "Boost.json").unlink()
    root.record(framework="Another")
    assert root.main("--check") == 1
    assert "Another: has no row" in capsys.readouterr().err
    root.main()
    assert list(frameworks_table.read_rows(root.page.read_text())) == ["Another", "Boost"]


def test_a_failed_check_and_no_run_at_all_are_no_success(root, capsys):
    assert root.main("--check") == 1
    root.record(checks={"test_names": "failed"})
    root.main()
    assert root.main("--check") == 1
    assert "Boost: test_names failed" in capsys.readouterr().err
