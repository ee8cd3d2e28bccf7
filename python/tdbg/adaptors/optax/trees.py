"""What the leaves of a pytree of parameters are called, and which of an optimizer's state belongs to which of them."""

from __future__ import annotations

from typing import Any

import jax

#: Parts of a path that say nothing: flax's collection of parameters, and the field of an nnx.Variable.
_SILENT_FIRST, _SILENT_LAST = "params", "value"


def named(tree: Any) -> list[tuple[str, Any]]:
    """[(path of the leaf: "Dense_0/kernel", leaf)] of what is an array."""
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        parts = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
        if len(parts) > 1 and parts[0] == _SILENT_FIRST:
            parts = parts[1:]
        if len(parts) > 1 and parts[-1] == _SILENT_LAST:
            parts = parts[:-1]
        if (
            hasattr(leaf, "dtype")
            and hasattr(leaf, "shape")
            and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended)
        ):
            found.append(("/".join(parts) or "param", leaf))
    return found


def kind(name: str) -> str:
    return "bias" if name.rsplit("/", 1)[-1] in ("bias", "b") else "weight"


def state_of(state: Any, parameters: dict[str, tuple[int, ...]]) -> list[tuple[str, str, Any]]:
    """[(parameter's name, "mu", leaf)] of an optimizer's state: leaves that lie under a parameter's path, in its shape.

    :param parameters: name -> shape
    """
    found = []
    for path, leaf in named(state):
        parts = path.split("/")
        for n in range(1, len(parts)):
            inner = parts[n:]
            name = "/".join(inner[1:] if len(inner) > 1 and inner[0] == _SILENT_FIRST else inner)
            if parameters.get(name) == tuple(leaf.shape):
                found.append((name, parts[n - 1], leaf))
                break
    return found
