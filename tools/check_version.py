#!/usr/bin/env python3
"""One version: pyproject.toml says it, CMake reads it there, everybody else says the same or nothing.

`tools/check_version.py --print` prints it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = "pyproject.toml"
# Who has to say it again, and how: smdebug's names are a distribution of their own.
TWINS = {"smdebug-compat/pyproject.toml": re.compile(r'^version = "([^"]*)"$', re.MULTILINE)}
# Who must not say it: these are told by CMake.
SILENT = ("CMakeLists.txt", "src/cli/version.h", "python/tdbg/__init__.py")
NUMBER = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def version_of(text):
    """What pyproject.toml says; None where it says no version of three numbers."""
    found = re.findall(r'^version = "([^"]*)"$', text, re.MULTILINE)
    return found[0] if len(found) == 1 and NUMBER.fullmatch(found[0]) else None


def complaints(read):
    """'file: what' for each place that disagrees.

    :param read: of a path below the repository its text
    """
    version = version_of(read(SOURCE))
    if version is None:
        return [f'{SOURCE}: no line version = "MAJOR.MINOR.PATCH"']
    found = []
    for name, pattern in TWINS.items():
        said = pattern.findall(read(name))
        if said != [version]:
            found.append(f"{name}: says {', '.join(said) or 'no version'}; {SOURCE} says {version}")
    for name in SILENT:
        if version in read(name):
            found.append(f"{name}: says {version} itself; it is told by CMake, which reads {SOURCE}")
    headings = HEADING.findall(read("CHANGELOG.md"))
    if headings[:1] != ["Next"]:
        found.append('CHANGELOG.md: the first section is not "Next"')
    if not re.fullmatch(re.escape(version) + r", \d{4}-\d{2}-\d{2}", (headings[1:2] or [""])[0]):
        found.append(f'CHANGELOG.md: the section after "Next" is not "{version}, DATE", the version that {SOURCE} says')
    return found


def main():
    def read(name):
        return (ROOT / name).read_text()

    if sys.argv[1:] == ["--print"]:
        print(version_of(read(SOURCE)))
        return 0
    found = complaints(read)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
