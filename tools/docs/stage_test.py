"""Links of the gathered pages lead to pages and files of the site."""

import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import stage  # noqa: E402

FILES = {"README.md", "docs/a.md", "docs/demo.svg", "src/base/README.md", "src/base/file.h", "src/plain/x.cc"}


def rewritten(text, name="docs/a.md"):
    return stage.rewritten(name, text, FILES)


def test_pages_and_addresses_stay_as_they_are():
    text = "[a](../README.md) [b](#here) [c](a.md#there) [d](https://x.example/y) [e](mailto:a@b)"
    assert rewritten(text) == (text, set())


def test_a_folder_is_its_readme_and_one_without_is_its_name_only():
    assert rewritten("[`base`](../src/base) [x](../src/base/#y) [plain](../src/plain)")[0] == (
        "[`base`](../src/base/README.md) [x](../src/base/README.md#y) plain")


def test_files_that_are_no_pages_come_along():
    text = "![demo](demo.svg) [file.h](../src/base/file.h)"
    assert rewritten(text) == (text, {"docs/demo.svg", "src/base/file.h"})


def test_what_is_not_there_is_left_for_the_check_of_links():
    assert rewritten("[x](none.md) [y](../src/none)")[0] == "[x](none.md) [y](../src/none)"


def test_code_stays_and_brackets_of_flags_are_no_references():
    fence = "```\ntdbg [A] [B] [x](../src/base)\n```\n"
    assert rewritten(fence)[0] == fence
    assert rewritten("tdbg [A] [B][C], `[A] [B]`\n")[0] == "tdbg [A] \\[B]\\[C], `[A] [B]`\n"


def test_every_name_of_the_package_is_on_the_python_page():
    page = stage.python_page()
    for name, module in stage.python_names():
        assert f"::: {module}.{name}\n" in page


def test_the_order_of_the_pages_is_that_of_the_index():
    index = "# Documents\n\n## Use it\n\n| | |\n|---|---|\n| [Jobs](jobs.md) | jobs |\n| [Security](../SECURITY.md) | trust |\n"
    assert stage.navigation(index) == [
        {"tdbg": "README.md"}, {"All documents": "docs/README.md"},
        {"Use it": [{"Jobs": "docs/jobs.md"}, {"Security": "SECURITY.md"}, {"Rules": "rules.md"}]}]


def test_every_document_is_in_the_order_and_what_is_made_has_its_section():
    nav = stage.navigation((stage.ROOT / stage.INDEX).read_text())
    pages = [page for entry in nav for under in entry.values() if isinstance(under, list) for one in under for page in one.values()]
    documents = {f"docs/{path.name}" for path in (stage.ROOT / "docs").glob("*.md")} - {stage.INDEX}
    assert documents | {made for section in stage.MADE.values() for made in section.values()} <= set(pages)
    assert len(pages) == len(set(pages))


def test_examples_of_docstrings_are_code(monkeypatch):
    # griffe is in the environment of `make docs` alone.
    monkeypatch.setitem(sys.modules, "griffe", types.SimpleNamespace(Extension=object))
    import examples

    text = "Says so.\n\n    >>> one()\n    [0, 1]\n    >>> two()\n\nMore.\n>>> three()"
    assert examples.fenced(text) == ("Says so.\n\n    ```pycon\n    >>> one()\n    [0, 1]\n    >>> two()\n    ```\n\nMore.\n"
                                     "```pycon\n>>> three()\n```")
