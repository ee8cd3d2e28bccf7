"""Tensors that lie in mapped files: to look at one reads the file, and keeps it in memory; and where another process
cuts the file short, a look is a signal that ends the training."""

from __future__ import annotations

import bisect
import os

#: Bytes: smaller ones are read at once.
LARGE = 64 << 20
_IN_MEMORY = ("/dev/", "/memfd:", "/SYSV", "/run/shm/")

#: Why nothing is recorded of a tensor that cannot be read.
GONE = "its memory cannot be read (a mapped file that was cut short, or a protected page)"


class Mappings:
    """The files, on disk or in memory, that are mapped into this process as this is made. That takes about a
    millisecond: the kernel's list is read. Empty where there is none."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._paths: list[str] = []
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    fields = line.split(maxsplit=5)
                    if fields[4] != "0":        # the file's number: what has none is the process's alone
                        begin, _, end = fields[0].partition("-")
                        self._begins.append(int(begin, 16))
                        self._ends.append(int(end, 16))
                        self._paths.append(fields[5].rstrip("\n") if len(fields) > 5 else "")
        except (OSError, ValueError, IndexError):
            pass

    def _at(self, address: int) -> int | None:
        place = bisect.bisect_right(self._begins, address) - 1
        return place if place >= 0 and address < self._ends[place] else None

    def __contains__(self, address: int) -> bool:
        """Does it lie in memory that others may take away?"""
        return self._at(address) is not None

    def file_behind(self, address: int) -> str | None:
        """The file on a disk where `address` lies; None: it is plain or shared memory, or cannot be found out."""
        place = self._at(address)
        path = "" if place is None else self._paths[place]
        return path if path.startswith("/") and not path.startswith(_IN_MEMORY) else None


def words(path: str, size: int) -> str:
    """Why a tensor of `size` bytes in this file is not looked at."""
    return (f"lies in a file that is mapped ({os.path.basename(path)}), and {size / (1 << 30):.1f} GiB would be read; "
            f"a collection that names it has it looked at")
