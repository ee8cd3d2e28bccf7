"""Why a derivative is not finite, of what its node kept: `derivative_proof` does for it what `proofs.proof` does for a
result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .evidence import Because, below_zero, count_where, number, of, some_are, zero
from .values import readable

#: Only the result was kept, which does not tell the two apart.
_BELOW = "negative, or NaN", torch.isnan
#: Something behind it leaves them out of the loss, and its derivative is taken all the same.
_LEFT_OUT = "nan", "NaN, which what comes behind it leaves out", torch.isnan


def _repeated(values: torch.Tensor | None, noun: str) -> Because | None:
    """Vectors of values that are the same are not determined: their derivative divides by the difference."""
    plain = None if values is None else readable(values)
    if plain is None or plain.shape[-1] < 2:
        return None
    ordered = plain.sort(-1).values
    same = ordered[..., 1:] == ordered[..., :-1]
    found = int(torch.cat([same[..., :1], same[..., 1:] | same[..., :-1], same[..., -1:]], -1).sum())
    return Because(f"{found:,} of the {plain.numel():,} {noun} occur more than once: it divides by the difference "
                   "between them", {"repeated": found, "values": plain.numel()}) if found else None


def _of_nothing_added(given: dict[str, torch.Tensor]) -> Because | None:
    a, b = given.get("self"), given.get("other")
    if a is None or b is None:
        return None
    found, count = count_where(lambda a, b: (a == b) & torch.isinf(a), a, b)
    return Because(f"in {found:,} of the {count:,} pairs that its derivative was taken at both are -infinity",
                   {"infinite": found, "values": count}) if found else None


def _power_derivative(exponent: Any, given: dict[str, torch.Tensor], taken: str) -> Because | None:
    if isinstance(exponent, torch.Tensor):
        return _powers_derivative(given.get("self"), exponent, taken)
    if not isinstance(exponent, (int, float)):
        return None
    with_exponent = f", with an exponent of {number(exponent)}"
    conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = []
    if exponent < 1:
        conditions.append(("zeros", "0" + with_exponent, zero))
    if exponent != int(exponent):
        conditions.append(("negative", "negative" + with_exponent, below_zero))
    return some_are(given, ("self",), [*conditions, _LEFT_OUT], taken)


def _powers_derivative(base: torch.Tensor | None, exponent: torch.Tensor, taken: str) -> Because | None:
    """Where each value has an exponent of its own."""
    base, exponents = None if base is None else readable(base), readable(exponent)
    if base is None or exponents is None:
        return None
    for key, said, bad in (("zeros", "0, with an exponent below 1", (base == 0) & (exponents < 1)),
                           ("negative", "negative, with an exponent that is no whole number",
                            (base < 0) & (exponents != exponents.round()))):
        if found := int(bad.sum()):
            return Because(f"{of(found, bad.numel())} {taken} {'is' if found == 1 else 'are'} {said}",
                           {key: found, "values": bad.numel()})
    return None


def derivative_proof(node: str, exponent: Any, given: dict[str, torch.Tensor]) -> Because | None:
    """Why the derivative is not finite at what was kept. `node`: a base name."""
    taken = "that its derivative was taken at"

    def at(names: tuple[str, ...], key: str, said: str, test: Callable[[torch.Tensor], torch.Tensor],
           what: str = taken) -> Because | None:
        return some_are(given, names, [(key, said, test)], what)

    if node == "Sqrt":
        return some_are(given, ("result",), [("zeros", "0", zero), ("negative", *_BELOW)], taken)
    if node == "Rsqrt":
        return some_are(given, ("result",), [("zeros", "0", torch.isinf), ("negative", *_BELOW)], taken)
    if node == "Reciprocal":
        return some_are(given, ("result",), [("zeros", "0", torch.isinf)], taken)
    if node == "Pow":
        return _power_derivative(exponent, given, taken)
    if node in ("Log", "Log2", "Log10", "SpecialEntr"):
        return at(("self",), "zeros", "0", zero)
    if node == "Xlogy":
        return at(("other",), "zeros", "0", zero, "that it took the logarithm of")
    if node == "Mul":
        return at(("self", "other"), "nan", *_LEFT_OUT[1:]) or at(("other",), "nan", *_LEFT_OUT[1:])
    if node == "LinalgEigh":
        return _repeated(given.get("eigenvalues"), "eigenvalues")
    if node == "LinalgSvd":
        return _repeated(given.get("S"), "singular values")
    if node in ("Logaddexp", "Logaddexp2"):
        return _of_nothing_added(given)
    if node == "Log1P":
        return at(("self",), "at_pole", "-1", lambda x: x == -1)
    if node == "Div":
        return at(("other",), "zeros", "0", zero, "that it divided by")
    if node in ("Acos", "Asin", "Atanh", "Erfinv"):
        # Outside of them atanh has a derivative all the same.
        outside = ("outside", "outside of -1 to 1", lambda x: x.abs() > 1)
        ends = ("at_ends", "-1 or 1", lambda x: x.abs() == 1)
        return some_are(given, ("self",), [ends] if node == "Atanh" else [ends, outside], taken)
    if node == "Acosh":
        # Below -1 it has a derivative all the same.
        return some_are(given, ("self",), [("at_ends", "-1 or 1", lambda x: x.abs() == 1),
                                         ("outside", "between -1 and 1", lambda x: x.abs() < 1)], taken)
    if node == "Hypot":             # of each pair: its result is 0 where both are
        return at(("result",), "zeros", "0, where it has no derivative", zero, "of its result")
    if node == "Logit":
        return some_are(given, ("self",), [("at_ends", "0 or 1", lambda x: (x == 0) | (x == 1)),
                                         ("outside", "outside of 0 to 1", lambda x: (x < 0) | (x > 1))], taken)
    if node in ("Exp", "Expm1"):
        return some_are(given, ("result",), [("overflows", "beyond what exp can hold: its result is infinite "
                                                         "there", torch.isinf)], taken)
    return None


#: Whose derivative is not finite somewhere, although their results are.
SINGULAR = {"Sqrt", "Rsqrt", "Reciprocal", "Pow", "Log", "Log2", "Log10", "Log1P", "Xlogy", "Div", "Acos", "Asin",
            "Atanh", "Acosh", "Hypot", "Erfinv", "Logit", "Exp", "Expm1", "SpecialEntr",
            "LinalgEigh", "LinalgSvd", "Logaddexp", "Logaddexp2"}
#: Whose derivative is NaN where they were given a NaN: that matters only where something behind them leaves it out.
GUARDED = {"Pow", "Mul"}
#: Whose vectors have a derivative that is not finite somewhere; their first result's is.
VECTORS = {"LinalgEigh": (1,), "LinalgSvd": (0, 2)}
#: What of a node tells.
DERIVATIVE_OF = {"Sqrt": ("result",), "Rsqrt": ("result",), "Reciprocal": ("result",), "Div": ("other",),
                 "Pow": ("self", "exponent"),
                 "Hypot": ("result",), "Xlogy": ("other",), "Exp": ("result",), "Expm1": ("result",),
                 "LinalgEigh": ("eigenvalues",), "LinalgSvd": ("S",), "Logaddexp": ("self", "other"),
                 "Logaddexp2": ("self", "other"), "Mul": ("self", "other")}
