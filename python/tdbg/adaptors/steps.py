"""Where steps begin and end (docs/semantics.md, "What a step is"). Knows optimizers by number, nothing of tensors.

    TRAIN  everything between two steps of the optimizer that steps most often. It closes when an optimizer is about to
           step a second time; before that, as soon as all optimizers that are due have stepped; or when the script
           says so.
    EVAL   one root forward in evaluation mode; PREDICT one that only predicts (torch: in inference mode, no loss
    following).

Due are: an optimizer that is known and has not stepped yet (for PATIENCE steps), and one whose last step is as far back
as the shorter of its last two distances. So a GAN's two optimizers are one step, a critic that steps five times
for one step of the generator makes five steps, the last of which has both, and an actor that is updated every second
time is in every second step: whatever the first iteration was. An optimizer that steps when it was not due
gets a step of its own, which closes at once; from then on its distance is known.

The very first step closes on the next training forward or second step, or at the end; or at once when the optimizers
that stepped hold every trainable parameter: then nobody else has anything left to step, and a fault in step 0 is seen
in step 0.

One step is open at a time. `forward` closes the open one. A caller that asks `waits` first can tell an evaluation
between two steps from a forward that belongs to the training (a target network, a teacher).
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView
from typing import Any

from ..modes import ModeKeys

# As a run's files number them: what _capture takes.
TRAIN, EVAL, PREDICT, GLOBAL = (
    int(mode.value) for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL)
)
PATIENCE = 16       # steps that are held open for an optimizer of which nothing is known, or not heard any more


class ModeSteps:
    """The last step that was begun in each mode, counted as the run counts: GLOBAL counts the steps of all modes.

    :param run: what it has counted so far
    """

    __slots__ = ("_last",)

    def __init__(self, run: Any) -> None:
        self.read(run)

    def read(self, run: Any) -> None:
        """Counts from here on as the run, or what stands in front of it, has counted."""
        self._last: dict[int, int] = {mode.value: run.mode_step(mode.value) for mode in ModeKeys}

    def __getitem__(self, mode: int) -> int:
        return self._last[mode]

    def add(self, mode: int, steps: int = 1) -> None:
        self._last[mode] += steps
        if mode != GLOBAL:
            self._last[GLOBAL] += steps

    def items(self) -> ItemsView[int, int]:
        return self._last.items()


class _Rhythm:
    """When an optimizer stepped, in TRAIN steps."""

    __slots__ = ("last", "gaps", "new", "over")

    def __init__(self, last: int) -> None:
        self.last, self.new = last, True
        self.gaps: tuple[int, ...] = ()
        self.over = False       # another training has taken over: not due until it steps again

    def stepped(self, now: int) -> None:
        if not self.new and now > self.last:
            self.gaps = (*self.gaps[-1:], now - self.last)
        self.last, self.new, self.over = now, False, False

    def is_due(self, now: int) -> bool:
        if self.over:
            return False
        waited = now - self.last
        if not self.gaps:
            return waited <= PATIENCE
        return min(self.gaps) <= waited <= max(PATIENCE, 2 * max(self.gaps))


class Clock:
    """`begin(mode) -> due` and `end(skipped)` do the work; both must not raise.

    :param covered: called with (optimizer, those that stepped in the open step): has it nothing left to step? Asked of
        optimizers that have never stepped
    """

    def __init__(self, begin: Callable[[int], bool], end: Callable[[Any, bool], None],
                 covered: Callable[[int, set[int]], bool] = lambda optimizer, stepped: False):
        self._begin, self._end, self._covered = begin, end, covered
        self.mode: int | None = None    # of the open step
        self.due = False
        self._begins = False            # the open step is being begun
        self.begun: set[int] = set()    # optimizers whose step() was entered in the open TRAIN step
        self.stepped: set[int] = set()    # and those that came back from it: an exception may have kept one
        self.previous: frozenset[int] | None = None    # those of the last TRAIN step that had any
        self.skipped = False
        self.by_call = False                # the script says where a step ends (`said`)
        self._rhythms: dict[int, _Rhythm] = {}
        self._now = 0                       # TRAIN steps with an optimizer's step in them
        self._early = False                 # the last one closed because nobody was due

    def train(self) -> bool:
        """Opens a TRAIN step unless one is open; True if anything is due in it."""
        if self.mode != TRAIN:
            return self.forward(TRAIN)
        return self.due

    def evaluate(self, mode: int = EVAL) -> bool:
        """Opens an EVAL (or PREDICT) step, closing whatever is open."""
        return self.forward(mode)

    def forward(self, mode: int) -> bool:
        """Opens a step of any mode, closing whatever is open."""
        self.close()
        self.mode, self._begins = mode, True
        self.due = self._begin(mode)
        self._begins = False
        return self.due

    def interrupted(self) -> None:
        """An exception came out of a call of `begin`, or of the lines around it, that is none of its own: no step is
        open."""
        if self._begins:
            self.mode, self._begins = None, False

    @property
    def evaluates(self) -> bool:
        return self.mode in (EVAL, PREDICT)

    @property
    def is_first(self) -> bool:
        """No TRAIN step has closed in which an optimizer stepped."""
        return self.previous is None

    def waits(self) -> bool:
        """Is a TRAIN step open that an optimizer stepped in, and another one is expected to?"""
        return self.mode == TRAIN and bool(self.stepped) and (self.by_call or self._somebody_is_due())

    def may_step(self, optimizer: int) -> bool:
        """Is it known, not gone, and has it not stepped in the open step?"""
        rhythm = self._rhythms.get(optimizer)
        return rhythm is not None and not rhythm.over and optimizer not in self.stepped

    def training_goes_on(self) -> None:
        """A training forward begins. If only optimizers stepped that the previous step did not have, another training
        has taken over, and the earlier one's optimizers are not waited for. The first step ends here if every known
        optimizer has stepped: there may be trainable parameters that no optimizer has.
        """
        if self.mode != TRAIN or not self.stepped or self.by_call:
            return
        if self.previous is None:
            if not self._somebody_is_due():
                self.close()
        elif self._takes_over():
            self.close()

    def _takes_over(self) -> bool:
        """Did only optimizers step that the previous step did not have, and that were never seen to step again?"""
        return self.previous is not None and self.previous.isdisjoint(self.stepped) and not any(
            r.gaps for o, r in self._rhythms.items() if o in self.stepped)

    def knows(self, optimizer: int) -> None:
        """`optimizer` was made, and may step."""
        if optimizer not in self._rhythms:
            self._rhythms[optimizer] = _Rhythm(self._now)

    def about_to_step(self, optimizer: int) -> bool:
        """`optimizer` (a number) is going to step; closes a step in which it already has."""
        if self.evaluates or (optimizer in self.begun and not self.by_call):
            self.close()
        due = self.train()
        self.begun.add(optimizer)
        return due

    def has_stepped(self, optimizer: int, skipped: bool = False, alone: bool = False) -> bool:
        """True if that closed the step. `alone`: no trainable parameter lies outside this optimizer."""
        rhythm = self._rhythms.get(optimizer)
        if rhythm is not None and len(self._rhythms) == 1 and self.previous is not None and not self.by_call:
            rhythm.last, rhythm.new = self._now, False      # the only one there is, in nearly every training
            self.stepped.add(optimizer)
            self.skipped |= skipped
            self._early = True
            self._close()
            return True
        expected = rhythm is not None and rhythm.is_due(self._now)
        if rhythm is None:
            rhythm = self._rhythms[optimizer] = _Rhythm(self._now)
        if optimizer not in self.stepped:
            rhythm.stepped(self._now)
        self.stepped.add(optimizer)
        self.skipped |= skipped
        if self.by_call:
            return False
        if alone if self.previous is None else (not self._somebody_is_due() or (
                not expected and self._early and len(self.stepped) == 1)):
            self._early = True
            self._close()
            return True
        return False

    def said(self) -> None:
        """The script ends its step here, and from now on ends every step itself."""
        self.by_call = True
        if self.mode == TRAIN:
            self.close()

    def gone(self, optimizer: int) -> None:
        """`optimizer` will never step again: no step waits for it."""
        self._rhythms.pop(optimizer, None)

    def _somebody_is_due(self) -> bool:
        for optimizer, rhythm in list(self._rhythms.items()):
            if optimizer in self.stepped or not rhythm.is_due(self._now):
                continue
            if not rhythm.new or not self._covered(optimizer, self.stepped):
                return True
            del self._rhythms[optimizer]       # of no consequence until it does step
        return False

    def close(self) -> None:
        if self.mode is not None:
            self._early = False
            self._close()

    def over(self, leave: Callable[[], None]) -> None:
        """The training is over. A TRAIN step that is open closes if an optimizer stepped in it; else it is none:
        `leave()` is called instead of `end`."""
        if self.mode != TRAIN or self.begun or self.stepped:
            self.close()
            return
        self.mode, self.due, self.skipped = None, False, False
        leave()

    def _close(self) -> None:
        mode, skipped = self.mode, self.skipped
        if mode == TRAIN and self.stepped:
            if self.previous is not None and len(self._rhythms) > 1 and self._takes_over():
                for optimizer in self.previous & self._rhythms.keys():
                    self._rhythms[optimizer].over = True
            self.previous = frozenset(self.stepped)
            self._now += 1
        self.mode, self.due, self.skipped = None, False, False
        self.begun.clear()
        self.stepped.clear()
        self._end(mode, skipped)
