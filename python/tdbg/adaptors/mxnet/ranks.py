"""Which of how many workers a process is."""

from __future__ import annotations

import sys

from ..ranks import LAUNCHER, of_environment


def of_process() -> tuple[int, int]:
    """(rank, world size) of Horovod, else of whoever set RANK and WORLD_SIZE, else of a worker of MXNet's parameter
    server."""
    horovod = sys.modules.get("horovod.mxnet")
    try:
        if horovod is not None:
            return horovod.rank(), horovod.size()
    except ValueError:      # it was imported, and hvd.init() not called yet
        return 0, 1
    return of_environment(LAUNCHER, ("DMLC_WORKER_ID", "DMLC_NUM_WORKER")) or (0, 1)
