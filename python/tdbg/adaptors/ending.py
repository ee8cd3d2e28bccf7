"""How a watch over one training ends, whatever the framework: with the process, in a forked child, after too many failures."""

import sys

from .guard import say

ARMED, OPEN, OFF = "armed", "open", "off"


class Ending:
    """Of a session with `state`, `guard`, `run`, `_ended` (or not ours to end), `disarm()`, `lost(cause, count, text)` and
    `_last_words()`: closes what is open and records the final weights."""

    @staticmethod
    def when_over(session):
        """What is to be called when everything is sealed: whoever began the watch says."""

    def finish(self, reason, message=""):
        """Closes what is open, records the final weights, seals the run. Idempotent."""
        if self.state is OPEN and not self._ended:
            try:
                self._last_words()
            except Exception as error:
                self.guard.failed("the end of the run", error)
        self.disarm()
        if self.run is not None and not self._ended:    # disarmed by failures, it has an end all the same
            self._ended = True
            self.run.end(reason, message)
        self.when_over(self)

    def forked(self):
        """In the child of a fork: it is not the run's worker. One that has not opened may still train."""
        if self.run is not None:
            if not self._ended:
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
