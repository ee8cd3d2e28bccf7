"""Tensors that lie in a file which is mapped into memory: to look at one reads the file, and keeps it in memory."""

from __future__ import annotations

import os

#: Bytes: smaller ones are read at once.
LARGE = 64 << 20
_IN_MEMORY = ("/dev/", "/memfd:", "/SYSV", "/run/shm/")


def file_behind(address: int) -> str | None:
    """The file that is mapped where `address` lies; None: it is plain or shared memory, or cannot be found out. About a
    millisecond: the kernel's list of the process's mappings is read."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                bounds, _, rest = line.partition(" ")
                first, _, end = bounds.partition("-")
                if int(first, 16) <= address < int(end, 16):
                    fields = rest.split(maxsplit=4)
                    path = fields[4].rstrip("\n") if len(fields) > 4 and fields[3] != "0" else ""
                    return path if path.startswith("/") and not path.startswith(_IN_MEMORY) else None
    except (OSError, ValueError):
        pass
    return None


def words(path: str, size: int) -> str:
    """Why a tensor of `size` bytes in this file is not looked at."""
    return (f"lies in a file that is mapped ({os.path.basename(path)}), and {size / (1 << 30):.1f} GiB would be read; "
            f"a collection that names it has it looked at")
