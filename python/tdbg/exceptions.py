"""What a reader of runs catches, under smdebug's names.

Those about steps, tensors and workers are raised by every trial; a trial of smdebug's (`create_trial`) raises the
subclasses of tdbg.compat.exceptions, which are SMDebugError, too. The others are smdebug's alone.
"""

from .compat.exceptions import (
    IndexReaderException,
    InsufficientInformationForRuleInvocation,
    InvalidCollectionConfiguration,
    MissingCollectionFiles,
    NoMoreProfilerData,
    RuleEvaluationConditionMet,
    SMDebugCustomerError,
    SMDebugError,
    SMDebugNotImplementedError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)
from .errors import (
    InvalidWorker,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)

__all__ = [
    "IndexReaderException", "InsufficientInformationForRuleInvocation", "InvalidCollectionConfiguration",
    "InvalidWorker", "MissingCollectionFiles", "NoMoreData", "NoMoreProfilerData", "RuleEvaluationConditionMet",
    "SMDebugCustomerError", "SMDebugError", "SMDebugNotImplementedError", "SMDebugRuntimeError",
    "SMDebugTypeError", "SMDebugValueError", "ShapeUnavailableForStep", "StepNotYetAvailable",
    "StepUnavailable", "TensorUnavailable", "TensorUnavailableForStep",
]
