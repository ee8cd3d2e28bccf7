"""What tdbg raises: one type for each of the library's codes (include/tdbg/status.h), each also a built-in one."""

from __future__ import annotations


class TdbgError(Exception):
    """Any error of tdbg. `code` is the library's number for it; the message is for people."""

    code = 0


class InvalidArgumentError(TdbgError, ValueError):
    """Something was asked for that can never work."""

    code = 1


class NotFoundError(TdbgError, LookupError):
    """The named thing does not exist. The message says what does."""

    code = 2


class AlreadyExistsError(TdbgError):
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
    code = 9


class InternalError(TdbgError):
    """A defect of tdbg."""

    code = 10


_BY_CODE = {cls.code: cls for cls in TdbgError.__subclasses__()}


def of_code(code: int) -> type[TdbgError]:
    return _BY_CODE.get(code, TdbgError)
