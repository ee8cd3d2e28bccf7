"""Collections: sets of tensors that are saved alike. smdebug's Collection and CollectionManager."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from ..places import write_whole
from .reduction_config import ReductionConfig
from .save_config import SaveConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class CollectionKeys:
    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


_C = CollectionKeys
SUMMARIES_COLLECTIONS = {_C.TENSORFLOW_SUMMARIES}
SCALAR_COLLECTIONS = {_C.METRICS, _C.LOSSES, _C.FEATURE_IMPORTANCE, _C.AVERAGE_SHAP, _C.SM_METRICS}
NON_REDUCTION_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS
NON_HISTOGRAM_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS
SM_METRIC_COLLECTIONS = {_C.LOSSES, _C.METRICS, _C.SM_METRICS}
DEFAULT_TF_COLLECTIONS = {_C.ALL, _C.DEFAULT, _C.WEIGHTS, _C.BIASES, _C.GRADIENTS, _C.LOSSES, _C.METRICS, _C.INPUTS,
                          _C.OUTPUTS, _C.LAYERS, _C.SM_METRICS, _C.OPTIMIZER_VARIABLES}
DEFAULT_PYTORCH_COLLECTIONS = {_C.ALL, _C.DEFAULT, _C.WEIGHTS, _C.BIASES, _C.GRADIENTS, _C.LOSSES}
DEFAULT_MXNET_COLLECTIONS = DEFAULT_PYTORCH_COLLECTIONS
DEFAULT_XGBOOST_COLLECTIONS = {_C.ALL, _C.DEFAULT, _C.HYPERPARAMETERS, _C.METRICS, _C.LOSSES, _C.PREDICTIONS, _C.LABELS,
                               _C.FEATURE_IMPORTANCE, _C.AVERAGE_SHAP, _C.FULL_SHAP, _C.TREES}
ALLOWED_PARAMS = ["name", "include_regex", "tensor_names", "reduction_config", "save_config", "save_histogram"]


class Collection:
    """Tensors named in `tensor_names`, or whose name one of `include_regex` matches (searched).

    save_config and reduction_config: None inherits the hook's.
    """

    def __init__(self, name: str, include_regex: str | Sequence[str] | None = None,
                 tensor_names: Iterable[str] | None = None, reduction_config: Any = None, save_config: Any = None,
                 save_histogram: bool = True) -> None:
        self._name = name
        self._include_regex: list[str] = []
        self.include_regex = include_regex
        self._tensor_names: set[str] = set(tensor_names or ())
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram

    @property
    def name(self) -> str:
        return self._name

    @property
    def include_regex(self) -> list[Any]:
        return self._include_regex

    @include_regex.setter
    def include_regex(self, patterns: str | Sequence[str] | None) -> None:
        """In place of those that are there."""
        self._include_regex = []
        self.include([] if patterns is None else patterns)

    @property
    def tensor_names(self) -> set[str]:
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, names: list[str] | set[str] | tuple[str, ...]) -> None:
        if not isinstance(names, (list, set, tuple)):
            raise SMDebugTypeError(f"tensor_names is {names!r}: a list or set is accepted")
        self._tensor_names = set(names)

    @property
    def save_config(self) -> SaveConfig | None:
        return self._save_config

    @save_config.setter
    def save_config(self, value: Any) -> None:
        self._save_config = SaveConfig.parse(value)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, value: Any) -> None:
        self._reduction_config = ReductionConfig.parse(value)

    def include(self, patterns: str | Sequence[str]) -> None:
        """Adds a regex, or a list of them."""
        if isinstance(patterns, str):
            patterns = [patterns]
        if not isinstance(patterns, (list, tuple, set)) or not all(isinstance(p, str) for p in patterns):
            raise SMDebugTypeError(f"include({patterns!r}): a regex or a list of them is accepted")
        self._include_regex.extend(patterns)

    def add_tensor_name(self, name: str) -> None:
        self._tensor_names.add(name)

    def remove_tensor_name(self, name: str) -> None:
        self._tensor_names.discard(name)

    def has_tensor_name(self, name: str) -> bool:
        return name in self._tensor_names

    def matches(self, name: str) -> bool:
        return name in self._tensor_names or any(re.search(p, name) for p in self._include_regex)

    def to_json_dict(self) -> dict[str, Any]:
        return {"name": self.name, "include_regex": self.include_regex, "tensor_names": sorted(self.tensor_names),
                "reduction_config": None if self.reduction_config is None else self.reduction_config.to_json_dict(),
                "save_config": None if self.save_config is None else self.save_config.to_json_dict(),
                "save_histogram": self.save_histogram}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Any) -> Self:
        """:param params: of ALLOWED_PARAMS, `name` required; others are passed over, as in newer files."""
        if not isinstance(params, dict) or "name" not in params:
            raise SMDebugValueError(f"a collection is {params!r}: a dict with a name is accepted")
        return cls(**{key: params[key] for key in ALLOWED_PARAMS if key in params})

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<Collection {self.name}: include_regex={self.include_regex}, {len(self.tensor_names)} tensor names>"


class CollectionManager:
    """The collections of a hook, by name."""

    _collection = Collection

    def __init__(self, collections: Iterable[Collection] = ()) -> None:
        self.collections: dict[str, Collection] = {}
        self._meta = {"num_workers": 1}
        for collection in collections:
            self.add(collection)

    def create_collection(self, name: str) -> Collection:
        if name not in self.collections:
            self.collections[name] = self._collection(name)
        return self.collections[name]

    def add(self, collection: Collection | str) -> None:
        """A Collection replaces the one of its name; a name is created if it is not there."""
        if isinstance(collection, Collection):
            self.collections[collection.name] = collection
        elif isinstance(collection, str):
            self.create_collection(collection)
        else:
            raise SMDebugTypeError(f"{collection!r}: a Collection or a name is accepted")

    def get(self, name: str, create: bool = True) -> Collection:
        if name not in self.collections:
            if not create:
                raise SMDebugError(f"no collection {name!r}: there are {', '.join(sorted(self.collections))}")
            return self.create_collection(name)
        return self.collections[name]

    def get_collections(self) -> dict[str, Any]:
        return self.collections

    def set_num_workers(self, count: int) -> None:
        self._meta["num_workers"] = int(count)

    def get_num_workers(self) -> int:
        return self._meta["num_workers"]

    def update_meta(self, meta: dict[str, Any]) -> None:
        self._meta.update(meta)

    def to_json_dict(self) -> dict[str, Any]:
        return {"collections": {name: c.to_json_dict() for name, c in self.collections.items()}, "_meta": self._meta}

    def export(self, out_dir: str, filename: str) -> None:
        """Writes smdebug's collections file: <out_dir>/collections/000000000/<filename>."""
        folder = os.path.join(out_dir, "collections", "000000000")
        os.makedirs(folder, exist_ok=True)
        write_whole(os.path.join(folder, filename), json.dumps(self.to_json_dict()))

    @classmethod
    def load_from_string(cls, text: str) -> Self:
        document = json.loads(text)
        unknown = set(document) - {"collections", "_meta"}
        if unknown:
            raise SMDebugValueError(f"a collections file holds {sorted(unknown)}: collections and _meta are accepted")
        manager = cls(cls._collection.from_dict(c) for c in document.get("collections", {}).values())
        manager._meta.update(document.get("_meta", {}))
        return manager

    @classmethod
    def load(cls, filename: str) -> Self:
        with open(filename, encoding="utf-8") as file:
            return cls.load_from_string(file.read())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CollectionManager) and self.collections == other.collections

    __hash__ = None  # type: ignore[assignment]
