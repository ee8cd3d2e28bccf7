"""The files below some paths that may speak of smdebug or SageMaker, as pieces of text that know their lines.

Files are read and never imported. Nothing that lies there stops the reading: what cannot be read is a Source with a
problem instead of pieces.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

SUFFIXES = (".py", ".ipynb", ".json")
# Of others' making, or copies of what lies beside them.
_SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", ".venv", "venv", ".tox", ".nox",
            ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
_LARGEST = {".py": 1 << 20, ".ipynb": 256 << 20, ".json": 4 << 20}  # bytes; notebooks carry pictures
# What a file must hold to be looked at closer.
_WORDS = {".py": re.compile(rb"smdebug|sagemaker|/opt/ml", re.IGNORECASE),
          ".ipynb": re.compile(rb"smdebug|sagemaker|/opt/ml", re.IGNORECASE),
          ".json": re.compile(rb'"(CollectionConfigurations|HookParameters|DebugHookConfig|DebugRuleConfigurations)"')}


@dataclass
class Piece:
    """A script, or a cell of a notebook."""

    text: str
    cell: int = 0  # from 1; 0: no notebook


@dataclass
class Source:
    path: str
    kind: str  # one of SUFFIXES
    pieces: list[Piece] = field(default_factory=list)
    document: Any = None  # of a .json
    problem: str = ""  # why it could not be read; pieces are empty then
    concerned: bool = True  # False: nothing in it is ours to judge


def find(paths: list[str], links: list[str]) -> Iterator[str]:
    """The files to read, each once, in the order of their names. Directories are not entered through links, so that
    there is an end; those that were left out are added to `links`."""
    seen: set[tuple[int, int]] = set()
    todo = list(reversed(paths))
    given = set(paths)
    while todo:
        path = todo.pop()
        try:
            if os.path.isdir(path):
                if os.path.islink(path) and path not in given:
                    links.append(path)
                    continue
                with os.scandir(path) as entries:
                    inside = sorted((entry.name for entry in entries), reverse=True)
                below = [os.path.join(path, name) for name in inside if name not in _SKIPPED]
                todo += [one for one in below if one.endswith(SUFFIXES) or os.path.isdir(one)]
                continue
            status = os.stat(path)
        except OSError:
            yield path  # reading it will say why
            continue
        key = (status.st_dev, status.st_ino)
        if key not in seen and (stat.S_ISREG(status.st_mode) or path in given):
            seen.add(key)
            yield path


def _bytes(path: str, limit: int) -> bytes:
    """The file's content. Raises OSError, ValueError: no regular file, or one above the limit."""
    # Not blocking: a pipe that nobody writes to would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no regular file")
        if status.st_size > limit:
            raise ValueError(f"{status.st_size >> 20} MiB; more than {limit >> 20} MiB is not read")
        return file.read(limit + 1)


def _decoded(data: bytes) -> str:
    """A script's text, as its encoding line says. Raises SyntaxError, UnicodeDecodeError."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def _cells(document: Any) -> list[Piece]:
    """The code cells of a notebook, of format 4 or 3. Raises ValueError: it is none."""
    if not isinstance(document, dict):
        raise ValueError("no notebook: its top is no object")
    cells = document.get("cells")
    if cells is None and isinstance(document.get("worksheets"), list):
        sheets = [sheet for sheet in document["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    if not isinstance(cells, list):
        raise ValueError("no notebook: it has no list of cells")
    pieces = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = cell.get("source", cell.get("input", ""))
        if isinstance(text, list):
            text = "".join(line for line in text if isinstance(line, str))
        if isinstance(text, str):
            if len(text) > _LARGEST[".py"]:
                raise ValueError(f"cell {number} is larger than {_LARGEST['.py'] >> 20} MiB")
            pieces.append(Piece(text, number))
    return pieces


def read(path: str) -> Source:
    """One file. Never raises."""
    kind = os.path.splitext(path)[1]
    source = Source(path, kind)
    try:
        data = _bytes(path, _LARGEST.get(kind, 0))
        if not _WORDS[kind].search(data):
            source.concerned = False
        elif kind == ".py":
            source.pieces = [Piece(_decoded(data))]
        elif kind == ".ipynb":
            source.pieces = _cells(json.loads(data))
        else:
            source.document = json.loads(data)
            source.pieces = [Piece(data.decode("utf-8-sig", "replace"))]
    except OSError as error:
        source.problem = error.strerror or type(error).__name__
    except (ValueError, SyntaxError, LookupError) as error:
        source.problem = str(error)
    except (RecursionError, MemoryError):
        source.problem = "nested too deeply"
    return source


def read_all(paths: list[str], links: list[str], progress: Callable[[int], None]) -> Iterator[Source]:
    for count, path in enumerate(find(paths, links), 1):
        progress(count)
        yield read(path)


_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w., ]+?=\s*)[!%].*$")
_SAME_LANGUAGE = ("%%time", "%%timeit", "%%capture", "%%prun", "%%snakeviz")


def without_magics(text: str) -> tuple[str, list[tuple[int, str]]]:
    """A cell as Python of as many lines, and the shell lines in it as (line, command)."""
    lines, shell = text.split("\n"), []
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%") and not lines[first].startswith(_SAME_LANGUAGE):
        if lines[first].startswith(("%%bash", "%%sh", "%%script", "%%!")):
            shell = [(number, line) for number, line in enumerate(lines[first + 1:], first + 2) if line.strip()]
        return "", shell
    continued = False
    for number, line in enumerate(lines):
        bare = line.strip()
        if continued:
            continued = bare.endswith("\\")
            lines[number] = ""
            continue
        indent = line[:len(line) - len(line.lstrip())]
        if bare.startswith(("!", "%")):
            command = bare.lstrip("!%")
            if bare.startswith("!") or command.startswith(("pip", "conda", "sx", "system")):
                shell.append((number + 1, command.strip()))
            lines[number] = indent + "pass"
            continued = bare.endswith("\\")
        elif bare.startswith("?") or bare.endswith("?") and not bare.startswith("#"):
            lines[number] = indent + "pass"
        elif found := _ASSIGNED_MAGIC.match(line):
            lines[number] = found.group(1) + "None"
    return "\n".join(lines), shell
