"""The training context of a step: numbers as series `context/...`, structure as JSON (a topic) where it changed.

Each framework's Context derives from this and says which series and topics there are. With `context: false` in the plan
the run drops all of them; `enabled` then saves the work.
"""

from __future__ import annotations

import json
from typing import Any


class Context:
    """The context of one session. It needs the session's `run`, and `port`, through which everything is recorded."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.enabled = True
        self.norm: Any = None       # of the gradients, as the framework's clipping returned it for the next update
        self._ids: dict[str, int] = {}
        self._topics: dict[str, Any] = {}
        self._ready: tuple[list[int], list[float]] = ([], [])      # ids, values of the open step
        self._absent: list[str] | None = None
        self._absent_of: dict[str, list[str]] = {}

    def id(self, name: str, collection: str = "") -> int:
        """Id of a series."""
        ident = self._ids.get(name)
        if ident is None:
            ident = self._ids[name] = self.session.run.define_scalar(name, collection)
        return ident

    def add(self, name: str, value: Any) -> None:
        """One number for the open step, handed over by `flush`."""
        if self.enabled:
            self.number(self.id(name), float(value))

    def number(self, ident: int, value: float) -> None:
        """One of the open step's numbers, handed over by `flush`. `ident`: of `id`."""
        ids, values = self._ready
        ids.append(ident)
        values.append(value)

    def flush(self) -> None:
        """Hands over what `add` and `number` took."""
        ids, values = self._ready
        if ids:
            self._ready = ([], [])
            self.session.port.put_scalars(ids, values, 0)

    def discard(self) -> None:
        """The step is not due: drops its numbers."""
        self.norm = None
        self._ready = ([], [])

    def topic(self, name: str, value: Any) -> None:
        """Records `value` (as JSON) under the topic, if it has changed."""
        if self.enabled and self._topics.get(name) != value:
            self._topics[name] = value
            self.put_topic(name, json.dumps(value, default=str))

    def put_topic(self, name: str, text: str) -> None:
        self.session.port.put_context(name, text)

    def add_absent(self, optimizer: str, names: list[str]) -> None:
        """Records parameters that `optimizer` is about to update and that have no gradient, which is not the same as a
        gradient of zeros."""
        self.add("context/gradients_absent", len(names))
        if names != self._absent:
            self._absent = names
            self.topic("gradients_absent", {"optimizer": optimizer, "names": names})
        # Of several optimizers that step in turn each has its own, so that none hides what another one lacks.
        if names != self._absent_of.get(optimizer, []):
            self._absent_of[optimizer] = names
            self.topic(f"gradients_absent/{optimizer}", {"names": names})
