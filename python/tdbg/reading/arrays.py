"""What the library keeps as NumPy's arrays.

bfloat16 and float8 values come as ml_dtypes arrays where ml_dtypes can be imported, else as float32, which has all of
their values; texts as arrays of type "U".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    #: Any shape, any type of element.
    Array = np.ndarray[Any, np.dtype[Any]]
else:
    Array = np.ndarray  # NumPy 1.21, the first one for Python 3.10, takes no types

_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def array_of(pair: tuple[Array, str]) -> Array:
    """The array of what the extension says: (elements, name of their type). No copy but of what is widened."""
    array, dtype = pair
    if dtype == "text":
        width = array.shape[-1]
        return array.view(f"<U{width}")[..., 0] if width else np.zeros(array.shape[:-1], "<U1")
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return widened(array, dtype)
        extension = getattr(ml_dtypes, dtype, None)
        return widened(array, dtype) if extension is None else array.view(extension)
    return array


def widened(bits: Array, dtype: str) -> Array:
    """float32 of the bits of a bfloat16 or a float8: exact, all of their values are float32's.

    >>> widened(np.array([0x3F80, 0xC040], np.uint16), "bfloat16")
    array([ 1., -3.], dtype=float32)
    """
    if dtype == "bfloat16":
        return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    fraction_bits, bias = {"float8_e4m3fn": (3, 7), "float8_e4m3fnuz": (3, 8), "float8_e5m2": (2, 15),
                           "float8_e5m2fnuz": (2, 16)}[dtype]
    codes = np.arange(256)
    exponent, fraction = (codes & 0x7F) >> fraction_bits, codes & ((1 << fraction_bits) - 1)
    table = np.ldexp(np.where(exponent == 0, fraction, fraction + (1 << fraction_bits)).astype(np.float32),
                     np.maximum(exponent, 1) - bias - fraction_bits)
    if dtype.endswith("fnuz"):
        table[128] = np.nan             # no negative zero, no infinity
    elif dtype == "float8_e4m3fn":
        table[127] = table[255] = np.nan
    else:
        table[exponent == 31] = np.where(fraction[exponent == 31] == 0, np.inf, np.nan)
    signed: Array = np.where(codes < 128, table, -table).astype(np.float32)
    return np.asarray(signed[bits.view(np.uint8)])
