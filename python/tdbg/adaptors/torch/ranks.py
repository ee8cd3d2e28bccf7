"""Which of how many workers a process is."""

from __future__ import annotations

import torch

from ..ranks import of_environment, of_horovod


def is_distributed() -> bool:
    """Has the process joined a group of torch.distributed, of one or more?"""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def of_process() -> tuple[int, int]:
    """(rank, world size) of torch.distributed, else of Horovod, else of the launcher that set RANK and WORLD_SIZE."""
    if is_distributed():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return of_horovod("horovod.torch") or of_environment() or (0, 1)
