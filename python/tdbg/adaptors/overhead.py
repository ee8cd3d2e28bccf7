"""How often steps are looked at, so that watching takes no more than a share of the training's time.

What an adaptor does inside a training is added to `spent`; at the end of each training step it is compared to the rest
of the step. Where it is more than its share, statistics are taken at one step in two, four, eight ... from
then on, and more often again where the training's steps become longer. What is compared are medians over parts of a
few steps each: a pause of the machine is no reason.

Of a short training everything is there: the first FIRST steps are looked at whatever that takes. Large tensors have a
budget of their own in the run, which holds from the first steps on (src/capture/look_budget.h).
"""

from __future__ import annotations

from statistics import median
from time import perf_counter

FIRST = 256         # training steps
PARTS, LOOKS = 4, 8     # that are compared, and steps that are looked at in each
RAREST = 256        # one step in so many


class Overhead:
    """:param share: of the training's time (0.05: 5 %); 0: no limit

    :ivar spent: seconds of our own work since the last step ended
    :ivar every: statistics are taken at one step in so many
    """

    __slots__ = ("share", "spent", "every", "_now", "_steps", "_ours", "_theirs", "_part", "_parts",
                 "_before", "_rarest")

    def __init__(self, share: float) -> None:
        self.share = share
        self.spent = 0.0
        self.every = 1
        self._steps = 0
        self._now = perf_counter()
        self._ours = self._theirs = 0.0                     # of the part that runs, seconds
        self._part = 0                                      # steps of it
        self._parts: list[float] = []                       # ours to theirs
        self._before: float | None = None                   # the ratio that made it rarer
        self._rarest = RAREST

    def step_ended(self, hidden: bool = False) -> bool:
        """A training step is over. True if `every` changed.

        :param hidden: our work took the training no time: a device is still busy with earlier steps
        """
        now, before, spent = perf_counter(), self._now, self.spent
        self._now, self.spent = now, 0.0
        self._steps += 1
        if not self.share or self._steps <= FIRST:
            return False
        self._theirs += max(0.0, now - before - spent)
        if not hidden:
            self._ours += spent
        self._part += 1
        if self._part < LOOKS * self.every:
            return False
        self._parts.append(self._ours / self._theirs if self._theirs else float("inf"))
        self._ours = self._theirs = 0.0
        self._part = 0
        if len(self._parts) < PARTS:
            return False
        ratio, self._parts = median(self._parts), []
        return self._decide(ratio)

    def _decide(self, ratio: float) -> bool:
        every = self.every
        if self._before is not None:
            # What steps cost that are not looked at becomes no less by looking at fewer.
            if ratio > 0.8 * self._before:
                self._rarest = every
            self._before = None
        if ratio > self.share:
            wanted = every
            while wanted < self._rarest and ratio * every > self.share * wanted:
                wanted *= 2
            self._before = ratio if wanted > every else None
        else:
            wanted = max(1, every // 2) if ratio < self.share / 4 else every
        self.every = wanted
        return wanted != every
