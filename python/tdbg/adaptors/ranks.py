"""Which of how many workers a process is, as its environment says, or Horovod."""

from __future__ import annotations

import json
import os
import sys

#: Of whoever launches workers in the way of torchrun.
LAUNCHER = ("RANK", "WORLD_SIZE")


def of_environment(*names: tuple[str, str]) -> tuple[int, int] | None:
    """(rank, world size) by the first of these pairs of variables that is set; None: no pair is, or it has no
    numbers."""
    for rank, size in names or (LAUNCHER,):
        if rank in os.environ and size in os.environ:
            try:
                return int(os.environ[rank]), int(os.environ[size])
            except ValueError:
                return None
    return None


def of_horovod(module: str) -> tuple[int, int] | None:
    """(rank, world size) of Horovod; None: the script has not imported this part of it, or not called hvd.init()."""
    horovod = sys.modules.get(module)
    if horovod is None:
        return None
    try:
        return horovod.rank(), horovod.size()
    except (ValueError, AttributeError):    # AttributeError: it is being imported
        return None


def of_tensorflow() -> tuple[int, int]:
    """(rank, world size) of Horovod, else of whoever set RANK and WORLD_SIZE, else of a worker of TensorFlow's
    (TF_CONFIG)."""
    if (said := of_horovod("horovod.tensorflow") or of_environment()) is not None:
        return said
    try:
        cluster = json.loads(os.environ["TF_CONFIG"])
        workers = cluster["cluster"].get("chief", []) + cluster["cluster"]["worker"]
        chief = len(cluster["cluster"].get("chief", []))
        return cluster["task"]["index"] + (chief if cluster["task"]["type"] == "worker" else 0), len(workers)
    except (KeyError, TypeError, ValueError):
        return 0, 1
