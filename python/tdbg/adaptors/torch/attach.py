"""Attaching to a training: by the launcher's environment (`arm`), or from the script (`attach`)."""

import torch

from ..attached import AttachedRun
from ..door import Door
from ..guard import say
from ..steps import EVAL, PREDICT, TRAIN
from .params import NOT_WANTED
from .session import Session

_MODES = {"TRAIN": TRAIN, "EVAL": EVAL, "PREDICT": PREDICT}


class Attached(AttachedRun):
    """A training under watch, in the script's hands. A context manager: leaving it ends the run."""

    def __init__(self, session):
        super().__init__(session)
        self._ids = {}

    def set_mode(self, mode):
        """The mode of the steps to come: "eval", "predict" (of forwards that train nothing), "train" (where steps are
        forwards); None: as the adaptor sees it."""
        if mode is not None and getattr(mode, "name", str(mode)).upper() not in _MODES:
            raise ValueError(f"no mode {mode!r}: one of {', '.join(_MODES)}, or None")
        self._session.mode_wanted = None if mode is None else _MODES[getattr(mode, "name", str(mode)).upper()]

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (torch or NumPy) in the open step, or the next one, where the plan keeps `collection`."""
        self._guarded(self._record, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._guarded(self._scalar, name, value, collection)

    def _record(self, name, tensor, collection):
        session = self._session
        value = torch.as_tensor(tensor).detach()
        key = (name, value.dtype, value.dim())
        ident = self._ids.get(key)
        if ident is None:
            ident = self._ids[key] = session.define(name, name, "", "", value.dtype, value.shape, True, -1, [],
                                                    [collection])
            if ident == NOT_WANTED:
                say(f"record: the plan does not keep the collection {collection!r}, so {name!r} is not recorded")
        if ident != NOT_WANTED:
            if session.clock.mode is None:
                value = value.clone()      # it waits for a step, and the script may write into it meanwhile
            session.soon(lambda: session.put_value(ident, value))

    def _scalar(self, name, value, collection):
        session = self._session
        ident = session.context.id("scalar/" + name, collection)
        number = value.detach() if isinstance(value, torch.Tensor) else float(value)
        session.soon(lambda: session.put_number(ident, number))


_door = Door(Session, Attached)
arm, attach, stand_down = _door.arm, _door.attach, _door.stand_down
