"""What smdebug's programs catch, under smdebug's names; each is also the error of tdbg.errors that says the same.

Constructor arguments are attributes, as there.
"""

from __future__ import annotations

from .. import errors
from ..errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, TdbgError, UnimplementedError
from ..modes import ModeKeys

__all__ = [
    "IndexReaderException", "InsufficientInformationForRuleInvocation", "InvalidCollectionConfiguration",
    "InvalidWorker", "MissingCollectionFiles", "ModeKeys", "NoMoreData", "NoMoreProfilerData",
    "RuleEvaluationConditionMet", "SMDebugCustomerError", "SMDebugError", "SMDebugNotImplementedError",
    "SMDebugRuntimeError", "SMDebugTypeError", "SMDebugValueError", "ShapeUnavailableForStep",
    "StepNotYetAvailable", "StepUnavailable", "TensorUnavailable", "TensorUnavailableForStep",
]


class SMDebugError(TdbgError):
    """Base of everything below."""


class SMDebugTypeError(SMDebugError, TypeError):
    """An argument of a type that is not taken."""


class SMDebugValueError(SMDebugError, InvalidArgumentError):
    """An argument that can never work."""


class SMDebugRuntimeError(SMDebugError, FailedPreconditionError):
    """It could work, but not in this state."""


class SMDebugNotImplementedError(SMDebugError, UnimplementedError):
    """Something of smdebug's that tdbg does not offer. The message says what does instead."""


class SMDebugCustomerError(SMDebugError):
    """A fault of the script; tdbg raises none."""


class InvalidCollectionConfiguration(SMDebugError, InvalidArgumentError):
    """A collection that could never hold a tensor."""

    def __init__(self, c_name: str) -> None:
        self.c_name = c_name
        super().__init__(f"collection '{c_name}' has neither include_regex nor tensor names, so nothing can be in it")


class StepNotYetAvailable(SMDebugError, errors.StepNotYetAvailable):
    """The step may still come: the training is running."""


class StepUnavailable(SMDebugError, errors.StepUnavailable):
    """The step was not saved, and never will be."""


class NoMoreData(SMDebugError, errors.NoMoreData):
    """The training has ended before this step."""


class TensorUnavailable(SMDebugError, errors.TensorUnavailable):
    """No tensor of this name."""


class TensorUnavailableForStep(SMDebugError, errors.TensorUnavailableForStep):
    """The step is there, and what was asked for of the tensor is not."""


class ShapeUnavailableForStep(SMDebugError, errors.ShapeUnavailableForStep):
    """Neither a shape nor a value is there at the step."""


class InvalidWorker(SMDebugError, errors.InvalidWorker):
    """This worker has nothing of the tensor at the step."""


class MissingCollectionFiles(SMDebugError, NotFoundError):
    """The job has ended without leaving a run."""

    def __init__(self, message: str = "the training has ended, and not every worker has left its collections") -> None:
        super().__init__(message)


class IndexReaderException(SMDebugError):
    """The name of a file is not that of an index or event file."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class NoMoreProfilerData(SMDebugError, FailedPreconditionError):
    """Of smdebug's profiler; tdbg raises none."""

    def __init__(self, timestamp: float) -> None:
        self.timestamp = timestamp
        super().__init__(f"there is no profiler data after {timestamp}")


class RuleEvaluationConditionMet(SMDebugError):
    """A rule's condition holds at `step`. With `end_of_rule`, the rule is not to be asked again."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule
        # The service's own words: status details and log filters look for them.
        super().__init__(f"Evaluation of the rule {rule_name} at step {step} resulted in the condition being met")


class InsufficientInformationForRuleInvocation(SMDebugError, FailedPreconditionError):
    """A rule cannot judge: what it needs was not saved."""

    def __init__(self, rule_name: str, message: str) -> None:
        self.rule_name, self.message = rule_name, message
        super().__init__(f"rule {rule_name} cannot be judged: {message}")
