"""SHAP values of a growing model, at the cost of its new trees only.

TreeSHAP adds up over trees, so the values of a model are a running sum over slices of it: each tree is visited once in
the life of a training instead of once per look. The last column (the bias) is what is left of the margin: then a row
sums to its margin by construction, whatever base score or base margin the slices repeat.

Where the additivity does not hold (DART rescales earlier trees, a linear booster has no slices) every look is a full
pass over the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost


class RunningShap:
    """:param additive: False for boosters whose earlier trees change or cannot be sliced.
    :param sample: function(number of rows) -> numbers of those that are looked at, or None for all; called once
    """

    def __init__(self, data: Any, additive: bool, sample: Callable[[int], Any]) -> None:
        self._data, self._additive = data, additive
        self._sample: Callable[[int], Any] | None = sample
        self._sum: Any = None
        self._rounds = 0        # rounds of the model that are in the sum

    def values(self, model: Any) -> Any:
        """(rows, features + 1) float32, or (rows, classes, features + 1); the last column is the bias.

        The array is ours and changes with the next call: use it before.
        """
        if self._sample is not None:
            chosen, self._sample = self._sample(self._data.num_row()), None
            self._data = self._data if chosen is None else _rows(self._data, chosen)
        if not self._additive:
            return model.predict(self._data, pred_contribs=True)
        rounds = model.num_boosted_rounds()
        if rounds < self._rounds:           # trees were taken away: start again
            self._sum, self._rounds = None, 0
        if rounds > self._rounds:
            new = model[self._rounds:rounds].predict(self._data, pred_contribs=True)
            if self._sum is None:
                self._sum = new
            else:
                self._sum[..., :-1] += new[..., :-1]
            self._rounds = rounds
            margin = model.predict(self._data, output_margin=True)
            self._sum[..., -1] = margin.reshape(self._sum.shape[:-1]) - self._sum[..., :-1].sum(axis=-1)
        return self._sum


def _rows(data: Any, chosen: Any) -> Any:
    """A DMatrix of these rows, whose SHAP values are those that the rows have in `data`."""
    try:
        return data.slice(chosen, allow_groups=True)
    except xgboost.core.XGBoostError:
        # A QuantileDMatrix (the estimators') cannot be sliced. It hands out its rows as it binned them, as a copy of
        # all of them, once; they go the same ways through trees that were grown on the same bins.
        margin = data.get_base_margin()
        return xgboost.DMatrix(
            data.get_data()[chosen],
            feature_names=data.feature_names,
            feature_types=data.feature_types,
            base_margin=margin.reshape(data.num_row(), -1)[chosen] if margin.size else None,
            enable_categorical=True,
        )
