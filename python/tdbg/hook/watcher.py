"""What a hook leaves on a model of the script's."""

from ..adaptors.inert import Inert


class Watcher(Inert):
    """Called by the framework."""

    def __init__(self, hook):
        self.hook = hook
