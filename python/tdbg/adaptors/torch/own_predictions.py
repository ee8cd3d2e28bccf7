"""Losses that a script computes by itself, looked at as seldom as inputs and labels: which function of torch's each is
equal to, what is predicted, and what that is compared with.

    context/own_loss         1: all that backward was called on in the step is one such loss; 0: not this time
    topic own_loss           {"function": "mse_loss"}: the mean of the same, or that times a number, or its root

The graph keeps the difference of predictions and targets, and neither of them. What a model gave is noted at the node
that made it, as the part of it that a look takes (predictions.part, a copy), and is gone with that node. Targets are
predictions less the difference: exact but for its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..structure import every
from .data import EARLY, plain
from .graph import is_captured, name_of, shape_of, signed
from .origin.graph import kept_as
from .own_losses import Difference, differences, picked_by
from .predictions import ROWS, Options, evenly, part

if TYPE_CHECKING:
    from .session import Session

MOST = 4                # tensors that a model gives
DEEP = 8                # nodes between what it gave and the difference
_GAVE = "tdbg.gave"     # among a node's notes: {number of its result: Given}

_SAME = frozenset(("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Clone", "ToCopy"))
#: Nodes that keep what they gave.
_KEEP = frozenset(("Sigmoid", "Tanh", "Relu", "Softmax", "LogSoftmax", "Exp"))


def _without_ones(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


class Given(NamedTuple):
    """What a model gave."""

    shape: tuple[int, ...]      # without axes of one
    values: torch.Tensor        # the part of it that is looked at

    @staticmethod
    def of(tensor: Any) -> Given | None:
        if not isinstance(tensor, torch.Tensor) or not plain(tensor) or not tensor.is_floating_point():
            return None
        if is_captured(tensor):
            return None
        values = part(tensor.detach())
        return None if values is None else Given(_without_ones(tensor.shape), values)

    def has_all_columns(self) -> bool:
        columns: int = self.values.numel() // len(self.values)
        return columns == math.prod(self.shape[1:])


def remember(output: Any, is_due: Callable[[torch.Tensor], bool]) -> None:
    """A model returned `output`, in training. `is_due`: is such a tensor looked at?"""
    for tensor in islice(every(torch.Tensor, output), MOST):
        if type(tensor) is not torch.Tensor or tensor.grad_fn is None or not is_due(tensor):
            continue
        given, notes = Given.of(tensor), getattr(tensor.grad_fn, "metadata", None)
        if isinstance(notes, dict) and given is not None:
            notes.setdefault(_GAVE, {})[tensor.output_nr] = Given(given.shape, given.values.clone())


def _picked(given: Given, node: Any) -> Given | None:
    """One column of it: of each row the same (a Select), or its own (a Gather, an Index)."""
    shape = shape_of(*node.next_functions[0])
    if _without_ones(shape) != given.shape:
        return None
    whole = len(shape) == 2 and shape == given.shape and given.has_all_columns()
    values = given.values.reshape(len(given.values), -1)
    if name_of(node) == "Select":
        axis = signed(node._saved_dim)
        if shape[axis] == 1:
            return given
        return Given(shape[:1], values[:, signed(node._saved_index)]) if whole and axis in (1, -1) else None
    which = picked_by(node) if whole else None
    if which is None:
        return None
    return Given(shape[:1], values.gather(1, which[:: evenly(shape[0], ROWS), None] % shape[1])[:, 0])


def given_by(node: Any, number: int) -> Given | None:
    """The `number`-th result of a node, where a model gave it, or it is what one gave in another shape."""
    picks = []
    for _ in range(DEEP):
        if node is None:
            return None
        notes, name = getattr(node, "metadata", None), name_of(node)
        given = notes.get(_GAVE, {}).get(number) if isinstance(notes, dict) else None
        if given is None and name in _KEEP:
            given = Given.of(kept_as(node, "result"))
        if given is not None:
            break
        if name in ("Select", "Gather", "Index"):
            picks.append(node)
        elif name not in _SAME:
            return None
        node, number = node.next_functions[0]
    else:
        return None
    for node in reversed(picks):
        given = None if given is None else _picked(given, node)
    return given


class Compared(NamedTuple):
    predicted: torch.Tensor
    target: torch.Tensor
    rounding: float             # what targets are known to


def compared(difference: Difference, is_due: Callable[[torch.Tensor], bool]) -> Compared | None:
    """Parts of both sides of it, of the same rows; None where what the model gave is not known."""
    apart = difference.values()
    if apart is None or not plain(apart) or not apart.is_floating_point() or not is_due(apart):
        return None
    given = given_by(*difference.predicted)
    if given is None:
        return None
    rest = part(apart)
    if _without_ones(apart.shape) != given.shape or rest is None or rest.numel() != given.values.numel():
        return None
    kind = torch.float64 if rest.device.type == "cpu" else torch.float32
    predicted, difference_of = given.values.to(kind).reshape(rest.shape), rest.to(kind)
    target = predicted - difference_of if difference.side == 0 else predicted + difference_of
    # Targets that are all the same have to be that, or guessing them has a loss that is not 0.
    rounding = 2 * torch.finfo(apart.dtype).eps * difference_of.abs().amax()
    first = target[:1]
    target = torch.where((target - first).abs().amax(0) <= rounding, first, target)
    return Compared(predicted, target, rounding.item() if kind is torch.float64 else 0.0)


class OwnLosses:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._functions: list[str | None] = []      # of each backward of the step at hand, if that is looked at
        self._looks = 0
        self._ever = self._varies = False
        self._wanted = True                         # what models give is noted

    def gave(self, output: Any) -> None:
        """A model returned this, in training, at a step that is looked at."""
        if self._wanted:
            with torch.no_grad():
                remember(output, self._session.context.data.is_part_due)

    def differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward is about to run, at a step that is looked at."""
        first = not self._functions
        if first and self._session.context.data.has_compared:
            self._wanted = False
            return
        found = next((one for one in differences(tensors) if one.whole and not one.is_of_a_parameter()), None)
        self._functions.append(None if found is None else found.function)
        if first and found is not None:
            with torch.no_grad():
                self._look(found)

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        functions, self._functions = self._functions, []
        if not functions:
            return
        self._looks += 1
        function = functions[0] if len(set(functions)) == 1 else None
        if function is not None:
            self._ever = True
            self._session.context.topic("own_loss", {"function": function})
        if self._ever:
            self._session.context.add("context/own_loss", int(function is not None))
        self._wanted = self._ever or self._looks < EARLY

    def _look(self, found: Difference) -> None:
        context = self._session.context
        both = compared(found, context.data.is_part_due)
        if both is None:
            return
        if not self._varies and both.target.device.type == "cpu":
            # A norm that is to be 1, a judge whose answer is to be "real": there is nothing to predict.
            self._varies = bool(both.target.max() - both.target.min() > both.rounding)
            if not self._varies:
                self._functions[0] = None
                return
        context.data.compared(found.function, both.predicted, both.target, Options(), own=True)
        if context.loss_graph.due:
            context.loss_graph.reached(found.predicted[0], both.predicted, both.target)
