"""Attaching to Keras: by the launcher's environment (`arm`), or from the script (`attach`)."""

from ..attached import AttachedRun
from ..door import Door
from .session import Session


class Attached(AttachedRun):
    """A training under watch, in the script's hands. A context manager: leaving it ends the run."""

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (of the backend, or NumPy's) in the open step, or the next one, where the plan keeps
        `collection`. Not from inside a function that is being traced: there are no values there."""
        self._guarded(self._session.record_value, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._guarded(self._session.record_scalar, name, value, collection)


_door = Door(Session, Attached)
arm, attach, stand_down, watching = _door.arm, _door.attach, _door.stand_down, _door.watching
