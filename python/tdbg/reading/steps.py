"""Which steps: modes, kinds, states, and how a choice of them is said to the library."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import InvalidArgumentError
from ..modes import ModeKeys

if TYPE_CHECKING:
    from .. import _trial

#: A mode by itself, its name in any case, or its number; None is GLOBAL.
Mode = ModeKeys | str | int | None
#: Of what a step (or a tensor at a step) must have something.
Kind = Literal["any", "raw", "summary", "saved", "histogram"]
#: tdbg::StepFilter, as the extension takes it: mode, kind, incomplete, begin, end.
StepFilter = tuple[int, int, bool, int, int]

KINDS: dict[str, int] = {"any": 0, "raw": 1, "summary": 2, "saved": 3, "histogram": 4}
FIRST, LAST = -(2**63), 2**63 - 1


class StepState(Enum):
    """Whether a step can be read."""

    UNAVAILABLE = 0  #: it was not kept, and never will be
    AVAILABLE = 1  #: every worker has committed it, has ended, or was declared lost
    NOT_YET_AVAILABLE = 2  #: it may still come, or a worker's part of it may


class Step(NamedTuple):
    """One step of a run."""

    global_step: int
    mode: ModeKeys
    mode_step: int
    wall_time: float  #: seconds since 1970
    skipped: bool  #: AMP skipped the update
    complete: bool  #: every worker committed it, ended, or died
    raw_values: int  #: kept in it, of all workers together
    summaries: int  #: rows of statistics and plain numbers

    @classmethod
    def _of(cls, info: _trial.StepInfo) -> Step:
        return cls(info.global_step, ModeKeys(info.mode), info.mode_step, info.wall_nanos * 1e-9, info.skipped,
                   info.complete, info.raw_values, info.summaries)


def mode_of(mode: Mode) -> ModeKeys:
    """A mode by itself, its name in any case, or its number. None is GLOBAL.

    :raises InvalidArgumentError: names the modes that there are

    >>> mode_of("eval"), mode_of(1), mode_of(None)
    (<ModeKeys.EVAL: 2>, <ModeKeys.TRAIN: 1>, <ModeKeys.GLOBAL: 4>)
    """
    if isinstance(mode, ModeKeys):
        return mode
    if mode is None:
        return ModeKeys.GLOBAL
    if isinstance(mode, str):
        try:
            return ModeKeys[mode.upper()]
        except KeyError:
            names = ", ".join(key.name for key in ModeKeys)
            raise InvalidArgumentError(f"no mode '{mode}': one of {names}") from None
    try:
        return ModeKeys(getattr(mode, "value", mode))
    except ValueError:
        raise InvalidArgumentError(f"no mode {mode!r}: one of {', '.join(key.name for key in ModeKeys)}") from None


def kind_of(kind: str) -> str:
    """The kind itself.

    :raises InvalidArgumentError: there is none of this name; names those that there are
    """
    if kind in KINDS:
        return kind
    raise InvalidArgumentError(f"no kind '{kind}': one of {', '.join(KINDS)}")


def step_filter(mode: Mode, kind: str, incomplete: bool = False, begin: int | None = None,
                end: int | None = None) -> StepFilter:
    """What the extension takes for tdbg::StepFilter. `begin` and `end` are global steps, `end` exclusive."""
    return (mode_of(mode).value, KINDS[kind_of(kind)], bool(incomplete), FIRST if begin is None else int(begin),
            LAST if end is None else int(end))


#: Every step, by its global number.
EVERY_STEP = step_filter(ModeKeys.GLOBAL, "any")
