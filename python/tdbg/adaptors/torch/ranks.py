"""Which of how many workers a process is."""

from __future__ import annotations

import torch

from ..ranks import of_environment, of_horovod


def of_process() -> tuple[int, int]:
    """(rank, world size) of torch.distributed, else of Horovod, else of whoever set RANK and WORLD_SIZE."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return of_horovod("horovod.torch") or of_environment() or (0, 1)
