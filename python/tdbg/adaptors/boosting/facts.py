"""What tells whether a boosting training goes well, beside its metrics: facts of the call, once (the context topic
`boosting`), and how its trees grow (series `context/boosting/*`, and the topic `boosting_leader`). Knows no library.

Facts take a look at all labels, once. How trees grow is looked at in each of the first 20 rounds and then ever more
seldom, so that all looks together cost as much as some eleven passes over the splits of the final model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Of more labels than this the mean, the deviation, and whether they are the training's are those of every n-th.
MOST_LABELS = 1 << 20
#: Rounds of which each is looked at; later ones lie a tenth of all so far apart.
EACH_OF_FIRST = 20


class Data:
    """How a library's data set is asked. Each answers None where it has none."""

    def rows(self, data: Any) -> int | None:
        raise NotImplementedError

    def labels(self, data: Any) -> Any:
        raise NotImplementedError

    def weights(self, data: Any) -> Any:
        raise NotImplementedError

    def groups(self, data: Any) -> int | None:
        """Queries of a ranking."""
        raise NotImplementedError


@dataclass
class Facts:
    """Of one call of a function that trains.

    :param data: of the training; None in cv
    :param evaluated: (name, data set) of what is evaluated after each round; in cv without data
    :param cv: metrics are means over folds
    :param early_stopping: the library itself ends the training where a metric gets no better
    :param stops_by: the set by which it does, if it is one
    :param objective: its name; "" where the script computes gradients by itself
    :param weighted: classes have weights, which metrics are without; rows that do are looked for in the data
    :param drops: rounds take earlier trees away for a while (DART)
    :param whole: False: the process has a part of the rows
    """

    data: Any = None
    evaluated: Sequence[tuple[str, Any]] = ()
    cv: bool = False
    early_stopping: bool = False
    stops_by: str = ""
    objective: str = ""
    weighted: bool = False
    drops: bool = False
    whole: bool = True
    higher_is_better: dict[str, bool] = field(default_factory=dict)     # where the library says so

    def describe(self, ask: Data, features: int | None) -> dict[str, Any]:
        """The topic. To be called once: it lets go of the data sets."""
        training = _labels(ask, self.data)
        weighted = self.weighted or (self.data is not None and _vary(ask.weights(self.data)))
        said: dict[str, Any] = {"objective": self.objective, "cv": self.cv, "early_stopping": self.early_stopping,
                                "stops_by": self.stops_by, "weighted": weighted,
                                "drops": self.drops, "higher_is_better": self.higher_is_better,
                                "features": features, "sets": {}}
        if self.data is not None:
            said["training"] = {"rows": ask.rows(self.data), **(_numbers(training) if self.whole else {})}
        for name, data in self.evaluated:
            if data is None:                    # cv's, which are called so
                said["sets"][name] = {"training": name == "train"}
                continue
            labels = training if data is self.data else _labels(ask, data)
            said["sets"][name] = {
                "training": data is self.data or _same(labels, training),
                "rows": ask.rows(data), "groups": ask.groups(data), **_numbers(labels)}
        self.data, self.evaluated = None, ()        # which lives as long as the script wants it to
        return said


class Growth:
    """:param totals: of a model: ({feature: splits}, {feature: sum of their gains}), of all its trees"""

    def __init__(self, totals: Callable[[Any], tuple[Mapping[str, float], Mapping[str, float]]]) -> None:
        self._totals = totals
        self._rounds, self._next = 0, 0.0
        self._leader = ""

    def look(self, model: Any, scalar: Callable[[str, float], None], context: Callable[[str, str], None]) -> None:
        """To be called after each round."""
        self._rounds += 1
        if self._rounds > EACH_OF_FIRST and self._rounds < self._next:
            return
        self._next = 1.1 * self._rounds
        splits, gains = self._totals(model)
        scalar("context/boosting/splits", sum(splits.values()))
        total = sum(gains.values())
        if not (np.isfinite(total) and total > 0):
            return
        leader = max(gains, key=gains.__getitem__)
        scalar("context/boosting/leading_share", gains[leader] / total)
        if leader != self._leader:
            self._leader = leader
            context("boosting_leader", json.dumps({"name": leader}))


def _labels(ask: Data, data: Any) -> np.ndarray[Any, Any] | None:
    labels = None if data is None else ask.labels(data)
    if labels is None:
        return None
    array = np.asarray(labels).ravel()
    return array if array.size and array.dtype.kind in "biuf" else None


def _vary(weights: Any) -> bool:
    if weights is None:
        return False
    array = np.asarray(weights)
    return bool(array.size and array.min() != array.max())


def _some(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return labels[:: -(-labels.size // MOST_LABELS)]


def _same(labels: np.ndarray[Any, Any] | None, training: np.ndarray[Any, Any] | None) -> bool:
    """Are they the training's labels in their order, in a data set that was made of them once more?"""
    if labels is None or training is None or labels.size != training.size:
        return False
    return bool(np.array_equal(_some(labels), _some(training)))


def _numbers(labels: np.ndarray[Any, Any] | None) -> dict[str, float]:
    if labels is None:
        return {}
    some = _some(labels).astype(np.float64)
    numbers = {"lowest": float(labels.min()), "highest": float(labels.max()), "mean": float(some.mean()),
               "deviation": float(some.std())}
    return numbers if all(map(np.isfinite, numbers.values())) else {}
