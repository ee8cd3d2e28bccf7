"""What smdebug's programs catch, under smdebug's names; each is also the error of tdbg.errors that says the same.

Constructor arguments are attributes, as there.
"""

from __future__ import annotations

from .errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TdbgError,
    UnavailableError,
    UnimplementedError,
)
from .modes import ModeKeys


def _at(step, mode) -> str:
    name = getattr(mode, "name", mode)
    return f"step {step}" if name == "GLOBAL" else f"step {step} of mode {name}"


class SMDebugError(TdbgError):
    """Base of everything below."""


class SMDebugTypeError(SMDebugError, TypeError):
    pass


class SMDebugValueError(SMDebugError, InvalidArgumentError):
    pass


class SMDebugRuntimeError(SMDebugError, FailedPreconditionError):
    pass


class SMDebugNotImplementedError(SMDebugError, UnimplementedError):
    pass


class SMDebugCustomerError(SMDebugError):
    pass


class InvalidCollectionConfiguration(SMDebugError, InvalidArgumentError):
    """A collection that could never hold a tensor."""

    def __init__(self, c_name):
        self.c_name = c_name
        super().__init__(f"collection '{c_name}' has neither include_regex nor tensor names, so nothing can be in it")


class StepNotYetAvailable(SMDebugError, UnavailableError):
    def __init__(self, step, mode):
        self.step, self.mode = step, mode
        super().__init__(f"{_at(step, mode)} has not been written yet; the training is still running")


class StepUnavailable(SMDebugError, NotFoundError):
    def __init__(self, step, mode):
        self.step, self.mode = step, mode
        super().__init__(f"{_at(step, mode)} was not saved")


class MissingCollectionFiles(SMDebugError, NotFoundError):
    def __init__(self, message="the training has ended, and not every worker has left its collections"):
        super().__init__(message)


class IndexReaderException(SMDebugError):
    def __init__(self, message):
        self.message = message
        super().__init__(message)


class TensorUnavailableForStep(SMDebugError, NotFoundError):
    def __init__(self, tname, step, mode=ModeKeys.GLOBAL, has_reductions=False):
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions
        also = "; its reductions were: ask for reduction_value()" if has_reductions else ""
        super().__init__(f"the value of '{tname}' was not saved at {_at(step, mode)}{also}")


class ShapeUnavailableForStep(SMDebugError, NotFoundError):
    def __init__(self, tname, step, mode=ModeKeys.GLOBAL):
        self.tname, self.step, self.mode = tname, step, mode
        super().__init__(f"neither the shape nor the value of '{tname}' was saved at {_at(step, mode)}")


class TensorUnavailable(SMDebugError, NotFoundError):
    def __init__(self, tname):
        self.tname = tname
        super().__init__(f"no tensor '{tname}' was saved")


class InvalidWorker(SMDebugError, NotFoundError):
    def __init__(self, worker):
        self.worker = worker
        super().__init__(f"worker '{worker}' has not saved this tensor at this step")


class NoMoreData(SMDebugError, FailedPreconditionError):
    """The training has ended before this step."""

    def __init__(self, step, mode, last_step):
        self.step, self.mode, self.last_step = step, mode, last_step
        super().__init__(f"{_at(step, mode)} will not come: the training has ended, its last step is {last_step}")


class NoMoreProfilerData(SMDebugError, FailedPreconditionError):
    def __init__(self, timestamp):
        self.timestamp = timestamp
        super().__init__(f"there is no profiler data after {timestamp}")


class RuleEvaluationConditionMet(SMDebugError):
    """A rule's condition holds at `step`. With `end_of_rule`, the rule is not to be asked again."""

    def __init__(self, rule_name, step, end_of_rule=False):
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule
        # The service's own words: status details and log filters look for them.
        super().__init__(f"Evaluation of the rule {rule_name} at step {step} resulted in the condition being met")


class InsufficientInformationForRuleInvocation(SMDebugError, FailedPreconditionError):
    def __init__(self, rule_name, message):
        self.rule_name, self.message = rule_name, message
        super().__init__(f"rule {rule_name} cannot be judged: {message}")
