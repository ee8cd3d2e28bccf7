"""Names of losses: a name, followed by a number that counts the losses of that name in a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: The tensor that `backward` was called on, if no loss function returned it.
BACKWARD = "backward_loss"


def numbered(name: str, number: int) -> str:
    """`name`_0, `name`_1, ...; only the first backward_loss has no number."""
    return name if name == BACKWARD and number == 0 else f"{name}_{number}"


class Numbering:
    """Numbers the losses of a TRAIN step, in which several optimizers may step.

    A number is given to an optimizer and stays its own: losses are told apart by the optimizer that they led to, in
    whatever order the optimizers of a step come, and whichever of them does. Two that never met in a step may have the
    same number.
    """

    def __init__(self) -> None:
        # (owner, name) -> the numbers that it has, in order
        self._slots: dict[tuple[Any, str], list[int]] = {}
        self._taken: dict[tuple[str, int], object] = {}     # (name, number) -> who stepped with it in this step
        self._now: set[tuple[str, int]] = set()             # those of the optimizer that steps now
        self.version = 0                            # counts what was given and taken back

    def names(self, pending: Iterable[tuple[str, Any, int]], by_micro_step: bool = False,
              owner: Any = None) -> list[tuple[str, Any, int]]:
        """[(name with its number, value, micro-step)] of those that led to one step of one optimizer.

        :param pending: [(name, value, micro-step)], in order
        :param by_micro_step: each micro-step counts from the beginning
        :param owner: the optimizer, anything that can be a key
        """
        counts: dict[str, int] = {}
        last, found = 0, []
        for name, value, step in pending:
            if by_micro_step and step != last:
                counts, last = {}, step
            place = counts.get(name, 0)
            counts[name] = place + 1
            found.append((numbered(name, self._number(owner, name, place)), value, step))
        return found

    def _number(self, owner: Any, name: str, place: int) -> int:
        slots = self._slots.setdefault((owner, name), [])
        if place < len(slots) and self._taken.get((name, slots[place]), owner) == owner:
            self._now.add((name, slots[place]))
            return slots[place]
        used = {n for (known, n), other in self._taken.items() if known == name and other != owner} | set(slots)
        if place < len(slots):      # it met another one with the same number: from here on no two have it
            used.update(n for (_, known), numbers in self._slots.items() if known == name for n in numbers)
        number = next(n for n in range(len(used) + 1) if n not in used)
        slots[place:place + 1] = [number]
        self.version += 1
        self._now.add((name, number))
        return number

    def given(self) -> frozenset[tuple[str, int]]:
        """The numbers that `names` gave since an optimizer stepped, for `again`."""
        return frozenset(self._now)

    def again(self, numbers: frozenset[tuple[str, int]]) -> bool:
        """Gives the same numbers again; False if one of them is already used in this step."""
        if self._taken and not numbers.isdisjoint(self._taken):
            return False
        self._now.update(numbers)
        return True

    def next_optimizer(self, owner: Any = None) -> None:
        """`owner` stepped and the TRAIN step continues: no other optimizer in it gets its numbers."""
        self._taken.update(dict.fromkeys(self._now, owner))
        self._now.clear()

    def new_step(self) -> None:
        self._taken.clear()
        self._now.clear()

    def forget(self, owner: Any) -> None:
        """`owner` no longer exists."""
        for key in [key for key in self._slots if key[0] == owner]:
            del self._slots[key]
            self.version += 1
