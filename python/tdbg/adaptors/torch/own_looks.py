"""Losses that a script computes by itself, looked at as seldom as inputs and labels: which function of torch's each is
equal to, what is predicted, and what that is compared with.

    context/own_loss         1: all that backward was called on in the step is one such loss; 0: not this time
    topic own_loss           {"function": "mse_loss"}: the mean of the same, or that times a number, or its root
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .data import EARLY
from .own_classes import OfClasses, classes_of
from .own_losses import Difference, differences, root_of
from .own_predictions import compared, remember
from .predictions import Options

if TYPE_CHECKING:
    from .session import Session

SELDOM = 8              # every how many looks, where the first EARLY recognised nothing
APART = 0.1             # as of torch's functions: Digest.the_loss


def _difference(root: Any) -> Difference | None:
    """That of which all that is differentiated is a measure."""
    return next((one for one in differences(root) if one.whole and not one.is_of_a_parameter()), None)


class OwnLosses:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions: list[str | None] = []      # of each backward of the step at hand, if that is looked at
        self._looks = 0
        self._ever = self._varies = False
        self._scales: dict[str, tuple[float, float]] = {}   # by function: its factor, and that of the mean
        self._wanted = True                         # what models give is noted
        self._off = False

    def gave(self, output: Any) -> None:
        """A model returned this, in training, at a step that is looked at."""
        if self._wanted and not self._off:
            with torch.no_grad():
                remember(output, self._session.context.data.is_part_due)

    def differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward is about to run, at a step that is looked at."""
        if self._off:
            return
        first = not self._functions
        if first and self._session.context.data.has_compared:
            self._wanted = False
            return
        if first:
            self._looks += 1
            if not self._ever and self._looks > EARLY and self._looks % SELDOM:
                return
        with torch.no_grad():
            root = root_of(self._session.losses.unscaled(tensors))
            found = _difference(root) or classes_of(root)
            if found is not None and not self._is_of_one_scale(found):
                found = None
            self._functions.append(None if found is None else found.function)
            if first and isinstance(found, Difference):
                self._look(found)
            elif first and isinstance(found, OfClasses):
                self._look_at_classes(found)

    def give_up(self) -> None:
        self._off = True
        self._functions.clear()

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        functions, self._functions = self._functions, []
        if not functions:
            return
        function = functions[0] if len(set(functions)) == 1 else None
        if function is not None:
            self._ever = True
            self._session.context.topic("own_loss", {"function": function})
        if self._ever:
            self._session.context.add("context/own_loss", int(function is not None))
        self._wanted = self._ever or self._looks < EARLY

    def _is_of_one_scale(self, found: Difference | OfClasses) -> bool:
        """Is it above 0, and times what it was before? A policy's is times what an episode brought in, another
        number at each step. What is summed up and divided by the number of rows is one mean."""
        sign = found.sign if isinstance(found, OfClasses) else 1
        factor, scale = (found.summed.factor, found.summed.scale) if found.summed is not None else (None, None)
        if factor is None or scale is None or sign * factor <= 0:
            return False
        before = self._scales.setdefault(found.function, (factor, scale))
        return any(abs(now - then) <= APART * abs(then) for now, then in zip((factor, scale), before))

    def _look(self, found: Difference) -> None:
        context = self._session.context
        both = compared(found, context.data.is_part_due)
        if both is None:
            return
        if not self._varies and both.target.device.type == "cpu":
            # A norm that is to be 1, a judge whose answer is to be "real": there is nothing to predict.
            self._varies = both.spread > both.rounding
            if not self._varies:
                self._functions[0] = None
                return
        context.data.compared(found.function, both.predicted, both.target, Options(), own=True)
        if context.loss_graph.due:
            context.loss_graph.reached(found.predicted[0], both.predicted, both.target)

    def _look_at_classes(self, found: OfClasses) -> None:
        context = self._session.context
        if found.given is not None:
            context.data.compared(found.function, found.given, found.target, Options(), own=True)
        if context.loss_graph.due and found.scored is not None:
            context.loss_graph.scored(found.scored)
