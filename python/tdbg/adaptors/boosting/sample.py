"""Which rows of the training data SHAP values are computed of, where the configuration says how many (`shap_rows`)."""

from __future__ import annotations

from typing import Any

import numpy as np

SEED = 0


def choose(rows: int, wanted: int) -> np.ndarray[Any, Any] | None:
    """Numbers of `wanted` of so many rows, ascending: the same ones for the same two numbers. None: all of them.

    Drawn without replacement by a generator of our own; the training's are not touched.
    """
    if not wanted or wanted >= rows:
        return None
    return np.sort(np.random.Generator(np.random.PCG64(SEED)).choice(rows, wanted, replace=False))
