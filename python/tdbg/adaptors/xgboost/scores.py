"""Scores of features through XGBoost's C interface: 20 us a kind, where `Booster.get_score` takes 80 to 150 (it defines
a class in each call). The interface is a published ABI; where it is not found, or says anything else than `get_score`
when it is first asked, `get_score` is asked from then on.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

from xgboost import core

_pointer = ctypes.POINTER


class Scores:
    """Of tree models: {feature: score}, features that no tree splits by left out. One thread."""

    def __init__(self) -> None:
        self._call = getattr(getattr(core, "_LIB", None), "XGBoosterFeatureScore", None)
        self._trusted = False
        self._configurations: dict[str, Any] = {}
        self._count, self._dimensions = ctypes.c_uint64(), ctypes.c_uint64()
        self._features, self._shape = _pointer(ctypes.c_char_p)(), _pointer(ctypes.c_uint64)()
        self._scores = _pointer(ctypes.c_float)()
        self._results = [ctypes.byref(result) for result in
                         (self._count, self._features, self._dimensions, self._shape, self._scores)]

    def of(self, model: Any, kind: str) -> Any:
        """:param kind: an `importance_type` of `get_score`"""
        found = self._ask(model, kind)
        if self._trusted and found is not None:
            return found
        scores = model.get_score(importance_type=kind)
        self._trusted = found == scores
        if not self._trusted:
            self._call = None
        return scores

    def _ask(self, model: Any, kind: str) -> dict[Any, Any] | None:
        """None where XGBoost does not answer."""
        if self._call is None:
            return None
        if kind not in self._configurations:
            text = json.dumps({"importance_type": kind, "feature_map": ""})
            self._configurations[kind] = ctypes.c_char_p(text.encode())
        if self._call(model.handle, self._configurations[kind], *self._results) != 0 or self._dimensions.value != 1:
            return None
        count = self._count.value
        return {name.decode(): score for name, score in zip(self._features[:count], self._scores[:count])}
