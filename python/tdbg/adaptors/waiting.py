"""Values that the script records while no step is open. They belong to the next step or, after the last, to the end of
the run."""

from __future__ import annotations

from collections.abc import Callable

MOST = 4096


class Waiting:
    """:param lost: called with a cause, a number of tensors and a sentence"""

    def __init__(self, lost: Callable[[str, int, str], None]) -> None:
        self.puts: list[Callable[[], None]] = []
        self._lost = lost

    def add(self, put: Callable[[], None]) -> None:
        """`put()` writes the value, which must stay as it is until then."""
        if len(self.puts) < MOST:
            self.puts.append(put)
        else:
            self._lost("unsupported", 1, f"more than {MOST} values were recorded by the script while no step came")

    def write(self) -> None:
        puts, self.puts = self.puts, []
        for put in puts:
            put()
