"""A page that is not its sources' is found."""

import shutil

import build_page
import check_page
import pytest


@pytest.fixture
def copied(tmp_path, monkeypatch):
    for name in ("src", "dist"):
        shutil.copytree(build_page.UI / name, tmp_path / "ui" / name)
    for name in ("build.mjs", "package.json", "package-lock.json"):
        shutil.copy(build_page.UI / name, tmp_path / "ui")
    monkeypatch.setattr(build_page, "ROOT", tmp_path)
    monkeypatch.setattr(build_page, "UI", tmp_path / "ui")
    monkeypatch.setattr(build_page, "NOTE", tmp_path / "ui/dist/sources.txt")
    return tmp_path / "ui"


def test_the_committed_page_is_its_sources(copied):
    assert check_page.complaints(rebuild=False) == []


@pytest.mark.parametrize("name", ["src/main.ts", "src/page.css", "build.mjs", "package-lock.json", "dist/page.js", "dist/page.html"])
def test_a_change_of_either_side_is_found(copied, name):
    with (copied / name).open("a") as file:
        file.write("\n")
    assert "run tools/build_page.py" in check_page.complaints(rebuild=False)[0]


def test_a_page_that_grew_is_found(copied, monkeypatch):
    monkeypatch.setattr(build_page, "MOST_COMPRESSED", 1000)
    assert "more than 1000" in check_page.complaints(rebuild=False)[0]
