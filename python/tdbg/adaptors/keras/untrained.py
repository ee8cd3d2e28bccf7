"""What no optimizer changes, at every step all the same: frozen weights, averages of them, a layer's moving statistics.

What they are is known by a mark (of all of a variable up to 4 KiB, of 64 pieces of 64 bytes spread over a larger one):
a variable is assigned inside a compiled step, where nobody is told. Where the mark is what it was the last row is said
again (Run.put_many's `unchanged`), and every LOOK_EVERY-th step each variable is looked at whatever it says.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tdbg import _capture

if TYPE_CHECKING:
    from .session import Session

#: A change that the mark does not show is seen so many steps late at most.
LOOK_EVERY = 64


class Untrained:
    """Of all models that are trained."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._marks: dict[str, int] = {}
        self._changed: set[str] = set()    # names of those that changed since they were last put
        self._calls = 0

    def look(self, model: Any, state: Any, raw_due: bool) -> list[tuple[Any, Any, bool]]:
        """[(Entry, array or None, is it unchanged?)], as they are now, for `put`.

        :param state: what the function of a step is given first. On JAX the variables are empty while `fit` runs, and
            their values are in it.
        """
        session, found, values = self.session, [], {}
        if session.backend.name == "jax":
            values = dict(zip(map(id, model.non_trainable_variables), state[1]))
        self._calls += 1
        for number, variable in enumerate(model.non_trainable_weights if model.built else ()):
            named = session.names.of(variable)
            entry = session.values.entry(named.name, named.kind, named.module_kind, named.short_name, named.unit_axis)
            if entry is None:
                continue
            value = values.get(id(variable))
            given = value is not None
            if given and not session.backend.is_here(value):
                continue
            array = np.asarray(session.backend.numpy(value if given else session.backend.read(variable)))
            if not array.size or named.kind == "buffer" and array.dtype.kind not in "fV":     # V: bfloat16
                continue
            array = np.ascontiguousarray(array)
            mark = _capture.fingerprint(array.__array_interface__["data"][0], array.nbytes)
            if self._marks.get(named.name) != mark or number % LOOK_EVERY == self._calls % LOOK_EVERY:
                self._changed.add(named.name)
            self._marks[named.name] = mark
            unchanged = named.name not in self._changed
            # It is put when the step has run, which may have overwritten it.
            found.append((entry, None if unchanged and not raw_due else np.array(array), unchanged))
        return found

    def put(self, found: list[tuple[Any, Any, bool]]) -> None:
        """What `look` found belongs to the open step."""
        self.session.values.put_untrained(found)
        self._changed.difference_update(entry.name for entry, _, _ in found)
