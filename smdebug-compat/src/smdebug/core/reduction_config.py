from tdbg.hook.reduction_config import ALLOWED_NORMS, ALLOWED_PARAMS, ALLOWED_REDUCTIONS, ReductionConfig
