"""What `attach` returns, as far as it is the same for every framework."""


class AttachedRun:
    """What is under watch, in the script's hands. A context manager: leaving it ends the watch, and the run with it."""

    def __init__(self, session):
        self._session = session

    @property
    def directory(self):
        """The run directory (of the latest training, where each has its own); None before the first training event."""
        run = self._session.run
        return None if run is None else run.directory

    @property
    def global_step(self):
        run = self._session.run
        return -1 if run is None else run.global_step

    def _guarded(self, function, *arguments):
        """A failure to record is ours: counted and said, never raised. `arguments` begin with the name."""
        try:
            if self._session.ensure_open():
                function(*arguments)
        except Exception as error:
            self._session.guard.failed(f"recording {arguments[0]}", error)

    def close(self, reason="completed", message=""):
        """Ends the watch: final weights, everything sealed. Later calls do nothing."""
        self._session.finish(reason, message)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.close()
        else:
            self.close("exception", f"{kind.__name__}: {value}")
        return False
