"""What a hook leaves on a model of the script's."""

from __future__ import annotations

from typing import Any

from ..adaptors.inert import Inert


class Watcher(Inert):
    """Called by the framework."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
