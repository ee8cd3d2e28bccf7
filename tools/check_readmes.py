#!/usr/bin/env python3
"""What a reader goes by is true: every room has a README that names each of its files, files that a table names are
there, links lead somewhere, documents, headings and tests that are cited exist, and so do the files that a page names
by their path. Pages that say how to extend tdbg, or how it works, name functions and types, too: these must be in the code.

A room is a folder of a `tdbg_room` line in CMakeLists.txt, or one that has a README with a table of files. Tests,
`testing.h` and `__init__.py` need no mention.
"""

import pathlib
import posixpath
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".cc", ".h", ".py", ".sh"}
CITING = {".md", ".txt", ".cmake", ".yaml", ".yml", ".toml"}
ALSO_CITING = {"Makefile", "CMakeLists.txt", ".ci/run"}
TABLE = re.compile(r"^\| *files? *\|.*\n\|[-| :]+\|\n((?:\|.*\n?)*)", re.MULTILINE)
WORD = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")

# A document that a comment or a text cites: docs/format.md, or docs/format.md, "The world".
CITATION = re.compile(r"""(?<![\w<>{}*/.:-])([\w.][\w./-]*\.md)\b(?:\]\([^)\s]*\)|`)?(?:, "([^"\n]{1,60})")?""")
# A comment goes on in the next line: what leads that line is not part of the text.
WRAPPED = re.compile(r"\s*\n[ \t]*(?:///?|#+|\*|>)?[ \t]*")
# docs/semantics.md says which files and which tests in them hold a promise.
HELD_BY = re.compile(r"^\*Held by\*.*?(?=^$|\Z)", re.MULTILINE | re.DOTALL)
HOLDER = re.compile(r"`([\w./-]+/[\w.-]+)`(?:\s*\(((?:`[^`]+`,?\s*)+)\))?")

# A file named by its path: beside the page, or below one of these, as the room's own files write it.
PATH = re.compile(r"\w[\w.-]*(?:/[\w.-]+)+\.(?:cc|cuh?|h|md|pyi?|sh|tsx?|txt)")
PATHS_FROM = ("", "src/", "include/", "python/", "python/tdbg/", "python/tdbg/adaptors/", "tests/", "tests/frameworks/", "tests/python/")
# Pages whose names a newcomer copies. An identifier is one of two words at least: NeedsRaw, put_many.
COPIED_FROM = re.compile(r"docs/adding-a-[\w-]+\.md|docs/life-of-a-tensor\.md|ARCHITECTURE\.md|CONTRIBUTING\.md|tests/README\.md")
IDENTIFIER = re.compile(r"(?<![\w<./-])(?=\w*[a-z][A-Z]|\w*[a-z\d]_[a-z\d])[A-Za-z_]\w*(?![\w>/-])")
CODE_BLOCK = re.compile(r"```.*?```|^ {4,}[^\s*-].*$", re.MULTILINE | re.DOTALL)


def _stem(name):
    return pathlib.PurePath(name).name.split(".")[0]


def _needs_no_mention(name):
    stem = _stem(name)
    return stem in ("testing", "__init__") or stem.startswith("test_") or stem.endswith("_test")


def complaints_about_room(readme, text, files):
    """'readme: what' for files of the folder that the text does not name, and names in its tables that are not there.

    :param files: names of files and folders in the readme's folder
    """
    folder = pathlib.PurePath(readme).parent
    named = {_stem(word.rstrip("/")) for word in WORD.findall(text)}
    found = [f"{readme}: {name} is not mentioned" for name in sorted(files)
             if pathlib.PurePath(name).suffix in CODE and not _needs_no_mention(name) and _stem(name) not in named]
    stems = {_stem(name) for name in files}
    for table in TABLE.findall(text):
        for row in table.splitlines():
            for word in WORD.findall(row.split("|")[1]):
                plain = re.fullmatch(r"[\w./-]+", word) and not word.startswith(("tools/", "/"))
                if not plain or "*" in word:
                    continue
                here = _stem(word.rstrip("/")) in stems if "/" not in word.rstrip("/") else False
                if not here and not (ROOT / folder / word).exists() and not (ROOT / word).exists():
                    found.append(f"{readme}: {word} is not there")
    return found


def _anchors(text):
    """What GitHub and its like make of headings, and anchors set by hand."""
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def dead_links(name, text, read):
    """'name: what' for links to files that are not there, and to headings that are not in them.

    :param read: of a path below the repository its text ("" for what is no text); None: nothing is there
    """
    found = []
    for target, anchor in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = str(pathlib.PurePath(name).parent / target) if target else name
        there = text if not target else read(path)
        if there is None:
            found.append(f"{name}: {target} is not there")
        elif anchor and path.endswith(".md") and anchor not in _anchors(there):
            found.append(f"{name}: no heading of {target or 'its own'} makes #{anchor}")
    return found


def _citing(name, text):
    """The part of a file in which documents are cited: of tests, not their strings, which hold names of nothing."""
    path = pathlib.PurePath(name)
    if path.suffix != ".md" and (_needs_no_mention(path.name) or path.parts[0] == "tests"):
        text = re.sub(r'(""".*?""")|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda found: found[1] or "", text, flags=re.DOTALL)
    return WRAPPED.sub(" ", text)


def missing_citations(name, text, read):
    """'name: what' for documents that are cited and not there, and for headings of theirs that are not.

    A document is looked for beside the file, in the repository's root and in docs/.

    :param read: as of dead_links
    """
    found = []
    for cited, title in CITATION.findall(_citing(name, text)):
        beside = posixpath.normpath(str(pathlib.PurePath(name).parent / cited))
        texts = (read(path) for path in (beside, cited, "docs/" + cited) if not path.startswith(".."))
        there = next((each for each in texts if each is not None), None)
        if there is None:
            found.append(f"{name}: cites {cited}, which is not there")
        elif title and not re.search(rf"^#+ +{re.escape(title)} *$|^\*\*{re.escape(title)}\.?\*\*", there, re.MULTILINE):
            found.append(f'{name}: {cited} has no "{title}"')
    return found


def suites_not_named(text, folders):
    """'tests/README.md: what' for folders of tests that its text does not name."""
    named = set(WORD.findall(text))
    return [f"tests/README.md: {folder} is not mentioned" for folder in sorted(folders) if folder not in named]


def missing_holders(name, text, read):
    """'name: what' for files that a *Held by* names and that are not there, and for tests that are not in them."""
    found = []
    for path, tests in (pair for passage in HELD_BY.findall(text) for pair in HOLDER.findall(passage)):
        there = read(path)
        if there is None:
            found.append(f"{name}: {path} is not there")
        else:
            found += [f"{name}: {path} has no {test}" for test in WORD.findall(tests) if test not in there]
    return found


def missing_paths(name, text, files):
    """'name: what' for files that a text names by their path, in `quotes`, and that are nowhere it may mean.

    NAME and the like in capitals stand for any name.
    """
    here = str(pathlib.PurePath(name).parent) + "/"
    found = []
    for path in (word for word in WORD.findall(CODE_BLOCK.sub("", text)) if PATH.fullmatch(word)):
        if not re.search(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])(?!\.md)", path) and not any(root + path in files for root in (*PATHS_FROM, here)):
            found.append(f"{name}: {path} is not there")
    return found


def missing_identifiers(name, text, known):
    """'name: what' for functions, types and fields that a page names in `quotes` and that no code has.

    What a page's own block of code defines, as an example does, is there.

    :param known: all words of the code and the names of its files
    """
    examples = {word for block in CODE_BLOCK.findall(text) for word in re.findall(r"\w+", block)}
    words = (word for quoted in WORD.findall(CODE_BLOCK.sub("", text)) for word in IDENTIFIER.findall(quoted))
    return [f"{name}: nothing is called {word}" for word in dict.fromkeys(words) if word not in known and word not in examples]


def _words_of_code(files):
    """All words of source, tests and build files, with the names of files and of rooms' programs (stats_test)."""
    known = {_stem(name) for name in files}
    for name in files:
        path = pathlib.PurePath(name)
        if path.suffix in CODE | {".cuh", ".cu", ".ts", ".cmake", ".txt", ".toml"} or name in ALSO_CITING:
            known.update(re.findall(r"\w+", (ROOT / name).read_text(errors="replace")))
    rooms = re.findall(r"^tdbg_room\((\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    return known | {room.replace("/", "_") + "_test" for room in rooms}


def _contents(path):
    there = ROOT / path
    return there.read_text(errors="replace") if there.is_file() else None


def _read(path):
    there = ROOT / path
    if not there.exists():
        return None
    return there.read_text() if there.suffix == ".md" else ""


def main():
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             check=True, capture_output=True).stdout.decode().split("\0")
    files = [name for name in listing if name and (ROOT / name).exists()]
    rooms = set(re.findall(r"^tdbg_room\((\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))
    known_files, words = set(files), _words_of_code(files)
    found = []
    for room in sorted(rooms):
        if not (ROOT / "src" / room / "README.md").exists():
            found.append(f"src/{room}: no README.md")
    for name in (name for name in files if name.endswith(".md")):
        text = (ROOT / name).read_text()
        found += dead_links(name, text, _read)
        folder = pathlib.PurePath(name).parent
        is_room = str(folder).removeprefix("src/") in rooms
        if folder != pathlib.PurePath(".") and name.endswith("README.md") and (is_room or TABLE.search(text)):
            found += complaints_about_room(name, text, [entry.name for entry in (ROOT / folder).iterdir()])
        found += missing_holders(name, text, _contents)
        found += missing_paths(name, text, known_files)
        if COPIED_FROM.fullmatch(name):
            found += missing_identifiers(name, text, words)
    for name in (name for name in files if pathlib.PurePath(name).suffix in CITING | CODE or name in ALSO_CITING):
        if name.startswith("tools/docs/"):
            continue  # names pages that it makes, which `make docs` checks
        found += missing_citations(name, (ROOT / name).read_text(), _read)
    suites = {pathlib.PurePath(name).parts[1] for name in files if name.startswith("tests/") and name.count("/") > 1}
    found += suites_not_named((ROOT / "tests" / "README.md").read_text(), suites)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
