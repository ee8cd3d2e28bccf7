"""Where steps begin and end (semantics.md, 1). Knows optimizers by number, nothing of tensors.

    TRAIN  one optimizer step. Opens when something is to be recorded for it, closes when every optimizer that
           stepped in the previous TRAIN step has stepped, or when one is about to step a second time. The first one
           closes on a second step or at the end, or at once when its optimizer holds every trainable parameter:
           then nobody else has anything left to step, and a fault in step 0 is seen in step 0.
    EVAL   one root forward in evaluation mode; PREDICT one that only predicts (torch: in inference mode, no loss following).

One step is open at a time. An evaluation that begins inside an open training step closes it: that happens
between two optimizers of one step, or where outputs are recorded and the last batches of an epoch were
accumulated without a step.
"""

TRAIN, EVAL, PREDICT, GLOBAL = 1, 2, 3, 4


class Clock:
    """`begin(mode) -> due` and `end(skipped)` do the work; both must not raise."""

    def __init__(self, begin, end):
        self._begin, self._end = begin, end
        self.mode = None          # of the open step
        self.due = False
        self.begun = set()        # optimizers whose step() was entered in the open TRAIN step
        self.stepped = set()      # and those that came back from it: an exception may have kept one
        self.expected = None      # those of the previous one; None before the first has closed
        self.skipped = False

    def train(self):
        """Opens a TRAIN step unless one is open; True if anything is due in it."""
        if self.mode != TRAIN:
            self.close()
            self.mode = TRAIN
            self.due = self._begin(TRAIN)
        return self.due

    def evaluate(self, mode=EVAL):
        """Opens an EVAL (or PREDICT) step, closing whatever is open."""
        return self.forward(mode)

    def forward(self, mode):
        """Opens a step of any mode, closing whatever is open."""
        self.close()
        self.mode = mode
        self.due = self._begin(mode)
        return self.due

    @property
    def evaluates(self):
        return self.mode in (EVAL, PREDICT)

    def training_goes_on(self):
        """A training forward begins. Where only optimizers stepped that the previous step did not have, another training
        has taken over, and nobody waits for the earlier one's."""
        if self.mode == TRAIN and self.stepped and self.expected is not None and self.expected.isdisjoint(self.stepped):
            self.close()

    def about_to_step(self, optimizer):
        """`optimizer` (a number) is going to step; closes a step in which it already has."""
        if self.evaluates or optimizer in self.begun:
            self.close()
        due = self.train()
        self.begun.add(optimizer)
        return due

    def has_stepped(self, optimizer, skipped=False, alone=False):
        """True if that closed the step. `alone`: no trainable parameter lies outside this optimizer."""
        self.stepped.add(optimizer)
        self.skipped |= skipped
        if self.expected <= self.stepped if self.expected is not None else alone:
            self.close()
            return True
        return False

    def gone(self, optimizer):
        """`optimizer` will never step again: no step waits for it."""
        if self.expected is not None and optimizer in self.expected:
            self.expected = (self.expected - {optimizer}) or None

    def close(self):
        if self.mode is None:
            return
        mode, skipped = self.mode, self.skipped
        if mode == TRAIN and self.stepped:
            # Cut short by an evaluation: the set that ends a step stays what it was.
            if self.expected is None or not self.stepped <= self.expected:
                self.expected = frozenset(self.stepped)
        self.mode, self.due, self.skipped = None, False, False
        self.begun.clear()
        self.stepped.clear()
        self._end(mode, skipped)
