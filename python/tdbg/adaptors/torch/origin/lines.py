"""Which line of the script it was: of the operation, of the loss function or of `backward`.

As long as all is well nothing is kept for it. Of an operation torch itself keeps where it was called, under anomaly
detection: the script's own, or that of TDBG_NAN_ORIGIN=where. Else it is the line that called the loss function,
looked for when that has returned what is not finite, or the line that called `backward`.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from tdbg import _capture

from ...guard import pass_on

MOST_CODE = 120           # characters of a line that are shown
MOST_FRAMES = 200
OPERATION, LOSS, BACKWARD = "operation", "loss", "backward"

_BEGAN = time.time()
_LIBRARIES = sysconfig.get_paths()
_PASSED = tuple(os.path.join(where, "") for where in (
    os.path.dirname(torch.__file__), os.path.dirname(_capture.__file__)))
_STANDARD = tuple(os.path.join(_LIBRARIES[key], "") for key in ("stdlib", "platstdlib"))
_INSTALLED = tuple(os.path.join(_LIBRARIES[key], "") for key in ("purelib", "platlib"))
_FRAME = re.compile(r'\s*File "(.*)", line (\d+)')


class Line(NamedTuple):
    """`of`: whose call stands there: OPERATION, LOSS or BACKWARD. `code`: the line's text, "" where there is none to
    be had; what looks like a secret is masked in it."""

    file: str
    number: int
    code: str
    of: str

    def words(self) -> str:
        whose = {OPERATION: "", LOSS: "the loss: ", BACKWARD: "backward: "}[self.of]
        return f"{whose}{_shown(self.file)}:{self.number}" + (f", in `{self.code}`" if self.code else "")


def stack_of(node: Any) -> Any:
    """Where an operation was called, as torch keeps it under anomaly detection; holds no graph."""
    try:
        return node.metadata.get("traceback_")
    except Exception as error:
        pass_on(error)
        return None


def of_node(node: Any) -> Line | None:
    """Where an operation was called; None where torch did not keep it."""
    return of_stack(stack_of(node))


def of_stack(stack: Any) -> Line | None:
    if not isinstance(stack, (list, tuple)):
        return None
    found = (_FRAME.match(frame) for frame in reversed(stack) if isinstance(frame, str))
    return _first(((m[1], int(m[2])) for m in found if m), OPERATION)


def of_caller(of: str) -> Line | None:
    """The script's line that the calling thread is in. Reads the file that it is in."""
    return _first(_frames(), of)


def _frames() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        yield frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            return
        frame = frame.f_back


def _first(frames: Iterable[tuple[str, int]], of: str) -> Line | None:
    """The innermost that is neither torch's, nor ours, nor the standard library's."""
    for file, number in frames:
        if not _is_passed(file):
            return Line(file, number, _code(file, number), of)
    return None


def _is_passed(file: str) -> bool:
    if file.startswith(_PASSED) or file.startswith(("<frozen ", "<eval_with_key>", "<__array_function__")):
        return True
    return file.startswith(_STANDARD) and not file.startswith(_INSTALLED)


def _code(file: str, number: int) -> str:
    try:
        cached = linecache.cache.get(file)
        # A notebook's cells have no file. What was written since the program began is not what runs.
        in_memory = cached is not None and len(cached) == 4 and cached[1] is None
        if not in_memory and os.stat(file).st_mtime > _BEGAN:
            return ""
        line = linecache.getline(file, number)
    except (OSError, ValueError):         # there is no such file, or none any more
        return ""
    code = _capture.redacted(line.strip())        # before it is cut: half a secret is not recognised
    return code if len(code) <= MOST_CODE else code[: MOST_CODE - 3] + "..."


def _shown(file: str) -> str:
    """As short as it can be found again: below the working directory or a folder of sys.path; a notebook's cell."""
    try:
        interactive = sys.modules.get("IPython")
        shell = interactive.get_ipython() if interactive is not None else None
        named = shell.compile.format_code_name(file) if shell is not None else None
        if named:
            return " ".join(map(str, named))
        roots = [os.getcwd(), *(p for p in sys.path if isinstance(p, str))]
    except Exception as error:
        pass_on(error)
        roots = [p for p in sys.path if isinstance(p, str)]
    inside = [os.path.join(root, "") for root in roots if len(root) > 1]
    longest = max((root for root in inside if file.startswith(root)), key=len, default="")
    return file[len(longest):]
