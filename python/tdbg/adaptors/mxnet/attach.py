"""Attaching to a Gluon training: by the launcher's environment (`arm`), or from the script (`attach`)."""

import numpy as np
from mxnet.ndarray import NDArray

from ..attached import AttachedRun
from ..door import Door
from ..guard import say
from ..steps import EVAL, PREDICT, TRAIN
from . import arrays
from .blocks import NOT_WANTED
from .session import Session

_MODES = {"TRAIN": TRAIN, "EVAL": EVAL, "PREDICT": PREDICT}


class Attached(AttachedRun):
    """A training under watch, in the script's hands. A context manager: leaving it ends the run."""

    def __init__(self, session):
        super().__init__(session)
        self._ids = {}

    def set_mode(self, mode):
        """The mode of the evaluations to come: "eval", "predict"; None: as the adaptor sees it."""
        name = getattr(mode, "name", str(mode)).upper()
        if mode is not None and name not in _MODES:
            raise ValueError(f"no mode {mode!r}: one of {', '.join(_MODES)}, or None")
        self._session.mode_wanted = None if mode is None else _MODES[name]

    def record(self, name, tensor, collection="default"):
        """Records `tensor` (NDArray or NumPy) in the open step, or the next one, where the plan keeps `collection`."""
        self._guarded(self._record, name, tensor, collection)

    def scalar(self, name, value, collection=""):
        """Records one number in the open step, or the next one, as `scalar/<name>`."""
        self._guarded(self._scalar, name, value, collection)

    def _guarded(self, function, name, *arguments):
        if self._session.ensure_open():
            self._session.guarded(f"recording {name}", function, name, *arguments)

    def _record(self, name, tensor, collection):
        session = self._session
        array = arrays.values(tensor) if isinstance(tensor, NDArray) else np.array(tensor, order="C")
        key = (name, array.dtype.str, array.ndim)
        ident = self._ids.get(key)
        if ident is None:
            ident = self._ids[key] = session.run.define(name, name, "", "", array.dtype.name, list(array.shape), True,
                                                        -1, [], [collection])
            if ident == NOT_WANTED:
                say(f"record: the plan does not keep the collection {collection!r}, so {name!r} is not recorded")
        if ident != NOT_WANTED:
            session.soon(lambda: session.put_values(ident, array))

    def _scalar(self, name, value, collection):
        session = self._session
        number = float(value.asscalar() if isinstance(value, NDArray) else value)
        ident = session.context.id("scalar/" + name, collection)
        session.soon(lambda: session.run.put_scalars([ident], [number], 0))


_door = Door(Session, Attached)
arm, attach, stand_down = _door.arm, _door.attach, _door.stand_down
