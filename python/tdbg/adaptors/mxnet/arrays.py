"""Where an NDArray's memory is, and its values.

MXNet computes behind the script's back: an array is there when everything that writes into it has run. Waiting for it
brings out what went wrong on the way, once: whoever waits first gets the error, and nobody else ever will. So an error
of the training's own that surfaces in our wait is raised as `TrainingError` and must reach the script.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from mxnet import autograd
from mxnet.base import _LIB, MXNetError
from mxnet.ndarray import NDArray
from mxnet.ndarray._internal import _copy

from ..structure import every

_wait = _LIB.MXNDArrayWaitToRead
_data = _LIB.MXNDArrayGetData
_HOST = ("cpu", "cpu_pinned", "cpu_shared")


class TrainingError(Exception):
    """What the training's own computation raised; `error` is MXNet's exception, or another of the training's own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def _failed() -> NoReturn:
    raise TrainingError(MXNetError(_LIB.MXGetLastError().decode()))


def dtype_name(array: Any) -> str:
    """As the run calls it: float32, bfloat16 (which MXNet keeps in NumPy as a void)."""
    dtype = np.dtype(array.dtype)
    return "bfloat16" if dtype.names == ("bfloat16",) else dtype.name


def dense_bytes(array: Any) -> int:
    """What it takes as a dense array (a sparse one does not know its size)."""
    return int(math.prod(array.shape) * np.dtype(array.dtype).itemsize)


def is_plain(array: Any) -> bool:
    """Dense, in host memory, not empty: its address says all."""
    return array.stype == "default" and array.context.device_type in _HOST and array.size > 0


def addresses(handles: Iterable[Any]) -> list[int]:
    """Of plain arrays' memory, by their handles; None gives 0. Waits for them. C order, dense; good while the arrays
    live and nobody writes."""
    found, cell = [], ctypes.c_void_p()
    place = ctypes.byref(cell)
    for handle in handles:
        if handle is None:
            found.append(0)
            continue
        if _wait(handle) != 0 or _data(handle, place) != 0:
            _failed()
        found.append(cell.value or 0)
    return found


def wait(handles: Iterable[Any]) -> None:
    """Waits until they are computed, in this order. One that is ready costs nothing: put the last one first."""
    for handle in handles:
        if handle is not None and _wait(handle) != 0:
            _failed()


def values(array: Any) -> Any:
    """A NumPy copy. Where an operator has left its own memory layout (oneDNN's), the array itself keeps it: putting it
    in order could change what the next operator chooses to do."""
    try:
        return array.asnumpy()
    except MXNetError as error:
        raise TrainingError(error) from None


def copy(array: Any) -> Any:
    """Another NDArray with today's values: enqueued, not waited for, and in no gradient's graph."""
    with autograd.pause():
        return _copy(array)


def flat(value: Any) -> Any:
    """The arrays in what a block took or returned: nested lists and tuples, in order."""
    return every(NDArray, value, dicts=False)
