"""Cross entropies that a script computes by itself, recognised in the graph.

    -log_softmax(z, 1)[range(n), y].mean()              one logarithm of each row (also by gather)
    -log(p[range(n), y]).mean()                         of probabilities, a softmax's or by hand
    -(y * log_softmax(z, 1)).sum(1).mean()              rows of labels that are probabilities
    (logsumexp(z, 1) - z[range(n), y]).mean()
    -(y * log(p) + (1 - y) * log(1 - p)).mean()         two classes

Labels are what the graph kept of the call; that they are labels, and no weights, is seen in their values: so those that
are multiplied are known of host memory alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .data import plain
from .graph import name_of, shape_of, signed
from .origin.graph import kept_as
from .own_losses import SHAPES, Summed, below_sums, picked_by
from .own_predictions import given_by
from .predictions import ROWS, evenly, part

LARGE = 1 << 18         # elements of which a logarithm is taken
LOOKED_AT = 64          # rows in which labels are told from weights
NEAR = 1e-3
SURE = 0.8              # of the likeliest class
#: What is put between probabilities and their logarithm, against a logarithm of 0.
_GUARDS = frozenset((*SHAPES, "Add", "Clamp", "ClampMin", "ClampMax"))
_PASS_ON = frozenset((*SHAPES, "Neg"))
_TINY = 1e-30


class OfClasses(NamedTuple):
    """`given` and `target` as the function of torch's takes them; None where they are not known. `scored`: the node
    that gave what a softmax is taken of. `summed`: how the logarithms are, or what is above 0 (`sign`)."""

    function: str
    given: torch.Tensor | None
    target: torch.Tensor | None
    scored: Any = None
    sign: int = -1
    summed: Summed | None = None


class _Rows(NamedTuple):
    """Logarithms of probabilities, rows by classes; each `step`-th row of all."""

    logs: torch.Tensor | None
    step: int
    scored: Any


def _through(passing: frozenset[str], node: Any, number: int) -> tuple[Any, int]:
    """A node, or what lies behind it and others of the names `passing`; and which result of that."""
    while node is not None and name_of(node) in passing:
        node, number = node.next_functions[0]
    return node, number


def _behind(node: Any, passing: frozenset[str]) -> tuple[Any, int]:
    """What a node's first argument is, without what lies between."""
    return _through(passing, *node.next_functions[0])


def _is_over_last(node: Any) -> bool:
    return signed(node._saved_dim) in (-1, len(shape_of(node)) - 1)


def _as_rows(tensor: Any) -> torch.Tensor | None:
    """Over the last axis, without a copy."""
    if not isinstance(tensor, torch.Tensor) or not plain(tensor) or tensor.dim() < 2 or not tensor.is_contiguous():
        return None
    return tensor.detach().reshape(-1, tensor.shape[-1])


def _are_probabilities(rows: torch.Tensor) -> bool:
    """Of host memory: none negative, each sums to 1?"""
    some = rows[:: evenly(len(rows), LOOKED_AT)].double()
    near = max(NEAR, 8 * torch.finfo(rows.dtype).eps) if rows.is_floating_point() else NEAR
    return bool((some >= -near).all()) and bool(((some.sum(1) - 1).abs() < near).all())


def _quotient(node: Any) -> torch.Tensor | None:
    """exp(z) / exp(z).sum(1), as long as it may be computed once more."""
    one, other = (_as_rows(kept_as(node, name)) for name in ("self", "other"))
    if one is None or other is None or one.numel() > LARGE or other.shape != (len(one), 1):
        return None
    return one / other


def _probabilities(node: Any, number: int) -> tuple[torch.Tensor | None, int, Any] | None:
    """(rows, each how manyth, what a softmax was taken of); None of anything that is not known to be some."""
    if node is None:
        return None
    if name_of(node) == "Softmax" and _is_over_last(node):
        return _as_rows(kept_as(node, "result")), 1, node.next_functions[0][0]
    step = 1
    if name_of(node) == "Div" and len(shape_of(node)) == 2:
        rows = _quotient(node)
    else:
        given = given_by(node, number)
        rows = None
        if given is not None and len(given.shape) == 2 and given.has_all_columns():
            rows, step = given.values, evenly(given.shape[0], ROWS)
    if rows is None or rows.device.type != "cpu" or not _are_probabilities(rows):
        return None
    return rows, step, None


def _logarithms(node: Any) -> _Rows | None:
    """Of a node that gave them, rows by classes."""
    if name_of(node) == "LogSoftmax":
        if not _is_over_last(node):
            return None
        return _Rows(_as_rows(kept_as(node, "result")), 1, node.next_functions[0][0])
    if name_of(node) != "Log":
        return None
    return _logarithms_of(_probabilities(*_behind(node, _GUARDS)))


def _logarithms_of(found: tuple[torch.Tensor | None, int, Any] | None) -> _Rows | None:
    if found is None:
        return None
    rows, step, scored = found
    logs = None if rows is None or rows.numel() > LARGE else rows.clamp(min=_TINY).log()
    return _Rows(logs, step, scored)


def _labels(node: Any) -> torch.Tensor | None:
    """Of a Gather or an Index: which class each row's is."""
    if name_of(node) == "Gather" and len(shape_of(node)) > 2:
        which, shape = kept_as(node, "index"), shape_of(*node.next_functions[0])
        fits = signed(node._saved_dim) in (-1, len(shape) - 1) and isinstance(which, torch.Tensor)
        return which.reshape(-1) if fits and tuple(which.shape) == (*shape[:-1], 1) else None
    which = picked_by(node)
    return None if which is None else which % shape_of(*node.next_functions[0])[1]


def _of_rows(rows: _Rows | None, labels: torch.Tensor | None) -> OfClasses | None:
    if rows is None or labels is None:
        return None
    logs, labels = rows.logs, labels[:: rows.step]
    if logs is None or len(logs) != len(labels):
        return OfClasses("cross_entropy", None, None, rows.scored)
    return OfClasses("cross_entropy", logs, labels, rows.scored)


def _picked(node: Any) -> OfClasses | None:
    """One logarithm of each row, or the logarithm of one probability of each."""
    picks = ("Gather", "Index")
    if name_of(node) in picks:
        source, _ = _behind(node, SHAPES)
        return None if source is None else _of_rows(_logarithms(source), _labels(node))
    if name_of(node) != "Log":
        return None
    pick, _ = _behind(node, _GUARDS)
    if pick is None or name_of(pick) not in picks:
        return None
    return _of_rows(_logarithms_of(_probabilities(*_behind(pick, _GUARDS))), _labels(pick))


def _multiplied(product: Any) -> tuple[torch.Tensor, Any] | None:
    """(the side of host memory that is not differentiated, the node of the other)."""
    if name_of(product) != "Mul" or len(product.next_functions) != 2:
        return None
    (one, _), (other, _) = product.next_functions
    if (one is None) == (other is None):
        return None
    constant = kept_as(product, "self" if one is None else "other")
    if not isinstance(constant, torch.Tensor) or not plain(constant) or constant.device.type != "cpu":
        return None
    return constant, other if one is None else one


def _soft(node: Any) -> OfClasses | None:
    """Rows of labels, times logarithms."""
    found = _multiplied(node)
    rows = None if found is None else _logarithms(found[1])
    if found is None or rows is None or tuple(found[0].shape) != shape_of(node):
        return None
    labels = _as_rows(found[0])
    if labels is None or labels.numel() > LARGE:
        return None
    sign = -1 if labels[0].sum() >= 0 else 1
    labels = -sign * labels
    if not _are_probabilities(labels) or labels.double().amax(1).mean() < SURE:
        return None             # a teacher's, of which most of the loss may be what cannot be learnt
    labels = labels[:: rows.step]
    if rows.logs is None or rows.logs.shape != labels.shape:
        return OfClasses("cross_entropy", None, None, rows.scored, sign)
    most, which = labels.max(1)
    target = which if bool((most == 1).all()) else labels.float()
    return OfClasses("cross_entropy", rows.logs, target, rows.scored, sign)


def _from_sums(node: Any) -> OfClasses | None:
    """logsumexp(z, 1) - z[range(n), y]"""
    if name_of(node) != "Sub" or len(node.next_functions) != 2:
        return None
    whole, pick = (_through(SHAPES, *side)[0] for side in node.next_functions)
    if whole is None or pick is None or name_of(whole) != "Logsumexp" or name_of(pick) not in ("Gather", "Index"):
        return None
    scores, labels = kept_as(whole, "self"), _labels(pick)
    if whole.next_functions != pick.next_functions or labels is None or not isinstance(scores, torch.Tensor):
        return None
    if tuple(map(signed, whole._saved_dim)) not in ((-1,), (scores.dim() - 1,)):
        return None
    found = _of_rows(_Rows(_as_rows(scores), 1, whole.next_functions[0][0]), labels)
    return None if found is None else found._replace(sign=1)


def _with_logarithm(product: Any) -> tuple[torch.Tensor, torch.Tensor, bool] | None:
    """Of one of two terms: (parts of what is multiplied and of the probability, is that 1 less another?)"""
    found = _multiplied(product)
    if found is None:
        return None
    constant, node = found
    if name_of(node) == "LogSigmoid":
        kept = kept_as(node, "self")
        value = None if kept is None else kept.detach().sigmoid()
        inside = node.next_functions[0][0]
    elif name_of(node) == "Log":
        kept = value = kept_as(node, "self")
        inside, _ = _behind(node, _GUARDS)
    else:
        return None
    if not isinstance(value, torch.Tensor) or not plain(value) or value.shape != constant.shape or inside is None:
        return None
    one, other = part(constant.detach()), part(value.detach())
    if one is None or other is None:
        return None
    is_rest = name_of(inside) in ("Rsub", "Neg") or (name_of(inside) == "Sub" and inside.next_functions[0][0] is None)
    return one.double(), other.double(), is_rest


def _of_two(node: Any) -> OfClasses | None:
    """-(y * log(p) + (1 - y) * log(1 - p)), or its negative."""
    if name_of(node) not in ("Add", "Sub") or len(node.next_functions) != 2 or not shape_of(node):
        return None
    terms, sign = [], 1
    for one, _ in node.next_functions:
        negative = sign < 0
        while one is not None and name_of(one) in _PASS_ON:
            negative ^= name_of(one) == "Neg"
            one = one.next_functions[0][0]
        found = None if one is None else _with_logarithm(one)
        if found is None:
            return None
        terms.append((-found[0] if negative else found[0], *found[1:]))
        sign = -1 if name_of(node) == "Sub" else 1
    (y, p, one_is_rest), (not_y, not_p, other_is_rest) = terms
    if one_is_rest == other_is_rest or y.shape != not_y.shape or p.shape != not_p.shape:
        return None
    sign = -1 if y.sum() + not_y.sum() >= 0 else 1
    y, not_y = -sign * y, -sign * not_y
    if bool(((y + not_y - 1).abs() > NEAR).any()) or bool(((p + not_p - 1).abs() > NEAR).any()):
        return None
    given, target = (not_p, not_y) if one_is_rest else (p, y)
    return OfClasses("binary_cross_entropy", given, target, sign=sign)


def classes_of(root: Any) -> OfClasses | None:
    """The cross entropy that is all that is differentiated, but for a factor; None where that is something else."""
    summed = None if root is None else below_sums(root, _PASS_ON)
    if summed is None:
        return None
    found = _picked(summed.node) or _soft(summed.node) or _from_sums(summed.node) or _of_two(summed.node)
    return None if found is None else found._replace(summed=summed)
