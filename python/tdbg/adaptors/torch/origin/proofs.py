"""Why an operation's result is not finite: what it was given and kept, by the name of its node without `Backward0`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..graph import signed
from .evidence import (
    Because,
    below_zero,
    count_of,
    count_where,
    counted,
    dtype_of,
    first_of,
    limit_of,
    name_of,
    number,
    of,
    some_are,
    these,
    zero,
)
from .graph import base_name, is_python
from .operations import short_of
from .values import INF, NAN, Budget, readable, values_of


def _log(shift: float) -> Callable[..., Because | None]:
    at = number(-shift) if shift else "0"

    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        below = "below_domain" if shift else "negative", f"below {at}" if shift else "negative", lambda x: x < -shift
        exactly = "at_pole" if shift else "zeros", at, (lambda x: x == -shift) if shift else zero
        order = [below, exactly] if state == NAN else [exactly, below]
        return some_are(given, ("self", "input 0"), order)
    return prove


def _product_with_a_log(shift: float) -> Callable[..., Because | None]:
    """x * log(y + shift), 0 where x is."""
    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        y, x = given.get("other"), given.get("self")
        if y is None:
            return None
        factor = torch.ones((), dtype=y.dtype) if x is None else x
        at = number(-shift) if shift else "0"
        below, n = count_where(lambda y, x: (y < -shift) & (x != 0), y, factor)
        exactly, _ = count_where(lambda y, x: (y == -shift) & (x != 0), y, factor)
        what = "that it took the logarithm of"
        said = [these(below, n, *(("below_domain", f"below {at}") if shift else ("negative", "negative")), what),
                these(exactly, n, *(("at_pole", at) if shift else ("zeros", at)), what)]
        found = [because for because, count in zip(said, (below, exactly)) if count]
        return found[0 if state == NAN else -1] if found else None
    return prove


def _result_of(words_nan: tuple[str, str], words_inf: tuple[str, str]) -> Callable[..., Because | None]:
    """Where only the result was kept: what it tells of the input. ((key, words) of NaN, of infinity)"""
    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        key, said = words_nan if state == NAN else words_inf
        given_to = first_of(given, "self", "input 0")
        tests: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"negative": below_zero, "zeros": zero}
        if given_to is not None and key in tests and (found := count_of(given_to, tests[key])):
            return Because(f"{of(found, given_to.numel())} that it was given {'is' if found == 1 else 'are'} {said}",
                           {key: found, "values": given_to.numel()})
        result = given.get("result")
        if result is None or not key:
            return None
        found = count_of(result, torch.isnan if state == NAN else torch.isinf)
        # An infinity comes of nothing else; a NaN also of a NaN.
        forced = state != NAN
        said = said if forced else f"{said}, or NaN"
        return Because(f"{of(found, result.numel())} that it was given {'is' if found == 1 else 'are'} {said}",
                       {key: found, "values": result.numel()}, forced) if found else None
    return prove


def _outside(low: float | None, high: float | None, closed: bool = False) -> Callable[..., Because | None]:
    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        if low is None:
            return some_are(given, ("self", "input 0"), [("outside", f"below {number(high or 0)}", lambda x: x < high)])
        if high is None:
            return None

        def test(x: torch.Tensor) -> torch.Tensor:
            return (x <= low) | (x >= high) if closed else (x < low) | (x > high)
        said = f"outside of {number(low)} to {number(high)}"
        said = f"{number(low)}, {number(high)} or {said}" if closed else said
        return some_are(given, ("self", "input 0"), [("outside", said, test)])
    return prove


def _division(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    divisor = first_of(given, "other", "input 1")
    if divisor is None:
        return None
    if divisor.numel() == 1 and not divisor.any():
        return Because("it divided by 0", {"zeros": 1, "values": 1})
    return some_are({"other": divisor}, ("other",), [("zeros", "0", zero)], "that it divided by")


def _division_of_a_sum(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    return _division(node, {"other": given["tensor2"]}, state) if "tensor2" in given else None


def _power(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    exponent = getattr(node, "_saved_exponent", None)
    if isinstance(exponent, torch.Tensor):
        return _powers(given["self"], exponent) if "self" in given else None
    base = first_of(given, "self", "input 0")
    if not isinstance(exponent, (int, float)) or base is None:
        return None
    exponent = float(exponent)
    raised = f"that it raised to the power of {number(exponent)}"
    conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = []
    if exponent != int(exponent):
        conditions.append(("negative", "negative", below_zero))
    if exponent < 0:
        conditions.append(("zeros", "0", zero))
    return some_are({"self": base}, ("self",), conditions, raised)


def _powers(base: torch.Tensor, exponent: torch.Tensor) -> Because | None:
    """Where each value has an exponent of its own."""
    for key, said, bad in (
        ("negative", "negative, and raised to a power that is no whole number",
         lambda b, e: (b < 0) & (e != e.round())),
        ("zeros", "0, and raised to a negative power", lambda b, e: (b == 0) & (e < 0)),
    ):
        found, count = count_where(bad, base, exponent)
        if found:
            return these(found, count, key, said)
    return None


def _beyond(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """cosh and sinh: half of exp of the magnitude."""
    dtype = dtype_of(node)
    if dtype is None:
        return None
    limit = math.log(limit_of(dtype)) + math.log(2)
    return some_are(given, ("self",), [("overflows", f"beyond {limit:.1f}, where {short_of(base_name(node))} leaves "
                                        f"{name_of(dtype)}", lambda x: x.abs() > limit)])


def _pole(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """The gamma function's relatives."""
    return some_are(given, ("self",), [("at_pole", "0 or a negative whole number, where it has a pole",
                                        lambda x: (x <= 0) & (x == x.round()))])


def _exponential(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    result = given.get("result")
    dtype = dtype_of(node)
    if result is None or dtype is None or state != INF:
        return None
    base = base_name(node)
    limit = (math.log2 if base == "Exp2" else math.log)(limit_of(dtype))
    found = count_of(result, torch.isinf)
    largest = first_of(given, "self", "input 0")
    numbers: dict[str, Any] = {"overflows": found, "values": result.numel(), "limit": round(limit, 2)}
    verb = "is" if found == 1 else "are"
    text = f"{of(found, result.numel())} that it was given {verb} above {limit:.1f}, where "
    text += f"{short_of(base)} leaves {name_of(dtype)}"
    if largest is not None and (values := values_of(largest, Budget())) is not None:
        numbers["largest"] = values.high
        text += f" (the largest: {number(values.high)})"
    return Because(text, numbers) if found else None


def _mean(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    if sizes is None or 0 not in tuple(sizes):
        return None
    return Because(f"there was nothing to take it of: its input has the shape {list(sizes)}", {"values": 0})


def _middle(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """The median."""
    tensor = given.get("self")
    if tensor is None or tensor.numel():
        return None
    return Because(f"there was nothing to take it of: its input has the shape {list(tensor.shape)}", {"values": 0})


def _nothing_times_infinity(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    a, b = given.get("self"), given.get("other")
    if a is None or b is None or state != NAN:
        return None
    found, count = count_where(lambda a, b: (a == 0) & torch.isinf(b) | (b == 0) & torch.isinf(a), a, b)
    return Because(f"{found:,} of the {count:,} products that it took {'is' if found == 1 else 'are'} 0 times infinity",
                   {"infinite": found, "values": count}) if found else None


def _length(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """weight_norm divides each row of a weight by its length, which it keeps."""
    return some_are(given, ("result1",), [("zeros", "0", zero)], "that it divided by, the lengths of rows,")


def _spread(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """Variance and standard deviation."""
    tensor = given.get("self")
    if tensor is None:
        return None
    correction = getattr(node, "_saved_correction", None)
    correction = 1.0 if correction is None else float(correction)
    dims = getattr(node, "_saved_dim", None)
    dims = [signed(d) for d in dims] if dims else range(tensor.dim())
    n = math.prod(tensor.shape[d] for d in dims)
    if n - correction > 0:
        return None
    return Because(f"it was taken of {counted(n, 'value')} and divides by n - {number(correction)}",
                   {"values": n, "correction": correction})


def _softmax(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    result = given.get("result")
    dim = getattr(node, "_saved_dim", None)
    if result is None or dim is None or state != NAN or result.dim() == 0:
        return None
    dim = signed(dim)
    n = math.prod(result.shape) // max(result.shape[dim], 1)
    rows = _rows_of(torch.isnan(result), dim)
    bad = rows.all(1)
    whole = int(bad.sum())
    scores = given.get("input 0")
    if scores is not None and scores.shape == result.shape and not scores.is_complex():
        return _of_scores(_rows_of(scores, dim), n)
    if not whole or whole != int(rows.any(1).sum()):
        return None
    for mask in (mask for name, mask in given.items() if name.startswith("mask")):
        try:
            full = _rows_of(mask.expand(result.shape), dim).all(1)
        except RuntimeError:
            continue
        if torch.equal(full, bad):
            return Because(f"in {whole:,} of its {n:,} rows everything was masked: a softmax of nothing but "
                           "-infinity", {"rows": whole, "of": n})
    # Of a mask that was added nothing is kept.
    if whole == n:
        text = "its row is" if n == 1 else f"all of its {n:,} rows are"
        text += " NaN from end to end, as a row is in which everything was masked with -infinity"
    else:
        text = (f"{whole:,} of its {n:,} rows {'is' if whole == 1 else 'are'} NaN from end to end and the others have "
                "none, as a row is in which everything was masked with -infinity")
    return Because(f"{text}, or in which there is +infinity or NaN", {"nan_rows": whole, "of": n}, forced=False)


def _rows_of(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.movedim(dim, -1).reshape(-1, values.shape[dim])


def _of_scores(scores: torch.Tensor, n: int) -> Because | None:
    masked = int((scores == -math.inf).all(1).sum())
    if masked:
        return Because(f"in {masked:,} of its {n:,} rows everything was masked: a softmax of nothing but -infinity",
                       {"rows": masked, "of": n})
    above = int((scores == math.inf).any(1).sum())
    return Because(f"in {above:,} of its {n:,} rows there is +infinity", {"above": above, "of": n}) if above else None


def _of_nothing(node: Any, given: dict[str, torch.Tensor]) -> Because | None:
    """The mean of a loss over no elements."""
    shape = None
    if getattr(node, "_saved_reduction", None) == 1 and "self" in given:
        shape = tuple(given["self"].shape)
    elif base_name(node) == "Fill":         # so cross_entropy ends where labels are probabilities
        shape = next((getattr(behind, "_saved_self_sym_sizes", None) for behind, _ in node.next_functions), None)
    if not shape or 0 not in shape:
        return None
    return Because(f"there was nothing to take the mean of: its input has the shape {list(shape)}", {"elements": 0})


def _singular(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    factors = given.get("LU")
    if factors is None or factors.dim() < 2 or factors.is_complex() or (plain := readable(factors)) is None:
        return None
    zeros = (plain.diagonal(dim1=-2, dim2=-1) == 0).any(-1)
    found, count = int(zeros.sum()), zeros.numel()
    if not found:
        return None
    text = ("the matrix that it was given is singular" if count == 1 else
            f"{found:,} of the {count:,} matrices that it was given {'is' if found == 1 else 'are'} singular")
    return Because(text, {"singular": found, "matrices": count})


def _inverse(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    inverse = first_of(given, "inverse", "result")
    if inverse is None or not (count_of(inverse, torch.isnan) or count_of(inverse, torch.isinf)):
        return None
    return Because("its result is not finite, as of a singular matrix, or of one with a NaN in it", {"singular": 1},
                   forced=False)


def _normalised(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """layer_norm and group_norm keep 1 / sqrt(variance + eps)."""
    scale = given.get("result2")
    if scale is None or not (found := count_of(scale, torch.isinf)):
        return None
    return Because(f"the variance of {found:,} of the {scale.numel():,} groups of values that it normalises is 0, and "
                   "its eps adds nothing to it", {"variances": found, "groups": scale.numel()})


def _by_running_statistics(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    if getattr(node, "_saved_training", True):
        return None
    eps = float(getattr(node, "_saved_eps", 0.0))
    return some_are(given, ("running_var",), [("running", "so far below 0 that it takes the root of a negative number",
                                               lambda x: x + eps < 0),
                                              ("running", "0, and its eps adds nothing to it", lambda x: x + eps == 0)],
                    "of its running variance")


def _ctc(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    lengths, longest = getattr(node, "_saved_target_lengths", None), getattr(node, "_saved_input_lengths", None)
    targets = given.get("targets")
    if lengths is None or longest is None or targets is None or getattr(node, "_saved_zero_infinity", False):
        return None
    lengths, longest, begin, told = [int(n) for n in lengths], [int(n) for n in longest], 0, []
    for sample, (length, most) in enumerate(zip(lengths, longest)):
        labels = targets[begin:begin + length] if targets.dim() == 1 else targets[sample, :length]
        begin += length
        repeated = int((labels[1:] == labels[:-1]).sum())
        if length + repeated > most:
            told.append((length, repeated, most))
    if not told:
        return None
    length, repeated, most = told[0]
    whose = "its target is" if len(lengths) == 1 else (f"{len(told):,} of its {len(lengths):,} targets "
                                                       f"{'is' if len(told) == 1 else 'are'}")
    text = f"{whose} longer than the input allows: {counted(length, 'label')}"
    text += f" and a blank between each of {repeated:,} that repeat" if repeated else ""
    return Because(f"{text} need {length + repeated:,} steps, and it has {most:,}",
                   {"too_long": len(told), "targets": len(lengths)})


def _nll(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    target, ignored = given.get("target"), getattr(node, "_saved_ignore_index", None)
    weight = given.get("total_weight")
    log_probabilities = first_of(given, "self", "input 0")
    if target is None:
        return None
    if ignored is not None:
        ignored = signed(ignored)
    if weight is not None and weight.numel() == 1 and float(weight) == 0 and getattr(node, "_saved_reduction", 1) == 1:
        if ignored is not None and bool((target == ignored).all()):
            return Because(f"all of its {counted(target.numel(), 'label')} {'is' if target.numel() == 1 else 'are'} "
                           f"{ignored}, the class that is "
                           "ignored: it divides by a count of 0", {"ignored": target.numel(), "labels": target.numel()})
        return Because("the weights of all its labels add up to 0, and it divides by that", {"labels": target.numel()})
    if log_probabilities is None or log_probabilities.dim() not in (1, 2):
        return None
    rows = log_probabilities.reshape(-1, log_probabilities.shape[-1])
    labels = target.reshape(-1)
    kept = labels != ignored if ignored is not None else torch.ones_like(labels, dtype=torch.bool)
    picked = rows[kept].gather(1, labels[kept].unsqueeze(1))
    found = int(torch.isinf(picked).sum())
    name = "names" if found == 1 else "name"
    if not found:
        return None
    return Because(f"{found:,} of its {counted(labels.numel(), 'label')} {name} a class whose probability is 0 (its "
                   "logit is -infinity, or was masked)", {"labels_at_zero": found, "labels": labels.numel()})


def too_large(node: Any) -> Because | None:
    """What it was given is finite, and was not kept; its result is infinite."""
    dtype = dtype_of(node)
    if dtype is None or not dtype.is_floating_point:
        return None
    limit = limit_of(dtype)
    return Because(f"its result is larger than {name_of(dtype)} holds ({number(limit)}), and all that it was given is "
                   "finite", {"limit": limit, "dtype": name_of(dtype)})


def overflow(node: Any, given: dict[str, torch.Tensor], budget: Budget, where: str = "") -> Because | None:
    """Its inputs are finite and its result is too large for its type."""
    dtype = dtype_of(node)
    if dtype is None or not dtype.is_floating_point:
        return None
    limit, largest = limit_of(dtype), 0.0
    if base_name(node) == "ToCopy":
        return Because(f"it was given what is larger than {name_of(dtype)} holds ({number(limit)})",
                       {"limit": limit, "dtype": name_of(dtype)})
    for name, tensor in given.items():
        if name.startswith(("mask", "result", "total_weight", "target")) or not tensor.is_floating_point():
            continue
        values = values_of(tensor, budget)
        if values is None:
            return None
        largest = max(largest, values.largest)
    if not largest:
        return None
    return Because(f"its result is larger than {name_of(dtype)} holds ({number(limit)}); the largest value that it "
                   f"was given is {number(largest)}",
                   {"largest": largest, "limit": limit, "dtype": name_of(dtype)})


_PROOFS: dict[str, Callable[[Any, dict[str, torch.Tensor], str | None], Because | None]] = {
    "Log": _log(0.0), "Log2": _log(0.0), "Log10": _log(0.0), "Log1P": _log(1.0),
    "Xlogy": _product_with_a_log(0.0), "SpecialXlog1Py": _product_with_a_log(1.0),
    "Sqrt": _result_of(("negative", "negative"), ("", "")),
    "Rsqrt": _result_of(("negative", "negative"), ("zeros", "0")),
    "Reciprocal": _result_of(("", ""), ("zeros", "0")), "Div": _division, "Pow": _power, "Exp": _exponential,
    "Expm1": _exponential, "Acos": _outside(-1, 1), "Asin": _outside(-1, 1), "Atanh": _outside(-1, 1, closed=True),
    "Acosh": _outside(None, 1), "Erfinv": _outside(-1, 1, closed=True), "Logit": _outside(0, 1, closed=True),
    "Mean": _mean, "Var": _spread, "Std": _spread, "VarMean": _spread, "StdMean": _spread, "Softmax": _softmax,
    "SafeSoftmax": _softmax, "LogSoftmax": _softmax, "NllLoss": _nll, "NllLoss2D": _nll, "Fmod": _division,
    "Remainder": _division, "Addcdiv": _division_of_a_sum, "Exp2": _exponential, "Cosh": _beyond, "Sinh": _beyond,
    "Digamma": _pole, "Lgamma": _pole, "Polygamma": _pole,
    "SpecialNdtri": _result_of(("outside", "outside of 0 to 1"), ("at_ends", "0 or 1")),
    "LinalgSlogdet": _singular, "LinalgSolveEx": _singular, "LinalgInvEx": _inverse,
    "NativeLayerNorm": _normalised, "NativeGroupNorm": _normalised, "NativeBatchNorm": _by_running_statistics,
    "CtcLoss": _ctc, "Median": _middle, "Nanmedian": _middle, "Mul": _nothing_times_infinity,
    "WeightNormInterface": _length,
}


#: Whose proof needs to be told what became of the result, and where that is only known behind views of it.
PROVES_ALONE = {"Exp", "Exp2", "Expm1", "Softmax", "SafeSoftmax", "LogSoftmax"}


def proof(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """Why its result is not finite, of what it was given and kept. `state` of the result: NAN, INF or None (not
    known)."""
    if is_python(node):
        return None
    found = _PROOFS.get(base_name(node))
    return _of_nothing(node, given) or (None if found is None else found(node, given, state))
