import numpy as np
from tdbg.compat.exceptions import SMDebugValueError
from tdbg.hook.reduction_config import (
    ALLOWED_NORMS,
    ALLOWED_REDUCTIONS,
    REDUCTIONS_PREFIX,
    get_reduction_tensor_name,
    reverse_reduction_tensor_name,
)


def get_numpy_reduction(reduction_name, numpy_data, abs=False):
    """One reduction of an array, or of its absolute values. Norms are numpy.linalg.norm's: of a matrix, a matrix norm.

    :raises SMDebugValueError: neither of ALLOWED_REDUCTIONS nor of ALLOWED_NORMS
    """
    if reduction_name not in ALLOWED_REDUCTIONS + ALLOWED_NORMS:
        raise SMDebugValueError(f"no reduction {reduction_name!r}: one of {', '.join(ALLOWED_REDUCTIONS + ALLOWED_NORMS)}")
    return get_basic_numpy_reduction(reduction_name, np.absolute(numpy_data) if abs else numpy_data)


def get_basic_numpy_reduction(reduction_name, numpy_data):
    """The same; None for an unknown name."""
    if reduction_name in ALLOWED_REDUCTIONS:
        return getattr(np, {"variance": "var"}.get(reduction_name, reduction_name))(numpy_data)
    if reduction_name in ALLOWED_NORMS:
        return np.linalg.norm(np.atleast_1d(numpy_data), ord=int(reduction_name[1]))
    return None
