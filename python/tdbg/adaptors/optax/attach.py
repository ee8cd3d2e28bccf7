"""Attaching to a JAX loop: by the launcher's environment (`arm`), or from the script (`attach`)."""

from ..attached import Attached
from ..door import Door
from .session import Session

_door = Door(Session, Attached)
arm, attach, stand_down, now = _door.arm, _door.attach, _door.stand_down, _door.now
