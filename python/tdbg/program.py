"""Where the command-line program is that the wheel carries."""

from __future__ import annotations

import os


def program() -> str:
    """Path of the command-line program: $TDBG_CLI, else the one in this package."""
    return os.environ.get("TDBG_CLI") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tdbg")
