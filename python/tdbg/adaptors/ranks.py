"""Which of how many workers a process is, as its environment says."""

import json
import os


def of_tensorflow():
    """(rank, world size) of whoever set RANK and WORLD_SIZE, else of a worker of TensorFlow's (TF_CONFIG)."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        try:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except ValueError:
            pass
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])
        workers = cluster["cluster"].get("chief", []) + cluster["cluster"]["worker"]
        chief = len(cluster["cluster"].get("chief", []))
        return cluster["task"]["index"] + (chief if cluster["task"]["type"] == "worker" else 0), len(workers)
    except (KeyError, TypeError, ValueError):
        return 0, 1
