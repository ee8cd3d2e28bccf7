"""Values as they are now, without waiting for them: copies that MXNet's engine makes in its own order.

What is enqueued after `take` (an update, the next backward) finds the sources read already, so the copies are those of
this moment however late they are looked at, and the script's thread goes on feeding the engine meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray._internal import _copyto

from . import arrays

#: Elements of an array that is copied together with other small ones: an operator costs the script's thread 7 us, an
#: element of a concatenation the engine 4 ns.
SMALL = 2048
_PENDING = 1.0


class Copies:
    """Copies of the same arrays, made again and again: `take`, then `addresses` before the next `take`. Needs their
    memory again.

    :param sources: plain arrays (arrays.py). They are read where they are when an operator runs: one that was replaced
      (another context, another type) needs other Copies.
    """

    def __init__(self, sources: Iterable[Any]) -> None:
        self.taken = False           # and not looked at yet
        self._parts: list[Any] = []
        self._alone: list[tuple[Any, Any]] = []
        self._where: list[tuple[int | None, int]] = []
        begin = 0
        with autograd.pause():
            for source in sources:
                source = source.as_nd_ndarray()
                if source.size <= SMALL and source.dtype == np.float32 and source.context == mx.cpu():
                    self._where.append((None, begin))
                    self._parts.append(source.reshape((-1,)))      # the same memory
                    begin += 4 * source.size
                else:
                    self._where.append((len(self._alone), 0))
                    self._alone.append((source, mx.nd.empty(source.shape, mx.cpu(), source.dtype)))
            # Copied last, over the mark that `take` writes: when it is there, so are the others, or nearly.
            self._parts.append(mx.nd.zeros((1,), mx.cpu()))
            self._joined = mx.nd.empty((begin // 4 + 1,), mx.cpu())
        self._handles = [copy.handle for _, copy in self._alone]
        # A vector of float32 stays where it is; oneDNN may lay out the others anew, and elsewhere.
        self._place, = arrays.addresses([self._joined.handle])
        self._last = ctypes.c_float.from_address(self._place + begin)

    def take(self) -> None:
        """Enqueues the copying."""
        self.taken = True
        self._last.value = _PENDING
        with autograd.pause():
            for source, copy in self._alone:
                _copyto(source, out=copy)
            mx.nd.concat(*self._parts, dim=0, out=self._joined)

    def ready(self) -> bool:
        """True if `addresses` would hardly have to wait. Looks at the memory only, without a call to MXNet."""
        return self._last.value != _PENDING

    def addresses(self) -> list[int]:
        """Of the copies, in the sources' order; waits until they are made."""
        arrays.wait([self._joined.handle])
        alone = arrays.addresses(self._handles)
        self.taken = False
        return [self._place + begin if which is None else alone[which] for which, begin in self._where]
