"""Whether a trial's calls look for news, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .trial import Trial

_Trials = TypeVar("_Trials", bound="Trial | Sequence[Trial]")


@contextmanager
def _refreshing(trials: _Trials, on: bool) -> Iterator[_Trials]:
    with ExitStack() as stack:
        every: Iterable[Any] = trials if isinstance(trials, (list, tuple)) else [trials]
        for trial in every:
            stack.callback(setattr, trial, "dynamic_refresh", trial.dynamic_refresh)
            trial.dynamic_refresh = on
        yield trials


def refresh(trials: _Trials) -> AbstractContextManager[_Trials]:
    """with refresh(trial): calls look for new data. Afterwards, or after an exception, as before. May be nested.

    :param trials: a trial, or a list of them

    >>> with refresh(trial) as watched:
    ...     watched.dynamic_refresh, watched.steps()
    (True, [0, 1, 2])
    """
    return _refreshing(trials, True)


def no_refresh(trials: _Trials) -> AbstractContextManager[_Trials]:
    """with no_refresh(trial): a view that does not move. Afterwards, or after an exception, as before. May be nested.

    :param trials: a trial, or a list of them
    """
    return _refreshing(trials, False)
