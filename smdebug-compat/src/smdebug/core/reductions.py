from tdbg.hook.reduction_config import (
    ALLOWED_NORMS,
    ALLOWED_REDUCTIONS,
    REDUCTIONS_PREFIX,
    get_reduction_tensor_name,
    reverse_reduction_tensor_name,
)
