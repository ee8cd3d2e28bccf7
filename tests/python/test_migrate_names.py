"""The table of `tdbg migrate` and docs/migrating-from-smdebug.md say the same, and its modules are those of smdebug-compat."""

import pathlib
import re

import pytest

names = pytest.importorskip("tdbg.migrate.names")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "migrating-from-smdebug.md"
VERDICTS = {names.SAME, names.BETTER, names.DIFFERS, names.BECOMES, names.NOT_OFFERED}


def plain(cell):
    """What a cell says, without anchors and links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"</?a\b[^>]*>", "", cell)).strip()


def names_in(cell):
    words = [re.sub(r"\(.*\)$", "", word.strip()) for piece in re.findall(r"`([^`]*)`", cell) for word in piece.split(",")]
    return list(dict.fromkeys(word for word in words if re.fullmatch(r"[A-Za-z_][\w.]*", word)))


def rows_of(text):
    """(section, verdict, names, reason) of each row that names something and says what becomes of it."""
    section, found = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            section = re.sub(r" \(.*", "", line.lstrip("# "))
        elif line.startswith("| "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            if section == names.REST and len(cells) == 2 and cells[0] != "names":
                cells.insert(1, names.NOT_OFFERED)
            if len(cells) == 3 and cells[1] in VERDICTS and names_in(cells[0]):
                runs = cells[1] in (names.SAME, names.BETTER)
                found.append((section, cells[1], names_in(cells[0]), "" if runs else plain(cells[2])))
    return found


def test_the_document_and_the_table_say_the_same():
    document = rows_of(DOCUMENT.read_text())
    table = [(row.section, row.verdict, names.names(row), row.why) for row in names.ROWS]
    assert len(document) > 100
    assert [row for row in document if row not in table] == []
    assert [row for row in table if row not in document] == []


def test_a_difference_is_seen():
    text = "## Hook (`x`)\n| `save_scalar` | same | |\n| `a`, `b(c)` | not offered | [why](#x) |\n"
    assert rows_of(text) == [("Hook", "same", ["save_scalar"], ""), ("Hook", "not offered", ["a", "b"], "why")]


def test_the_modules_are_those_that_can_be_imported():
    source = ROOT / "smdebug-compat" / "src"
    files = [path.relative_to(source).with_suffix("") for path in source.rglob("*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in files}
    assert {module for module in modules if "._" not in module} == names.MODULES


@pytest.mark.parametrize("name, verdict", [("create_trial", names.BETTER), ("get_temp_path", names.SAME),
                                           ("TensorReader", names.NOT_OFFERED), ("smdebug.profiler", names.NOT_OFFERED)])
def test_where_two_modules_have_a_name_the_one_that_works_counts(name, verdict):
    assert names.of_name(name).verdict == verdict
