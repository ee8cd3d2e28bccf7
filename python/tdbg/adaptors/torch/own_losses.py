"""Losses that a script computes by itself, `((a - b) ** 2).mean()`: recognised in the graph that backward is about to
go through.

Names and shapes of nodes say what was computed; what a node kept is read only where no hook unpacks it (`kept_as`), so
that nothing is computed again. A loss that is recognised is a mean or a sum over what is made of each element's
difference, but for factors that are numbers: a weight of each row, or anything else between, is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .graph import name_of, shape_of, signed
from .origin.graph import kept_as

NODES = 32              # between what is differentiated and the difference
TERMS = 8
#: Rows, columns and what else of pairs is looked at.
PART, REST = 32, 16
SOME = 64               # elements by which two differences are taken for one
FEW = 3                 # rows of which each is compared with each: nothing is learnt of the axis' length
ROUNDED = 0.01          # what pairs may differ by from a sum of what each of the two gives

#: What keeps elements and their order.
SHAPES = frozenset(("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Clone", "ToCopy"))
#: Functions of one element, and what picks some.
_PASS_ON = frozenset((*SHAPES, "Select", "Slice", "Relu", "Tanh", "Sigmoid", "Softplus", "Mul", "Div", "Add", "Sub"))


class Summed(NamedTuple):
    """What is summed up, each element the same."""

    node: Any
    factor: float | None    # None: a number that would have to be waited for
    terms: float            # of each sum that is no mean

    @property
    def scale(self) -> float | None:
        """Times the mean of all elements."""
        return None if self.factor is None else self.factor * self.terms


class Difference(NamedTuple):
    """One term of what is differentiated: a measure of one difference."""

    function: str           # of torch's, that takes the mean of the same: mse_loss, l1_loss
    power: Any              # the node that kept the difference,
    summed: Summed
    made: Any               # and the one that made it
    side: int               # which of its two sides is differentiated
    whole: bool             # is it all that is differentiated, but for a factor?

    def values(self) -> torch.Tensor | None:
        """The difference, of the shape in which it was made; None where it cannot be read without effects."""
        kept = kept_as(self.power, "self")
        return None if kept is None else kept.detach().reshape(shape_of(self.made))

    @property
    def predicted(self) -> tuple[Any, int]:
        """The node that gave the differentiated side, and which of its results that is."""
        node, number = self.made.next_functions[self.side]
        return node, number

    def is_of_a_parameter(self) -> bool:
        """Weights that are to stay where they are."""
        node = self.predicted[0]
        while name_of(node) in SHAPES:
            node = node.next_functions[0][0]
        return name_of(node) == "AccumulateGrad"


def _differentiated(node: Any) -> list[Any]:
    return [behind for behind, _ in node.next_functions if behind is not None]


def _number_in(name: str, node: Any) -> Any:
    """The number that it is a product with, or a quotient by; None where it is neither."""
    if name not in ("Mul", "Div") or (name == "Div" and node.next_functions[0][0] is None):
        return None
    other = kept_as(node, "self" if node.next_functions[0][0] is None else "other")
    if other is None and not shape_of(node):
        return float("nan")                 # so it is one
    return other if isinstance(other, torch.Tensor) and not other.dim() else None


def _value(number: Any) -> float | None:
    if not isinstance(number, torch.Tensor) or number.device.type != "cpu" or number.is_complex():
        return None
    return float(number)


def _terms(root: Any) -> Iterator[tuple[Any, bool]]:
    """What is summed to it, and whether that is all."""
    todo, whole = [root] if root is not None else [], True
    for _ in range(TERMS):
        if not todo:
            return
        node = todo.pop()
        if name_of(node) in ("Add", "Sub") and not shape_of(node):
            behind = _differentiated(node)
            whole = whole and len(node.next_functions) == len(behind) == 1
            todo += behind
        else:
            yield node, whole


def _is_square(product: Any) -> bool:
    """Of one factor with itself, or with what was computed anew in the same way."""
    (one, n), (other, m) = product.next_functions
    if n != m:
        return False
    if one is other:
        return True
    if name_of(one) != "Sub" or name_of(other) != "Sub" or one.next_functions != other.next_functions:
        return False
    first, second = kept_as(product, "self"), kept_as(product, "other")
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor) or first.device.type != "cpu":
        return False
    return first.shape == second.shape and bool((first.reshape(-1)[:SOME] == second.reshape(-1)[:SOME]).all())


def below_sums(node: Any, passing: frozenset[str]) -> Summed | None:
    """What lies below sums, means, factors that are numbers, and nodes of the names `passing`. None where there is no
    such sum."""
    summed, terms = False, 1.0
    factor: float | None = 1.0
    for _ in range(NODES):
        name, behind = name_of(node), _differentiated(node)
        number = _number_in(name, node) if len(behind) == 1 else None
        if len(behind) != 1 or not (name in passing or name in ("Mean", "Sum") or number is not None):
            return Summed(node, factor, terms) if summed else None
        if number is not None:
            value = _value(number)
            factor = None if factor is None or not value else factor * value if name == "Mul" else factor / value
        elif name == "Neg":
            factor = None if factor is None else -factor
        elif name == "Sum":
            terms *= math.prod(shape_of(*node.next_functions[0])) / max(1, math.prod(shape_of(node)))
        summed = summed or name in ("Mean", "Sum")
        node = behind[0]
    return None


def _measured(root: Any) -> tuple[str, Any, Summed] | None:
    """(function, node that kept the difference, how it is summed up); None of anything else."""
    # A root of the whole is that of a mean.
    top = root.next_functions[0][0] if name_of(root) == "Sqrt" and not shape_of(root) else root
    summed = below_sums(top, SHAPES)
    if summed is None:
        return None
    node = summed.node
    name = name_of(node)
    # One that is a tensor is kept as tensors are, and would be unpacked.
    number = None if hasattr(node, "_raw_saved_exponent") else getattr(node, "_saved_exponent", None)
    if name == "Pow" and len(_differentiated(node)) == 1 and number == 2:
        return "mse_loss", node, summed
    if name == "Mul" and len(_differentiated(node)) == 2 and _is_square(node):
        return "mse_loss", node, summed
    return ("l1_loss", node, summed) if name == "Abs" else None


def _made(power: Any) -> tuple[Any, int] | None:
    """(the subtraction whose result it is of, which side of that is differentiated)."""
    node = power.next_functions[0][0]
    for _ in range(NODES):
        if node is None:
            return None
        name = name_of(node)
        if name == "Sub":
            sides = [n for n, (behind, _) in enumerate(node.next_functions) if behind is not None]
            if len(node.next_functions) != 2 or len(sides) != 1 or getattr(node, "_saved_alpha", None) != 1:
                return None
            return node, sides[0]
        if name not in SHAPES or name == "Unsqueeze":
            return None
        node = node.next_functions[0][0]
    return None


def root_of(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Any:
    """The node of the one number that is differentiated; None where that is something else."""
    whole = tensors if isinstance(tensors, torch.Tensor) else tensors[0] if len(tensors) == 1 else None
    return whole.grad_fn if isinstance(whole, torch.Tensor) and whole.numel() == 1 else None


def differences(root: Any) -> Iterator[Difference]:
    """Those that what is differentiated is made of."""
    for term, alone in _terms(root):
        measured = _measured(term)
        made = None if measured is None else _made(measured[1])
        if measured is not None and made is not None:
            yield Difference(*measured, *made, alone)


def picked_by(node: Any) -> torch.Tensor | None:
    """Of a Gather or an Index of rows by columns: of which column each row's element is; None of any other."""
    rows = shape_of(*node.next_functions[0])[:1]
    if len(shape_of(*node.next_functions[0])) != 2:
        return None
    if name_of(node) == "Gather":
        which = kept_as(node, "index")
        fits = signed(node._saved_dim) in (1, -1) and isinstance(which, torch.Tensor)
        return which[:, 0] if fits and tuple(which.shape) == (*rows, 1) else None
    indices = kept_as(node, "indices")
    if not isinstance(indices, (tuple, list)) or len(indices) != 2:
        return None
    each, which = indices
    if any(not isinstance(t, torch.Tensor) or tuple(t.shape) != rows or t.device.type != "cpu" for t in indices):
        return None             # of a device it would have to be waited for
    return which if which.dtype is each.dtype is torch.int64 and torch.equal(each, torch.arange(*rows)) else None


# Pairs ------------------------------------------------------------------------------------------------------


def _is_apart_on_purpose(node: Any) -> bool:
    """Is there a parameter, or an axis that the script put in, where predictions are expected?"""
    for _ in range(NODES):
        name = name_of(node)
        if name in ("AccumulateGrad", "Unsqueeze", "T", "Transpose", "Permute", "Expand"):
            return True
        behind = _differentiated(node)
        if name not in _PASS_ON or not behind:
            return False
        if len(shape_of(node)) > len(shape_of(*node.next_functions[0])) > 0:
            return True
        node = behind[0]
    return False


class Pairs(NamedTuple):
    """Each prediction compared with each target."""

    input: tuple[int, ...]      # shape of the predictions
    result: tuple[int, ...]
    rows: int                   # axis of `result` that predictions have,
    targets: int                # and the one that they have not
    values: torch.Tensor


def _one_for_all(difference: Difference, size: int) -> Pairs | None:
    """The whole batch was summed up to one number, which is compared with each of its `size` targets."""
    node, _ = difference.predicted
    result = shape_of(difference.made)
    if size < FEW or math.prod(result) != size or name_of(node) not in ("Sum", "Mean"):
        return None
    summed = shape_of(*node.next_functions[0])
    values = difference.values() if summed[:1] == (size,) else None
    return None if values is None else Pairs((), result, 0, 1, values.reshape(1, -1))


def pairs_of(difference: Difference, size: int) -> Pairs | None:
    """A loss of all pairs of N predictions and N targets, by its shapes; `are_pairs` asks its values. `size`: rows of
    the batch.

    The mean of such squares is, but for a constant, that of each prediction from the mean of all targets, so that
    no script trains on it on purpose. On absolute differences some do, as one of several terms (an energy distance).
    """
    node, number = difference.predicted
    given, result = shape_of(node, number), shape_of(difference.made)
    if not difference.whole and difference.function != "mse_loss":
        return None
    if not given and result:
        return _one_for_all(difference, size)
    if not given or len(given) > len(result) or _is_apart_on_purpose(node):
        return None
    aligned = (1,) * (len(result) - len(given)) + given
    added = [axis for axis, size in enumerate(aligned) if size == 1 and result[axis] > 1]
    rows = next((axis for axis, size in enumerate(aligned) if size > 1), None)
    if len(added) != 1 or rows is None or result[added[0]] != result[rows] or result[rows] < FEW:
        return None
    values = difference.values()
    if values is None or not values.is_floating_point():
        return None
    return Pairs(given, result, rows, added[0], values)


def are_pairs(pairs: Pairs) -> torch.Tensor:
    """1 where each element is a prediction less a target, neither of which knows of the other's row; else 0. One number
    for several rows of its own, as many people's votes are, is 0. A tensor, of the device of the values."""
    part = pairs.values.movedim((pairs.rows, pairs.targets), (0, 1))[:PART, :PART]
    part = part.reshape(*part.shape[:2], -1)[..., :REST].double()
    spread = (part[0] - part[0, :1]).abs().amax()
    apart = part - part[:1]                         # of predictions, whatever the target
    most = (apart - apart[:, :1]).abs().amax()
    return ((most <= ROUNDED * spread) & (spread > 0)).double()     # of NaN: 0
