"""Which part of a tensor this process has (FSDP2, tensor parallelism), from its DTensor's layout alone: nothing is
communicated. A reader takes the parts of all ranks together; statistics of the whole are those of its parts, merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..guard import pass_on, say

if TYPE_CHECKING:
    import torch

_said: list[Any] = []


def whole_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A DTensor's values where all of them are here; None where other ranks have some of them, or shares of a sum. Any
    other tensor as it is."""
    placements, local = getattr(tensor, "placements", None), getattr(tensor, "_local_tensor", None)
    if placements is None or local is None:
        return tensor
    return local if all(p.is_replicate() for p in placements) else None


def part_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Arguments of Run.define for a part of a larger tensor; {} for a tensor that is here as a whole."""
    placements = getattr(tensor, "placements", None)
    local = getattr(tensor, "_local_tensor", None)
    if placements is None or local is None or all(p.is_replicate() for p in placements):
        return {}
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        shape, begin = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, placements)
        if tuple(shape) == tuple(local.shape) and not any(p.is_partial() for p in placements):
            return {"whole_shape": list(tensor.shape), "part_begin": [int(b) for b in begin]}
    except Exception as error:
        pass_on(error)                        # a private function of torch's, and it moved
    if not _said:
        _said.append(True)
        say(f"a tensor distributed as {tuple(placements)} is recorded rank by rank: its parts cannot be taken together")
    return {}
