"""What tdbg raises: one type for each of the library's codes (include/tdbg/status.h), each also a built-in one, and
below them those that say which step, tensor or worker a reader asked for in vain.

Constructor arguments of the latter are attributes: `error.step`, `error.mode`, `error.tname`.
"""

from __future__ import annotations

from .modes import ModeKeys


class TdbgError(Exception):
    """Any error of tdbg. `code` is the library's number for it; the message is for people."""

    code = 0

    def __reduce__(self) -> tuple[object, ...]:
        # By itself it would be made again from its message alone, which is not what the constructors below take: a
        # pool of processes whose worker raised one would wait for ever.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[TdbgError], args: tuple[object, ...], attributes: dict[str, object]) -> TdbgError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidArgumentError(TdbgError, ValueError):
    """Something was asked for that can never work."""

    code = 1


class NotFoundError(TdbgError, LookupError):
    """The named thing does not exist. The message says what does."""

    code = 2


class AlreadyExistsError(TdbgError):
    """Something is in the way that is not ours to replace."""

    code = 3


class FailedPreconditionError(TdbgError, RuntimeError):
    """It could work, but not in this state: locked, ended, not yet."""

    code = 4


class DataLossError(TdbgError):
    """Bytes were read that are damaged."""

    code = 5


class ResourceExhaustedError(TdbgError):
    """Disk, memory or a limit is full."""

    code = 6


class UnimplementedError(TdbgError, NotImplementedError):
    """A valid request that this version cannot serve: a newer format, an unknown type."""

    code = 7


class UnavailableError(TdbgError):
    """Not yet; asking again may work."""

    code = 8


class DeadlineExceededError(TdbgError, TimeoutError):
    """The time that the caller gave has passed."""

    code = 9


class InternalError(TdbgError):
    """A defect of tdbg."""

    code = 10


_BY_CODE: dict[int, type[TdbgError]] = {cls.code: cls for cls in TdbgError.__subclasses__()}


def of_code(code: int) -> type[TdbgError]:
    """The type for a code of the library's; TdbgError for one that is not known here.

    >>> of_code(2).__name__, of_code(99).__name__
    ('NotFoundError', 'TdbgError')
    """
    return _BY_CODE.get(code, TdbgError)


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that is not taken."""


def _at(step: int, mode: ModeKeys) -> str:
    name = getattr(mode, "name", mode)
    return f"step {step}" if name == "GLOBAL" else f"step {step} of mode {name}"


class StepNotYetAvailable(UnavailableError):
    """The step may still come: the training is running."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        self.step, self.mode = step, mode
        super().__init__(f"{_at(step, mode)} has not been written yet; the training is still running")


class StepUnavailable(NotFoundError):
    """The step was not saved, and never will be."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        self.step, self.mode = step, mode
        super().__init__(f"{_at(step, mode)} was not saved")


class NoMoreData(FailedPreconditionError):
    """The training has ended before this step. `last_step` is its last one; -1: it has none."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        self.step, self.mode, self.last_step = step, mode, last_step
        super().__init__(f"{_at(step, mode)} will not come: the training has ended, its last step is {last_step}")


class TensorUnavailable(NotFoundError):
    """No tensor of this name. The message names the nearest."""

    def __init__(self, tname: str) -> None:
        self.tname = tname
        super().__init__(f"no tensor '{tname}' was saved")


class TensorUnavailableForStep(NotFoundError):
    """The step is there, and what was asked for of the tensor is not. `has_reductions`: its statistics are."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL, has_reductions: bool = False) -> None:
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions
        also = "; its reductions were: ask for reduction_value()" if has_reductions else ""
        super().__init__(f"the value of '{tname}' was not saved at {_at(step, mode)}{also}")


class ShapeUnavailableForStep(NotFoundError):
    """Neither a shape nor a value, from which it would follow, is there at the step."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        self.tname, self.step, self.mode = tname, step, mode
        super().__init__(f"neither the shape nor the value of '{tname}' was saved at {_at(step, mode)}")


class InvalidWorker(NotFoundError):
    """This worker has nothing of the tensor at the step. The message names those that have."""

    def __init__(self, worker: str | None) -> None:
        self.worker = worker
        super().__init__(f"worker '{worker}' has not saved this tensor at this step")
