"""Converts a model's arguments to JSON and named tensors, and back.

A value is one of {"value": number, text, bool or null}, {"float": "nan"}, {"tensor": NAME, "device": ...},
{"tuple": [...]}, {"list": [...]}, {"dict": [[key, value], ...]}, or {"absent": CLASS} for what cannot be kept. Nothing
is pickled: reading one executes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

MAX_DEPTH = 16
MAX_VALUES = 4096

#: Stands where a value could not be kept.
ABSENT = object()


class Encoder:
    """:param add: keeps a tensor (or an array, as a tensor) and returns its name; None if it is left out."""

    def __init__(self, add: Callable[[torch.Tensor], str | None]) -> None:
        self._add = add
        self._left = MAX_VALUES
        #: What could not be kept, as "class" or "too much".
        self.absent: list[str] = []

    def encode(self, value: Any, depth: int = 0) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            return self._absent(value, "deeper or longer than is looked through")
        if isinstance(value, torch.Tensor):
            if value.grad_fn is not None:       # gradients flow through it, to the operation that computed it
                return {"absent": "computed in the step"}
            name = self._add(value)
            if name is None:
                return self._absent(value, "beyond the budget, or of a type that is not kept")
            return {"tensor": name, "device": str(value.device), "requires_grad": value.requires_grad}
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return {"value": value}
        if isinstance(value, float):
            return {"value": float(value)} if math.isfinite(value) else {"float": repr(float(value))}
        if type(value).__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "O") in "biufc":
            name = self._add(torch.as_tensor(value))
            return self._absent(value, "beyond the budget") if name is None else {"tensor": name, "numpy": True}
        if isinstance(value, tuple):        # a named tuple, too: the model unpacks or indexes it
            return {"tuple": [self.encode(v, depth + 1) for v in value]}
        if isinstance(value, list):
            return {"list": [self.encode(v, depth + 1) for v in value]}
        if isinstance(value, Mapping) and all(isinstance(key, (str, int)) for key in value):
            return {"dict": [[key, self.encode(v, depth + 1)] for key, v in value.items()]}
        return self._absent(value, "")

    def _absent(self, value: Any, why: str) -> dict[str, Any]:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        self.absent.append(f"{kind} ({why})" if why else kind)
        return {"absent": kind}


def decode(encoded: Any, tensor: Callable[[str], torch.Tensor], instead: Any = ABSENT) -> Any:
    """Returns the value. What could not be kept is taken from `instead`, the script's object at the same place; a
    tensor is put on the device of the script's tensor.

    :raises ValueError: it is not the JSON of a value
    """
    if not isinstance(encoded, dict):
        raise ValueError(f"expected an object, found {encoded!r:.60}")
    if "value" in encoded:
        return encoded["value"]
    if "float" in encoded:
        return float(encoded["float"])
    if "tensor" in encoded:
        found = tensor(encoded["tensor"])
        if encoded.get("numpy"):
            return found.numpy()
        place = instead.device if isinstance(instead, torch.Tensor) else encoded.get("device", "cpu")
        return found.to(place).requires_grad_(bool(encoded.get("requires_grad")) and found.is_floating_point())
    if "tuple" in encoded or "list" in encoded:
        items = encoded["tuple"] if "tuple" in encoded else encoded["list"]
        parts = [decode(item, tensor, _part(instead, n)) for n, item in enumerate(items)]
        return tuple(parts) if "tuple" in encoded else parts
    if "dict" in encoded:
        return {key: decode(item, tensor, _part(instead, key)) for key, item in encoded["dict"]}
    if "absent" in encoded:
        return instead
    raise ValueError(f"expected one of value, float, tensor, tuple, list, dict, absent; found {sorted(encoded)}")


def _part(whole: Any, key: Any) -> Any:
    try:
        return ABSENT if whole is ABSENT else whole[key]
    except (LookupError, TypeError):
        return ABSENT
