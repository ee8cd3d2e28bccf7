"""At which step an attempt begins (docs/jobs.md, "Where an attempt goes on"): what the script says, else smdebug's
state beside the checkpoints, else the optimizer's own count. If none of them is known, the run lays it behind all that
earlier attempts have reached (src/session/earlier_steps.h): it must not hide a step of theirs.

A script and an optimizer count training steps only. `earlier_steps.json`, which the launcher writes into each further
attempt, holds the steps that readers saw when it began; from it follow the global step and the evaluations before it.
An attempt that no launcher started, as where torchrun starts a worker again, has it made by the command line.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

TYPE_CHECKING = False  # as typing's, which would cost an import in each training
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

EARLIER_STEPS = "earlier_steps.json"
METADATA = "metadata.json"
BEHIND = "behind"       # the `source` of an attempt that is laid behind what was there
_TRAIN, _EVAL, _PREDICT, _GLOBAL = "TRAIN", "EVAL", "PREDICT", "GLOBAL"
_LARGEST = 2**53

_said: int | None = None


def resume_step(n: int) -> None:
    """Says that the loaded checkpoint holds `n` training steps, so that this attempt continues behind them. Call it
    after the checkpoint was loaded and before the first step (with a smdebug hook, before the hook is made). The last
    call counts.

        state = torch.load("last.pt")
        tdbg.resume_step(state["step"])

    :param n: steps as tdbg counts them, updates of the weights; evaluations between them are not counted
    :raises ValueError: it is not a number of steps
    """
    global _said
    if isinstance(n, bool) or not hasattr(n, "__index__") or not 0 <= n.__index__() < _LARGEST:
        raise ValueError(f"resume_step takes a number of training steps, 0 or more, not {n!r}")
    _said = n.__index__()


def take_said() -> int | None:
    """What the script said, once."""
    global _said
    said, _said = _said, None
    return said


@dataclass
class Beginning:
    """Where an attempt begins.

    :ivar step: global
    :ivar modes: mode -> its own first step
    :ivar source: "script", "metadata.json", "optimizer"; BEHIND: who knows the script's step does not know the run's;
        "": unknown
    :ivar recorded: how many of the steps that readers saw are replaced, from `step` on; negative: how many are missing
    """

    step: int = 0
    modes: dict[str, int] = field(default_factory=dict)
    source: str = ""
    recorded: int = 0

    def words(self, attempt: int, who: str) -> str:
        """For people; `who` says it."""
        if self.source == BEHIND:
            return (f"attempt {attempt} begins at step {self.step}, behind the steps of the attempts before it: {who} "
                    f"says where it goes on, but of one of those nobody does")
        text = f"attempt {attempt} goes on at step {self.step}, as {who} says"
        if self.recorded > 0:
            last = self.step + self.recorded - 1
            again = f"step {last} is" if self.recorded == 1 else f"steps {self.step} to {last} are"
            text += f"; {again} trained again"
        elif self.recorded < 0:
            text += f"; nothing is known of steps {self.step + self.recorded} to {self.step - 1}"
        return text


class EarlierSteps:
    """The steps that readers saw when an attempt began.

    :param spans: [(mode, first global step, first step of the mode, how many, skipped)]; steps between them had
        nothing due
    :param optimizer_began: how far the optimizer's count was ahead of the numbers of training steps, at the first
    :param next_step: the step after the last one; default: after the last of `spans`
    :param unplaced_from: the first step of an attempt that was laid behind the others. From there on the run's numbers
        are not the script's. None: there is none
    """

    def __init__(self, spans: list[tuple[str, int, int, int, bool]], optimizer_began: int = 0, next_step: int = 0,
                 unplaced_from: int | None = None) -> None:
        self.spans, self.optimizer_began = spans, optimizer_began
        self._unplaced_from = unplaced_from
        self.next_step = max(next_step, spans[-1][1] + spans[-1][3] if spans else 0)
        # A script that never says its mode trains in GLOBAL (smdebug's hooks).
        self._trains = _TRAIN if any(span[0] == _TRAIN for span in spans) else _GLOBAL

    def behind(self, trained: int, by_optimizer: bool = False, evaluates: bool = False) -> Beginning:
        """The step behind so many that trained.

        :param by_optimizer: steps whose update was skipped do not count
        :param evaluates: the attempt begins with an evaluation, and repeats what followed; else evaluations that came
            between two steps of training stay
        """
        modes = {_TRAIN: 0, _EVAL: 0, _PREDICT: 0}
        step, target = 0, trained
        for mode, first, mode_first, count, skipped in self.spans:
            if self._unplaced_from is not None and first >= self._unplaced_from:
                # Up to here the checkpoint is known to the run; what follows is trained again.
                if modes[_TRAIN] >= target:
                    break
                return self._behind_all()
            if mode != self._trains:
                if evaluates and modes[_TRAIN] >= target:
                    break
                step, modes[mode] = first + count, mode_first + count
                continue
            if target <= mode_first:
                if target == mode_first and not evaluates:
                    step, modes[_TRAIN] = first, target
                break
            if by_optimizer and skipped:
                target += count
            taken = min(count, target - mode_first)
            step, modes[_TRAIN] = first + taken, mode_first + taken
            if taken < count:
                break
        step, modes[_TRAIN] = step + target - modes[_TRAIN], target     # nothing is known of those
        return Beginning(step, modes, "", self.next_step - step)

    def _behind_all(self) -> Beginning:
        modes = {_TRAIN: 0, _EVAL: 0, _PREDICT: 0}
        for mode, _, mode_first, count, _ in self.spans:
            if mode in modes:
                modes[mode] = max(modes[mode], mode_first + count)
        return Beginning(self.next_step, modes, BEHIND)

    def at(self, step: int, modes: dict[str, int]) -> Beginning:
        """A global step that somebody knows."""
        return Beginning(step, dict(modes), "", self.next_step - step if self.spans else 0)


def earlier_steps(directory: str = "", rank: int = 0, make: Callable[[str, int], None] | None = None) -> EarlierSteps:
    """The steps before the attempt that this worker is about to begin; none, if it is the first or nothing can be read.

    :param directory: the run's; "": the launcher's
    :param make: (run, attempt): has them written, of an attempt that no launcher began
    """
    run = directory or os.environ.get("TDBG_RUN")
    if not run:
        return EarlierSteps([])
    try:
        from ._capture import Run

        attempt = Run.next_attempt(run, rank)
        if attempt <= 0:
            return EarlierSteps([])
        path = os.path.join(run, str(attempt), EARLIER_STEPS)
        if make is not None and os.environ.get("TDBG_ATTEMPT") != str(attempt) and not os.path.exists(path):
            make(run, attempt)
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
        spans = [(str(mode), int(first), int(mode_first), int(count), bool(skipped))
                 for mode, first, mode_first, count, skipped in known["spans"]]
        unplaced = known.get("unplaced_from")
        return EarlierSteps([span for span in spans if span[3] > 0], int(known.get("optimizer_began", 0)),
                            int(known["next_step"]), None if unplaced is None else int(unplaced))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return EarlierSteps([])


def checkpoint_directory() -> str | None:
    """Where `tdbg run --checkpoint-dir` says that checkpoints lie."""
    return os.environ.get("TDBG_CHECKPOINT_DIR") or None


def _no_checkpoint_yet() -> bool:
    """Has the job a directory for checkpoints, and no file in it?"""
    directory = checkpoint_directory()
    return directory is not None and not any(files for _, _, files in os.walk(directory))


def _state_beside_checkpoints() -> dict[str, Any] | None:
    """smdebug's state with the highest step; None: there is none, or it cannot be read."""
    directory = checkpoint_directory()
    if directory is None:
        return None
    try:
        with open(os.path.join(directory, METADATA), encoding="utf-8") as file:
            states = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    found = [state for state in states if isinstance(state, dict) and _is_step(state.get("latest-global-step-seen"))
             and isinstance(state.get("latest-mode-step"), dict)] if isinstance(states, list) else []
    return max(found, key=lambda state: state["latest-global-step-seen"], default=None)


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < _LARGEST


def beginning(optimizer: Callable[[], tuple[int, str] | None], evaluates: bool = False,
              earlier: Callable[[], EarlierSteps] = earlier_steps) -> tuple[Beginning, str, int | None]:
    """(where this attempt begins, who says so in words, the optimizer's count or None).

    :param optimizer: -> (how often it has been stepped, before this process too, what it is called); None: it keeps no
        count
    :param evaluates: the first step is no training step
    :param earlier: -> the steps before this attempt
    """
    said, counted = take_said(), optimizer()
    steps = None if counted is None else counted[0]
    before = earlier()
    if said is not None:
        found, who = before.behind(said, evaluates=evaluates), "the script"
        found.source = found.source or "script"
    elif (state := _state_beside_checkpoints()) is not None:
        seen, modes = state["latest-global-step-seen"], state["latest-mode-step"]
        # A mode that the state does not know starts from the global step, as in smdebug.
        found = before.at(seen + 1, {mode: (modes[mode] if _is_step(modes.get(mode)) else seen) + 1
                                      for mode in (_TRAIN, _EVAL, _PREDICT)})
        found.source, who = METADATA, f"{METADATA} beside the checkpoints"
    # An optimizer that was never stepped says nothing where a checkpoint may have held the weights alone.
    elif counted is not None and before.spans and (counted[0] > 0 or _no_checkpoint_yet()):
        found = before.behind(max(0, counted[0] - before.optimizer_began), True, evaluates)
        found.source, who = found.source or "optimizer", f"the optimizer's own state ({counted[1]})"
    else:
        found, who = Beginning(), ""
    return found, who, steps
