"""How a watch over one training ends, whatever the framework: with the process, in a forked child, after too many failures."""

import sys

from .guard import say

ARMED, OPEN, OFF = "armed", "open", "off"


class Ending:
    """Of a session with `state`, `run`, `_ended`, `finish(reason, message)` and `lost(cause, count, text)`."""

    def forked(self):
        """In the child of a fork: it is not the run's worker. One that has not opened may still train."""
        if self.state is OPEN:
            self._ended = True
            self.run.abandon()
            self.state = OFF

    def at_exit(self):
        reason, message = "completed", ""
        # The interpreter leaves an uncaught exception here before atexit runs, whoever replaced sys.excepthook.
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            reason, message = "exception", f"{type(error).__name__}: {error}"
        try:
            self.finish(reason, message)
        except Exception as failure:
            say(f"while ending the run: {failure}")

    def _adaptor_error(self, text):
        self.lost("adaptor_error", 1, text)
