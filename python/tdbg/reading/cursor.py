"""Walking through a run's steps while they come."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import FailedPreconditionError
from .steps import Step

if TYPE_CHECKING:
    from .. import _trial

SLICE_MILLIS = 200  # how long a wait keeps ctrl-C waiting


def slices(timeout: float | None) -> Iterator[int]:
    """Milliseconds to wait, again and again until `timeout` seconds (None: for ever) have passed; at least once."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_MILLIS
        if deadline is not None:
            left = max(0, min(left, math.ceil((deadline - time.monotonic()) * 1000)))
        yield left
        if deadline is not None and time.monotonic() >= deadline:
            return


class Cursor:
    """Iterates over complete steps, each once, and waits for new ones until the run has ended. ctrl-C works; a wait
    takes no processor time. Made by `trial.cursor()`; those of one trial are independent of one another.

    >>> [step.global_step for step in trial.cursor()]
    [0, 1, 2]
    """

    def __init__(self, raw: _trial.Cursor) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> Step | None:
        """The next step; None if there is none within `timeout` seconds (None: wait).

        :raises StopIteration: the run has ended, there will be none
        """
        for millis in slices(timeout):
            try:
                info = self._raw.next(millis)
            except FailedPreconditionError:
                raise StopIteration from None
            if info is not None:
                return Step._of(info)
        return None

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        step = self.next()
        assert step is not None  # without a timeout it waits
        return step
