"""A run by the word that the command line takes for it."""

from __future__ import annotations

import json
import os
import subprocess

from ..places import local_directory
from ..program import program


def directory_of(path: object) -> str:
    """The directory of a run: of a path or a file:// URL, or of what the command line would take this word for; an s3://
    URL and a word that names no run as they are. A word for which there is no such file costs a start of the program.

    :raises UnimplementedError, InvalidArgumentError: as `places.local_directory`
    """
    name = local_directory(path)
    if not name or os.path.sep in name or os.path.lexists(name):
        return name
    try:
        asked = subprocess.run([program(), "ls", "--json", "--where", name], stdin=subprocess.DEVNULL,
                               capture_output=True, check=False)
        return str(json.loads(asked.stdout)["run"]) if asked.returncode == 0 else name
    except (OSError, ValueError, KeyError):
        return name  # without the program only paths are runs
