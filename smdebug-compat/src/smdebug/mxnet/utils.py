import numpy as np
from tdbg.compat.exceptions import SMDebugError

from ..core.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS
from ..core.reductions import get_numpy_reduction
from ..core.utils import make_numpy_array


def get_reduction_of_data(aggregation_name, tensor_data, tensor_name, abs=False):
    """One reduction of an array, numpy's or MXNet's, as numpy computes it."""
    if aggregation_name not in ALLOWED_REDUCTIONS + ALLOWED_NORMS:
        raise SMDebugError(f"no reduction {aggregation_name!r}: one of {', '.join(ALLOWED_REDUCTIONS + ALLOWED_NORMS)}")
    data = tensor_data if isinstance(tensor_data, np.ndarray) else tensor_data.asnumpy()
    return get_numpy_reduction(aggregation_name, data, abs)
