"""A script's own values as arrays that the run takes."""

from __future__ import annotations

from typing import Any

import numpy as np


def kept(array: Any) -> Any:
    """A copy in C order, since the script goes on writing; numbers as this machine has them, long doubles as doubles.

    >>> kept(np.array([1, 2], ">i2")).dtype == np.int16, kept(np.longdouble(2)).dtype.name
    (True, 'float64')
    """
    dtype = array.dtype.newbyteorder("=")       # files and networks have others
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    if dtype.kind == "c" and dtype.itemsize > 16:
        dtype = np.dtype(np.complex128)
    return np.array(array, dtype, order="C")


def described(array: Any) -> str:
    """Its type and shape, for a message."""
    return f"{array.dtype} of shape {array.shape}"
