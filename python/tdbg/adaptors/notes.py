"""A note for the launcher, which tells why nothing was captured: there is no run to record it in."""

from __future__ import annotations

import os
import sys


def multiprocessing_child() -> bool:
    """Is it a process that another Python started to work for it (a data loader's worker)?"""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def leave(word: str, instead: bool = True) -> None:
    """Leaves `word` in the attempt's directory of the run that `tdbg run` states; without one, nothing.

    :param instead: in place of what another adaptor of this process has left; False: that one stays
    """
    run, attempt = os.environ.get("TDBG_RUN"), os.environ.get("TDBG_ATTEMPT", "0")
    if not run or multiprocessing_child():
        return
    place = os.path.join(run, attempt)
    if os.path.isdir(place) and not os.path.islink(place):
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if instead else os.O_EXCL)
        mode = 0o600 | os.stat(run).st_mode & 0o066     # for whom the run is
        try:
            file = os.open(os.path.join(place, f"seen_{os.getpid()}.log"), flags, mode)
        except FileExistsError:
            return
        with os.fdopen(file, "wb") as text:
            text.write(word.encode() + b"\n")
