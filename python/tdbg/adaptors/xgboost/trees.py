"""The trees of one boosting round as columns, one row per node: smdebug's `trees/*`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

#: Column -> type; the order is smdebug's.
COLUMNS = {"Tree": np.int64, "Node": np.int64, "ID": str, "Feature": str, "Split": np.float64, "Yes": str, "No": str,
           "Missing": str, "Gain": np.float64, "Cover": np.float64, "Category": str}


def _nodes(tree: dict[str, Any]) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.get("children", ()))


def booster_of(model: Any) -> str:
    """"gbtree", "dart" or "gblinear"."""
    return str(json.loads(model.save_config())["learner"]["gradient_booster"]["name"])


def columns(dumps: Sequence[str], first_tree: int) -> dict[str, Any]:
    """{column: array} for the JSON dumps (with_stats=True) of consecutive trees, the first of them number
    `first_tree`. Nodes are in ascending order of their numbers, tree by tree; a leaf's Gain is its value.
    """
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def add(**values: Any) -> None:
        for name in COLUMNS:
            rows[name].append(values[name])

    for offset, dump in enumerate(dumps):
        tree = first_tree + offset
        for node in sorted(_nodes(json.loads(dump)), key=lambda n: n["nodeid"]):
            common = {"Tree": tree, "Node": node["nodeid"], "ID": f"{tree}-{node['nodeid']}",
                      "Cover": node.get("cover", np.nan)}
            if "leaf" in node:
                leaf = node["leaf"]
                gain = leaf if isinstance(leaf, (int, float)) else np.nan      # vector leaves have no one value
                add(**common, Feature="Leaf", Split=np.nan, Yes="nan", No="nan", Missing="nan", Gain=gain,
                    Category="nan")
                continue
            condition = node.get("split_condition")
            categories = condition if isinstance(condition, list) else None
            add(**common, Feature=str(node["split"]),
                Split=np.nan if categories is not None or condition is None else condition,
                Yes=f"{tree}-{node['yes']}", No=f"{tree}-{node['no']}", Missing=f"{tree}-{node['missing']}",
                Gain=node.get("gain", np.nan),
                Category="nan" if categories is None else json.dumps(categories))
    return {name: np.array(values, dtype=kind) for (name, kind), values in zip(COLUMNS.items(), rows.values())}
