#!/usr/bin/env python3
"""What a reader goes by is true: every room has a README that names each of its files, files that a table names are
there, and links lead somewhere.

A room is a folder of a `tdbg_room` line in CMakeLists.txt, or one that has a README with a table of files. Tests,
`testing.h` and `__init__.py` need no mention.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".cc", ".h", ".py", ".sh"}
TABLE = re.compile(r"^\| *files? *\|.*\n\|[-| :]+\|\n((?:\|.*\n?)*)", re.MULTILINE)
WORD = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


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
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
