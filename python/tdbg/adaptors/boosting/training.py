"""One training call of a boosting library: a run, a step per boosting round, and what smdebug's names promise of each.

Everything that costs more than a look (importances, predictions, SHAP values, trees) is computed only where the plan
wants it, and only in steps in which it is due. Knows no library: that is the subclasses' part.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..guard import pass_on, say
from ..requests import obey
from ..session import NOT_WANTED
from ..steps import TRAIN
from .facts import Data, Facts, Growth
from .sample import SEED, choose

if TYPE_CHECKING:
    from ..guard import Guard

#: smdebug's `losses` are the metrics whose names do not end in these.
NOT_A_LOSS = ("auc", "map")
TREE_COLUMNS = ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")


class Training:
    """:param open_run: called with Run.open's keyword arguments when the training begins; None: `follow` is told the
        run.
    :param guard: keeps our failures to itself.
    :param params: of the training; kept as hyperparameters, those that are None left out
    """

    library = version = ""
    ask: Data
    #: Of the call, where it is known (a hook does not see it); set before the training begins.
    facts: Facts | None = None

    def __init__(self, open_run: Callable[..., Any] | None, guard: Guard, params: dict[str, Any] | None) -> None:
        self._open_run, self._guard = open_run, guard
        self._params = {k: v for k, v in dict(params or {}).items() if v is not None}
        self.run: Any = None
        self._done = False
        self._rank = 0, 1       # and the world size
        self._ids: dict[str, int] = {}
        self._series: dict[str, int] = {}
        self._sources: list[tuple[str, list[str], Callable[[Any], dict[str, Any]]]] = []
        self._growth: Growth | None = None
        self._described = False

    # What a library says ----------------------------------------------------------------------------------------

    def place(self, model: Any) -> dict[str, Any]:
        """{"step_base", "step_base_from", "rank", "world_size"} of a training that begins with this model."""
        raise NotImplementedError

    def is_one(self, model: Any) -> bool:
        """Is it one model? cv hands over a pack of them, of which only metrics are recorded."""
        raise NotImplementedError

    def metrics(self, log: Any) -> Iterable[tuple[str, str, float, float | None]]:
        """(data set, metric, value, standard deviation over folds or None) of the round that ended."""
        raise NotImplementedError

    def learning_rate(self, model: Any, log: Any) -> float:
        raise NotImplementedError

    def features(self, model: Any) -> int:
        """How many the model may split by."""
        raise NotImplementedError

    def growth(self, model: Any) -> Growth | None:
        """None of a booster without trees."""
        raise NotImplementedError

    def sources(self, model: Any, add: Callable[..., Any]) -> None:
        """Calls add(kind, names, function(model) -> {name: value}) for each that there may be."""
        raise NotImplementedError

    # Events, called by the callback; nothing here may raise into the training -----------------------------------

    def begins(self, model: Any) -> None:
        try:
            self._begin(model)
        except Exception as error:
            self._done = True
            pass_on(error)
            if self._guard.strict:
                raise
            say(f"nothing is captured: {error}; training goes on")

    def round_ended(self, model: Any, log: Any) -> None:
        if self.run is None or self._done:
            return
        try:
            try:
                if self.run.begin_step(TRAIN):
                    self.record(model, log)
            finally:
                self.run.end_step(False)
            while (request := self.run.take_request()) is not None:
                obey(self.run, request, model, self._rank)
        except BaseException as error:
            self._guard.failed("a boosting round", error)

    def finish(self, reason: str, message: str = "") -> None:
        """Idempotent."""
        if self.run is not None and not self._done:
            self._done = True
            self.run.end(reason, message)

    def abandon(self) -> None:
        """In the child of a fork."""
        if self.run is not None and not self._done:
            self._done = True
            self.run.abandon()

    # ----------------------------------------------------------------------------------------------------------

    def _begin(self, model: Any) -> None:
        assert self._open_run is not None
        place = self.place(model)
        self._rank = place.get("rank", 0), place.get("world_size", 1)
        self.follow(self._open_run(**place, adaptor=f"{self.library} {self.version}"), model)

    def follow(self, run: Any, model: Any, context: bool = True) -> None:
        """Records in `run`, which is open and whose steps somebody begins and ends: `round_ended`, or a hook.

        :param context: False: neither hyperparameters nor learning rates, whatever the plan says
        """
        self.run = run
        plan = json.loads(run.plan() or "{}")
        self._context = context and bool(plan.get("context", True))
        self._shap_rows = plan.get("shap_rows", 0)
        if self._context:
            self.run.put_context("versions", json.dumps({self.library: self.version,
                                                         "python": platform.python_version()}))
            self.run.put_context("hyperparameters", json.dumps(self._params, default=str))
        if self._context and self.is_one(model):
            self._growth = self.growth(model)
        if not self.is_one(model):
            say(f"{self.library}.cv: metrics are recorded, its boosters are not")
            return

        def add(kind: str, names: Sequence[str], source: Callable[..., Any]) -> None:
            wanted = [name for name in names if self.run.wants(name, kind)]
            if wanted:
                self._sources.append((kind, wanted, source))

        self._sources = []
        add("hyperparameter", [f"hyperparameters/{k}" for k in self._params], lambda model: self._hyperparameters())
        self.sources(model, add)

    def sample(self, rows: int) -> np.ndarray[Any, Any] | None:
        """Of which of so many rows SHAP values are computed (numbers, ascending; None: all). A choice is said in the
        run."""
        numbers = choose(rows, self._shap_rows)
        if numbers is not None:
            say(f"SHAP values are those of {len(numbers)} of {rows} rows (shap_rows)")
            self.run.put_context("shap_sample", json.dumps({"of": rows, "seed": SEED, "rows": numbers.tolist()}))
        return numbers

    def record(self, model: Any, log: Any) -> None:
        """What is due in the open step."""
        for data, metric, value, deviation in self.metrics(log):
            self._metric(f"{data}-{metric}", metric, value, deviation)
        if self._context:
            self._scalar("context/learning_rate", self.learning_rate(model, log))
            self._describe(model)
        for source in list(self._sources):
            kind, names, values = source
            known = [self._ids[n] for n in names if n in self._ids]
            if known and not any(self.run.due(ident) for ident in known if ident != NOT_WANTED):
                continue
            try:
                found = values(model)
            except Exception as error:
                pass_on(error)
                self._sources.remove(source)
                self.run.count_dropped("unsupported", len(names), f"{names[0]}: {cause(error)}")
                continue
            wanted = set(names)
            for name, value in found.items():
                if name in wanted:
                    self._put(name, kind, value)

    def _describe(self, model: Any) -> None:
        """What rules judge the training by; whatever fails here is left out."""
        try:
            if not self._described and self.facts is not None:
                self._described = True
                said = self.facts.describe(self.ask, self.features(model) if self.is_one(model) else None)
                self.run.put_context("boosting", json.dumps(said))
            if self._growth is not None:
                self._growth.look(model, self._scalar, self.run.put_context)
        except Exception as error:
            pass_on(error)
            self._growth = None
            self.run.count_dropped("unsupported", 1, f"boosting: {cause(error)}")

    def _metric(self, name: str, metric: str, value: Any, deviation: float | None) -> None:
        collections = ["metrics"] if metric.endswith(NOT_A_LOSS) else ["metrics", "losses"]
        if deviation is not None:
            self._put(f"{name}-std", "metric", [float(deviation)], ["metrics"])
        self._put(name, "metric", [float(value)], collections)

    def _put(self, name: str, kind: str, value: Any, collections: Sequence[str] = ()) -> None:
        array = np.ascontiguousarray(value)
        shape, text = list(array.shape), array.dtype.kind == "U"
        if text:
            width = max(1, array.dtype.itemsize // 4)
            array, shape = array.astype(f"<U{width}").view(np.uint32), [*shape, width]
        ident = self._ids.get(name)
        if ident is None:
            # A column of texts is as wide as its longest one, and the length of most is the number of rows or nodes.
            ident = self._ids[name] = self.run.define(name, name, kind, "", "text" if text else array.dtype.name, shape,
                                                      text or len(array) != 1, -1, [], list(collections))
        if ident == NOT_WANTED or not array.size:
            return
        if text:
            strides = [shape[-1], 1] if len(shape) == 2 else [1]
            self.run.put_ptr(ident, array.ctypes.data, "text", shape, strides)
        else:
            self.run.put_array(ident, array)

    def _scalar(self, name: str, value: Any) -> None:
        ident = self._series.get(name)
        if ident is None:
            ident = self._series[name] = self.run.define_scalar(name)
        self.run.put_scalars([ident], [value])

    def _hyperparameters(self) -> dict[str, Any]:
        values = {}
        for key, value in self._params.items():
            if isinstance(value, (list, tuple)):
                array = np.array([str(v) for v in value] if any(isinstance(v, str) for v in value) else value)
            elif isinstance(value, (bool, int, float)):
                array = np.array([value])
            else:
                array = np.array([str(value)])
            if array.dtype.kind in "biufU" and array.size:
                values[f"hyperparameters/{key}"] = array
        return values


def cause(error: BaseException) -> str:
    """What a library says went wrong, in one line: without the time and the source line that XGBoost puts in front of
    it, and without the C++ stack it puts behind."""
    text = re.split(r"\n\s*(?:\n|Stack trace)", str(error).strip(), maxsplit=1)[0]
    text = re.sub(r"^\[\d\d:\d\d:\d\d\] \S+:\d+: ", "", text)
    return " ".join(text.split()) or type(error).__name__


def shares(kind: str, scores: dict[str, float]) -> dict[str, Any]:
    """`feature_importance/<kind>/<feature>` of {feature: score}: parts of their sum."""
    total = sum(scores.values())
    return {f"feature_importance/{kind}/{f}": [score / total if total else 0.0] for f, score in scores.items()}


def column_means(values: Any) -> list[Any]:
    """Of SHAP values, (rows, features + 1) or (rows, classes, features + 1): an array per feature, the bias last.

    Summed in float64: in float32 the rows of a column are added one after the other, and from some million of them on a
    mean is percents off.
    """
    means = values.mean(axis=0, dtype=np.float64).astype(values.dtype)
    return [np.atleast_1d(column) for column in np.moveaxis(means, -1, 0)]
