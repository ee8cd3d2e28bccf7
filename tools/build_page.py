#!/usr/bin/env python3
"""Builds the page (ui/) into ui/dist, which is committed and embedded into the program, and writes down of what.

Needs node and npm, for a change of the page only; what is committed is built without (tools/check_page.py compares).
"""

import gzip
import hashlib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
UI = ROOT / "ui"
FILES = ["page.html", "page.js", "page.css", "report.html"]
NOTE = UI / "dist/sources.txt"
MOST_COMPRESSED = 250_000


def source_hash() -> str:
    h = hashlib.sha256()
    for path in sorted([*(UI / "src").iterdir(), UI / "build.mjs", UI / "package.json", UI / "package-lock.json"]):
        h.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()


def compressed(directory: pathlib.Path = UI / "dist") -> int:
    return sum(len(gzip.compress((directory / name).read_bytes(), 9, mtime=0)) for name in FILES)


def note() -> str:
    lines = [f"sources {source_hash()}"]
    lines += [f"{name} {hashlib.sha256((UI / 'dist' / name).read_bytes()).hexdigest()}" for name in FILES]
    return "\n".join(lines) + "\n"


def build(directory: pathlib.Path) -> None:
    """The page's files, without types looked at."""
    subprocess.run(["node", str(UI / "build.mjs"), str(directory)], check=True)


def main() -> int:
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=UI, check=True)
    subprocess.run(["npx", "tsc", "-p", "."], cwd=UI, check=True)
    build(UI / "dist")
    NOTE.write_text(note())
    print(f"ui/dist: {compressed()} bytes compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
