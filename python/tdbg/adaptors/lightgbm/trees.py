"""The trees of one round as columns, one row per node, in the shape that smdebug gives XGBoost's: `trees/*`."""

from __future__ import annotations

from typing import Any

import numpy as np


def columns(model: Any) -> dict[str, Any]:
    """{column: array} of what Booster.dump_model gives. Nodes come as in Booster.trees_to_dataframe, numbered from 0 in
    each tree; `ID` is LightGBM's own name of one ("0-S1" a split, "0-L2" a leaf). A leaf's Gain is its value, and its
    Cover the rows in it.
    """
    names = model["feature_names"]
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")
    }

    def name_of(tree: dict[str, Any], node: Any) -> str:
        return f"{tree}-S{node['split_index']}" if "split_index" in node else f"{tree}-L{node.get('leaf_index', 0)}"

    for dump in model["tree_info"]:
        tree, waiting, number = dump["tree_index"], [dump["tree_structure"]], 0
        while waiting:
            node = waiting.pop()
            row = {"Tree": tree, "Node": number, "ID": name_of(tree, node)}
            number += 1
            if "split_index" in node:
                left, right = name_of(tree, node["left_child"]), name_of(tree, node["right_child"])
                category = node["decision_type"] == "=="
                row.update(
                    Feature=names[node["split_feature"]],
                    Split=np.nan if category else node["threshold"],
                    Yes=left,
                    No=right,
                    Missing=left if node["default_left"] else right,
                    Gain=node["split_gain"],
                    Cover=node["internal_count"],
                    Category=str(node["threshold"]) if category else "nan",
                )
                waiting += [node["right_child"], node["left_child"]]
            else:
                row.update(Feature="Leaf", Split=np.nan, Yes="nan", No="nan", Missing="nan", Gain=node["leaf_value"],
                           Cover=node.get("leaf_count", np.nan), Category="nan")
            for name, value in row.items():
                rows[name].append(value)
    kinds = {"Tree": np.int64, "Node": np.int64, "Split": np.float64, "Gain": np.float64, "Cover": np.float64}
    return {name: np.array(values, dtype=kinds.get(name, str)) for name, values in rows.items()}
