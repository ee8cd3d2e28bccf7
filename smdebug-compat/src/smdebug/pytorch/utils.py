"""Reductions of torch's tensors, and which torch this is."""

import numpy as np
import torch
from tdbg.compat.exceptions import SMDebugError

from ..core.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS
from ..core.reductions import get_numpy_reduction


class _Version(tuple):
    """Numbers of a version, compared as such."""

    def __new__(cls, text):
        return super().__new__(cls, (int("".join(c for c in part if c.isdigit()) or 0) for part in text.split("+")[0].split(".")[:3]))


PT_VERSION = _Version(torch.__version__)
SUPPORTED_PT_VERSION_THRESHOLD = _Version("3.0.0")


def get_reduction_of_data(reduction_name, tensor_data, tensor_name, abs=False):
    """One reduction of a tensor, as a tensor; of an array, as numpy computes it. std and variance divide by n - 1, norms
    are over all elements.

    :raises SMDebugError: nothing of this name
    """
    if isinstance(tensor_data, np.ndarray):
        return get_numpy_reduction(reduction_name, tensor_data, abs)
    data = torch.abs(tensor_data) if abs else tensor_data
    if reduction_name in ALLOWED_NORMS:
        return torch.linalg.vector_norm(data, int(reduction_name[1]))
    name = {"variance": "var"}.get(reduction_name, reduction_name)
    if reduction_name not in ALLOWED_REDUCTIONS and not hasattr(torch, name):
        raise SMDebugError(f"no reduction {reduction_name!r}: one of {', '.join(ALLOWED_REDUCTIONS + ALLOWED_NORMS)}")
    return getattr(torch, name)(data)


def _is(minor):
    return lambda: PT_VERSION[:2] == (1, minor)


is_pt_1_5, is_pt_1_6, is_pt_1_7, is_pt_1_8, is_pt_1_9 = (_is(minor) for minor in range(5, 10))


def is_current_version_supported(pytorch_version=torch.__version__) -> bool:
    """tdbg asks nobody's version; this is smdebug's range."""
    return (1, 5, 0) <= _Version(pytorch_version) < SUPPORTED_PT_VERSION_THRESHOLD
