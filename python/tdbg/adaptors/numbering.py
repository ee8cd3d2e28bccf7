"""What losses are called: a name, and behind it a number that counts those of that name in a step."""

#: What `backward` was called on, where it is nothing that a loss function returned.
BACKWARD = "backward_loss"


def numbered(name, number):
    """`name`_0, `name`_1 ...; only the first backward_loss goes without."""
    return name if name == BACKWARD and number == 0 else f"{name}_{number}"


class Numbering:
    """Of the losses of a TRAIN step, in which several optimizers may step."""

    def __init__(self):
        self._before = {}       # losses per name before the last optimizer step of this TRAIN step
        self.used = {}          # and in it; replaced, never changed

    def names(self, pending, by_micro_step=False):
        """[(name with its number, value, micro-step)] of those that led to one optimizer step.

        :param pending: [(name, value, micro-step)], in order
        :param by_micro_step: each micro-step counts from the beginning
        """
        self.used, counts, last, found = {}, {}, 0, []
        for name, value, step in pending:
            if by_micro_step and step != last:
                counts, last = {}, step
            number = counts.get(name, 0)
            counts[name] = number + 1
            self.used[name] = max(self.used.get(name, 0), number + 1)
            found.append((numbered(name, self._before.get(name, 0) + number), value, step))
        return found

    def is_fresh(self):
        """No optimizer has stepped yet in this step: names depend on what is pending alone."""
        return not self._before

    def next_optimizer(self):
        """An optimizer stepped and the TRAIN step goes on: later losses are numbered after those before it."""
        for name, number in self.used.items():
            self._before[name] = self._before.get(name, 0) + number
        self.used = {}

    def new_step(self):
        self._before.clear()
        self.used = {}
