"""What operations can do to numbers, by the names of their nodes without `Backward0`, and how it is said.

`proof` looks at what an operation was given and says why its result cannot be finite. `bound` says how large a result
can be at most. `derivative_proof` does for the derivative what `proof` does for the result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...guard import pass_on
from .graph import VIEWS, base_name, is_python
from .values import INF, NAN, Budget, Values, pieces, readable, values_of

#: Finite inputs give finite results, whatever they are (layer_norm's variance overflows at 1e19 only).
KEEPS = VIEWS - {"ToCopy"} | {"Neg", "Abs", "Relu", "LeakyRelu", "Threshold", "Elu", "Gelu", "Silu", "Mish", "Hardtanh",
                              "Hardsigmoid", "Hardswish", "Softplus", "Softshrink", "Hardshrink", "Prelu",
                              "RreluWithNoise", "Sigmoid", "Tanh", "LogSigmoid", "LogSigmoidForward", "Softmax",
                              "SafeSoftmax", "LogSoftmax", "Clamp", "ClampMin", "ClampMax", "Max", "Min", "Maximum",
                              "Minimum", "Amax", "Amin", "Where", "NativeDropout", "Cat", "Stack",
                              "MaxPool2DWithIndices", "MaxPool3DWithIndices", "MaxPool2D", "AvgPool2D", "AvgPool3D",
                              "AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "AdaptiveMaxPool2D", "MkldnnAdaptiveAvgPool2D",
                              "Mean", "Sin", "Cos", "Sign", "Floor", "Ceil", "Round", "Trunc", "Atan", "Erf", "Erfc",
                              "Sort", "Topk", "Tril", "Triu", "Index", "IndexSelect", "Gather", "Embedding",
                              "EmbeddingBag", "Repeat", "Roll", "Flip", "Diagonal", "Unfold", "MaskedSelect", "Take",
                              "TakeAlongDim", "Median", "Kthvalue", "NativeLayerNorm", "NativeGroupNorm",
                              "UpsampleNearest2D", "UpsampleBilinear2D", "PixelShuffle", "_DDPSink", "Error",
                              "CopySlices", "Copy", "NotImplemented", "ReflectionPad1D", "ReflectionPad2D",
                              "ReplicationPad2D", "Real", "Imag", "ViewAsReal", "ViewAsComplex"}
_ONE = {"Sigmoid", "Tanh", "Softmax", "SafeSoftmax", "Sin", "Cos", "Erf", "Sign", "Hardsigmoid"}        # at most
_PRODUCTS = {"Mm", "Addmm", "Bmm", "Baddbmm", "Addbmm", "Convolution", "MkldnnConvolution", "Mv", "Addmv", "Dot",
             "Linear", "MkldnnLinear", "SlowConvDilated2D", "ThnnConv2D", "Einsum"}
#: Of what is added or chosen without a gradient nothing is kept.
TAKES_CONSTANTS = {"Add", "Sub", "Rsub", "Where", "Maximum", "Minimum", "Cat", "Stack", "MaskedFill", "MaskedScatter",
                   "Copy", "CopySlices", "Lerp", "L1Loss", "ConstantPadNd", "Addcmul", "Addcdiv", "ScatterAdd",
                   "IndexPut", "IndexAdd", "Scatter"}
#: Whose result is infinite for no other reason than its size, if what they were given is finite.
ADDS_AND_MULTIPLIES = _PRODUCTS | {"Add", "Sub", "Rsub", "Mul", "Sum", "Cumsum", "Mean", "MseLoss", "Addcmul"}
#: What puts an infinity on purpose, so that a softmax leaves it out.
MASKS = {"MaskedFill", "Where", "Add", "ConstantPadNd", "MaskedScatter", "Sub"}

#: Behind these what is not finite may be gone: they leave elements out, or choose others.
DROPS = {"Where", "MaskedFill", "MaskedScatter", "Index", "IndexSelect", "Gather", "Select", "Slice", "MaskedSelect",
         "Take", "TakeAlongDim", "NanToNum", "Topk", "Sort", "Kthvalue", "Median", "Narrow", "Tril", "Triu", "IndexPut",
         "Scatter", "CopySlices", "Copy", "Split", "SplitWithSizes", "Unbind", "Chunk", "MaxPool2DWithIndices",
         "Embedding"}
#: And behind these an infinity.
BOUNDS = _ONE | {"Clamp", "ClampMin", "ClampMax", "Hardtanh", "Atan", "Maximum", "Minimum", "Max", "Min", "Amax",
                 "Amin", "Div", "Reciprocal", "Rsqrt", "Exp", "Relu", "Threshold", "Silu", "Gelu", "Elu", "Softplus",
                 "LogSigmoid", "Hardswish", "Mish", "LeakyRelu", "Logsumexp"}

_WORDS = {"Addmm": "a matrix product (addmm)", "Mm": "a matrix product (mm)", "Bmm": "a matrix product (bmm)",
          "Mv": "a matrix product (mv)", "Baddbmm": "a matrix product (baddbmm)", "Convolution": "convolution",
          "NativeBatchNorm": "batch_norm", "CudnnBatchNorm": "batch_norm", "NativeLayerNorm": "layer_norm",
          "NativeGroupNorm": "group_norm", "SafeSoftmax": "softmax", "ToCopy": "the conversion of its type (to)",
          "MkldnnRnnLayer": "a recurrent layer (rnn)", "CudnnRnn": "a recurrent layer (rnn)",
          "NativeDropout": "dropout", "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits",
          "AccumulateGrad": "a parameter", "CompiledFunction": "a compiled region",
          "CheckpointFunction": "a checkpointed segment", "LinalgVectorNorm": "norm"}
_SHORT = {"Addmm": "addmm", "Mm": "mm", "Bmm": "bmm", "ToCopy": "to", "MkldnnRnnLayer": "rnn", "CudnnRnn": "rnn",
          "Mv": "mv", "Baddbmm": "baddbmm", "Log1P": "log1p", "NllLoss2D": "nll_loss", "CompiledFunction": "compiled",
          "CheckpointFunction": "checkpoint"}


def short(node: Any) -> str:
    """`log`, `layer_norm`, `MyFunction`: for programs."""
    base = base_name(node)
    return base if is_python(node) and base not in _SHORT else short_of(base)


def short_of(base: str) -> str:
    said = _SHORT.get(base) or _WORDS.get(base)
    return said or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", base).lower()


def words(node: Any) -> str:
    """The same in a sentence."""
    base = base_name(node)
    if is_python(node) and base not in _WORDS:
        return f"the custom function {base}"
    return _WORDS.get(base) or short(node)


class Because(NamedTuple):
    """`forced`: by what was seen; else what it was given was not seen, and may have been NaN before."""

    text: str
    numbers: dict[str, Any]
    forced: bool = True


def counted(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def _of(n: int, count: int) -> str:
    return f"{n:,} of the {count:,} values"


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def limit_of(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point or dtype.is_complex else math.inf


def dtype_of(node: Any, result: int = 0) -> torch.dtype | None:
    """Of its result."""
    try:
        dtype: torch.dtype = node._input_metadata[result].dtype
        return dtype
    except Exception as error:
        pass_on(error)
        return None


def _count(tensor: torch.Tensor, condition: Callable[[torch.Tensor], torch.Tensor]) -> int:
    plain = readable(tensor)
    return 0 if plain is None else sum(int(condition(piece).sum()) for piece in pieces(plain))


def _tensor(given: dict[str, torch.Tensor], *names: str) -> torch.Tensor | None:
    return next((given[name] for name in names if name in given), None)


# Proofs: what an operation was given --------------------------------------------------------------------------------


def _where(given: dict[str, torch.Tensor], names: tuple[str, ...],
           conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]],
           what: str = "that it was given") -> Because | None:
    """The first condition that some of the values meet. `conditions`: [(key of the numbers, words, test)]"""
    tensor = _tensor(given, *names)
    if tensor is None:
        return None
    count = tensor.numel()
    for key, said, test in conditions:
        if found := _count(tensor, test):
            verb = "is" if found == 1 else "are"
            return Because(f"{_of(found, count)} {what} {verb} {said}", {key: found, "values": count})
    return None


def _zero(x: torch.Tensor) -> torch.Tensor:
    return x == 0


def _below_zero(x: torch.Tensor) -> torch.Tensor:
    return x < 0


def _log(shift: float) -> Callable[..., Because | None]:
    at = number(-shift) if shift else "0"

    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        below = "below_domain" if shift else "negative", f"below {at}" if shift else "negative", lambda x: x < -shift
        exactly = "at_pole" if shift else "zeros", at, lambda x: x == -shift
        order = [below, exactly] if state == NAN else [exactly, below]
        return _where(given, ("self", "input 0"), order)
    return prove


def _result_of(words_nan: tuple[str, str], words_inf: tuple[str, str]) -> Callable[..., Because | None]:
    """Where only the result was kept: what it tells of the input. ((key, words) of NaN, of infinity)"""
    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        key, said = words_nan if state == NAN else words_inf
        given_to = _tensor(given, "self", "input 0")
        tests: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"negative": _below_zero, "zeros": _zero}
        if given_to is not None and key in tests and (found := _count(given_to, tests[key])):
            return Because(f"{_of(found, given_to.numel())} that it was given {'is' if found == 1 else 'are'} {said}",
                           {key: found, "values": given_to.numel()})
        result = given.get("result")
        if result is None or not key:
            return None
        found = _count(result, torch.isnan if state == NAN else torch.isinf)
        # An infinity comes of nothing else; a NaN also of a NaN.
        forced = state != NAN
        said = said if forced else f"{said}, or NaN"
        return Because(f"{_of(found, result.numel())} that it was given {'is' if found == 1 else 'are'} {said}",
                       {key: found, "values": result.numel()}, forced) if found else None
    return prove


def _outside(low: float | None, high: float | None, closed: bool = False) -> Callable[..., Because | None]:
    def prove(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
        if low is None:
            return _where(given, ("self", "input 0"), [("outside", f"below {number(high or 0)}", lambda x: x < high)])
        if high is None:
            return None

        def test(x: torch.Tensor) -> torch.Tensor:
            return (x <= low) | (x >= high) if closed else (x < low) | (x > high)
        return _where(given, ("self", "input 0"), [("outside", f"outside of {number(low)} to {number(high)}"
                                                    + (", the ends excluded" if closed else ""), test)])
    return prove


def _division(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    divisor = _tensor(given, "other", "input 1")
    if divisor is None:
        return None
    if divisor.numel() == 1 and not divisor.any():
        return Because("it divided by 0", {"zeros": 1, "values": 1})
    return _where({"other": divisor}, ("other",), [("zeros", "0", _zero)], "that it divided by")


def _power(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    exponent, base = getattr(node, "_saved_exponent", None), _tensor(given, "self", "input 0")
    if not isinstance(exponent, (int, float)) or base is None:
        return None
    exponent = float(exponent)
    raised = f"that it raised to the power of {number(exponent)}"
    conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = []
    if exponent != int(exponent):
        conditions.append(("negative", "negative", _below_zero))
    if exponent < 0:
        conditions.append(("zeros", "0", _zero))
    return _where({"self": base}, ("self",), conditions, raised)


def _exponential(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    result = given.get("result")
    dtype = dtype_of(node)
    if result is None or dtype is None or state != INF:
        return None
    limit = math.log(limit_of(dtype))
    found = _count(result, torch.isinf)
    largest = _tensor(given, "self", "input 0")
    numbers: dict[str, Any] = {"overflows": found, "values": result.numel(), "limit": round(limit, 2)}
    verb = "is" if found == 1 else "are"
    text = f"{_of(found, result.numel())} that it was given {verb} above {limit:.1f}, where exp leaves {name_of(dtype)}"
    if largest is not None and (values := values_of(largest, Budget())) is not None:
        numbers["largest"] = values.high
        text += f" (the largest: {number(values.high)})"
    return Because(text, numbers) if found else None


def _mean(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    if sizes is None or 0 not in tuple(sizes):
        return None
    return Because(f"there was nothing to take it of: its input has the shape {list(sizes)}", {"values": 0})


def _spread(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """Variance and standard deviation."""
    tensor = given.get("self")
    if tensor is None:
        return None
    correction = getattr(node, "_saved_correction", None)
    correction = 1.0 if correction is None else float(correction)
    dims = getattr(node, "_saved_dim", None)
    # Kept as unsigned: -1 is 2**64 - 1.
    dims = [d - (1 << 64) if d >= 1 << 63 else d for d in dims] if dims else range(tensor.dim())
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
    dim = dim - (1 << 64) if dim >= 1 << 63 else dim
    rows = torch.isnan(result).flatten() if result.dim() == 1 else torch.isnan(result).movedim(dim, -1)
    rows = rows.reshape(-1, result.shape[dim])
    whole, some, n = int(rows.all(1).sum()), int(rows.any(1).sum()), rows.shape[0]
    masks = [mask for name, mask in given.items() if name.startswith("mask")]
    if whole != some or not whole:
        return None
    numbers = {"rows": whole, "of": n}
    for mask in masks:
        try:
            full = int(mask.expand(result.shape).movedim(dim, -1).reshape(-1, result.shape[dim]).all(1).sum())
        except RuntimeError:
            continue
        if full == whole:
            return Because(f"in {whole:,} of its {n:,} rows everything was masked: a softmax of nothing but "
                           "-infinity", numbers)
    if whole == n:
        return None
    return Because(f"{whole:,} of its {n:,} rows are NaN from end to end and the others have none, as a row of "
                   "nothing but -infinity gives: "
                   "everything in it was masked", numbers)


def _nll(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    target, ignored = given.get("target"), getattr(node, "_saved_ignore_index", None)
    weight = given.get("total_weight")
    log_probabilities = _tensor(given, "self", "input 0")
    if target is None:
        return None
    if ignored is not None and ignored >= 1 << 63:
        ignored -= 1 << 64
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


def name_of(dtype: torch.dtype) -> str:
    return str(dtype)[6:]


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
    "Log": _log(0.0), "Log2": _log(0.0), "Log10": _log(0.0), "Log1P": _log(1.0), "Xlogy": _log(0.0),
    "Sqrt": _result_of(("negative", "negative"), ("", "")),
    "Rsqrt": _result_of(("negative", "negative"), ("zeros", "0")),
    "Reciprocal": _result_of(("", ""), ("zeros", "0")), "Div": _division, "Pow": _power, "Exp": _exponential,
    "Expm1": _exponential, "Acos": _outside(-1, 1), "Asin": _outside(-1, 1), "Atanh": _outside(-1, 1, closed=True),
    "Acosh": _outside(None, 1), "Erfinv": _outside(-1, 1, closed=True), "Logit": _outside(0, 1, closed=True),
    "Mean": _mean, "Var": _spread, "Std": _spread, "VarMean": _spread, "StdMean": _spread, "Softmax": _softmax,
    "SafeSoftmax": _softmax, "NllLoss": _nll, "NllLoss2D": _nll,
}


#: Whose proof needs to be told what became of the result, and where that is only known behind views of it.
PROVES_ALONE = {"Exp", "Expm1", "Softmax", "SafeSoftmax"}


def proof(node: Any, given: dict[str, torch.Tensor], state: str | None) -> Because | None:
    """Why its result is not finite, of what it was given and kept. `state` of the result: NAN, INF or None (not
    known)."""
    found = None if is_python(node) else _PROOFS.get(base_name(node))
    return None if found is None else found(node, given, state)


def bound(node: Any, inputs: list[float | None], given: dict[str, Values]) -> float | None:
    """No element of its result is larger in magnitude; None: not known. `inputs`: of its inputs' bounds, in their
    order, None where one is not known. `given`: values that it kept of its inputs, by name."""
    base = base_name(node)
    if is_python(node):
        return None
    if base in _ONE:
        return 1.0
    magnitudes = [values.largest for name, values in given.items()]
    if None in inputs:
        return None
    known = [b for b in inputs if b is not None]
    every = known + magnitudes
    unkept = any(behind is None for behind, _ in node.next_functions) and base in TAKES_CONSTANTS
    if unkept or not every:
        return None
    if base in ("Add", "Sub", "Rsub"):
        alpha = getattr(node, "_saved_alpha", 1)
        return sum(known) * max(1.0, abs(alpha) if isinstance(alpha, (int, float)) else math.inf)
    if base in KEEPS or base == "ToCopy":
        return max(every)
    if base in _PRODUCTS:
        width = _inner_width(node, given)
        return None if width is None else _product(every) * width + max(every)
    if base == "Mul":
        return _product(every)
    if base in ("Sum", "Cumsum"):
        sizes = getattr(node, "_saved_self_sym_sizes", None)
        return max(every) * (math.prod(sizes) if sizes is not None else _elements_of(node))
    if base == "MseLoss":
        return (2 * max(every)) ** 2 * max((v.count for v in given.values()), default=1)
    return None


def _product(magnitudes: list[float]) -> float:
    """Of two factors, of which one is known alone where they are the same tensor."""
    first, *others = sorted(magnitudes, reverse=True)
    return first * (others[0] if others else first)


def _elements_of(node: Any) -> float:
    try:
        return float(math.prod(node._input_metadata[0].shape))
    except Exception as error:
        pass_on(error)
        return math.inf


def _inner_width(node: Any, given: dict[str, Values]) -> int | None:
    """How many products are summed up."""
    for name in ("_saved_mat1_sym_sizes", "_saved_self_sym_sizes"):
        sizes = getattr(node, name, None)
        if sizes:
            return int(sizes[-1])
    counts = [values.count for values in given.values()]
    return max(counts) if counts else None


# Derivatives --------------------------------------------------------------------------------------------------------


#: Only the result was kept, which does not tell the two apart.
_BELOW = "negative, or NaN", torch.isnan


def _power_derivative(exponent: Any, given: dict[str, torch.Tensor], taken: str) -> Because | None:
    if isinstance(exponent, torch.Tensor):
        return _powers_derivative(given.get("self"), exponent, taken)
    if not isinstance(exponent, (int, float)):
        return None
    with_exponent = f", with an exponent of {number(exponent)}"
    conditions: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor]]] = []
    if exponent < 1:
        conditions.append(("zeros", "0" + with_exponent, _zero))
    if exponent != int(exponent):
        conditions.append(("negative", "negative" + with_exponent, _below_zero))
    return _where(given, ("self",), conditions, taken)


def _powers_derivative(base: torch.Tensor | None, exponent: torch.Tensor, taken: str) -> Because | None:
    """Where each value has an exponent of its own."""
    base, exponents = None if base is None else readable(base), readable(exponent)
    if base is None or exponents is None:
        return None
    for key, said, bad in (("zeros", "0, with an exponent below 1", (base == 0) & (exponents < 1)),
                           ("negative", "negative, with an exponent that is no whole number",
                            (base < 0) & (exponents != exponents.round()))):
        if found := int(bad.sum()):
            return Because(f"{_of(found, bad.numel())} {taken} {'is' if found == 1 else 'are'} {said}",
                           {key: found, "values": bad.numel()})
    return None


def derivative_proof(node: str, exponent: Any, given: dict[str, torch.Tensor]) -> Because | None:
    """Why the derivative is not finite at what was kept. `node`: a base name."""
    taken = "that its derivative was taken at"

    def at(names: tuple[str, ...], key: str, said: str, test: Callable[[torch.Tensor], torch.Tensor],
           what: str = taken) -> Because | None:
        return _where(given, names, [(key, said, test)], what)

    if node == "Sqrt":
        return _where(given, ("result",), [("zeros", "0", _zero), ("negative", *_BELOW)], taken)
    if node == "Rsqrt":
        return _where(given, ("result",), [("zeros", "0", torch.isinf), ("negative", *_BELOW)], taken)
    if node == "Reciprocal":
        return _where(given, ("result",), [("zeros", "0", torch.isinf)], taken)
    if node == "Pow":
        return _power_derivative(exponent, given, taken)
    if node in ("Log", "Log2", "Log10", "Xlogy"):
        return at(("self",), "zeros", "0", _zero)
    if node == "Log1P":
        return at(("self",), "at_pole", "-1", lambda x: x == -1)
    if node == "Div":
        return at(("other",), "zeros", "0", _zero, "that it divided by")
    if node in ("Acos", "Asin", "Atanh", "Erfinv"):
        # Outside of them atanh has a derivative all the same.
        outside = ("outside", "outside of -1 to 1", lambda x: x.abs() > 1)
        ends = ("at_ends", "-1 or 1", lambda x: x.abs() == 1)
        return _where(given, ("self",), [ends] if node == "Atanh" else [ends, outside], taken)
    if node == "Acosh":
        # Below -1 it has a derivative all the same.
        return _where(given, ("self",), [("at_ends", "-1 or 1", lambda x: x.abs() == 1),
                                         ("outside", "between -1 and 1", lambda x: x.abs() < 1)], taken)
    if node == "Atan2":
        y, x = given.get("self"), given.get("other")
        if y is None or x is None:
            return None
        found = int(((y == 0) & (x == 0)).sum())
        return Because(f"{counted(found, 'pair')} that its derivative was taken at {'is' if found == 1 else 'are'} "
                       "(0, 0)",
                       {"zeros": found}) if found else None
    if node == "Logit":
        return _where(given, ("self",), [("at_ends", "0 or 1", lambda x: (x == 0) | (x == 1)),
                                         ("outside", "outside of 0 to 1", lambda x: (x < 0) | (x > 1))], taken)
    if node in ("Exp", "Expm1"):
        return _where(given, ("result",), [("overflows", "beyond what exp can hold: its result is infinite "
                                                         "there", torch.isinf)], taken)
    return None


#: Whose derivative is not finite somewhere, although their results are.
SINGULAR = {"Sqrt", "Rsqrt", "Reciprocal", "Pow", "Log", "Log2", "Log10", "Log1P", "Xlogy", "Div", "Acos", "Asin",
            "Atanh", "Acosh", "Atan2", "Erfinv", "Logit", "Exp", "Expm1"}
#: What of a node tells.
DERIVATIVE_OF = {"Sqrt": ("result",), "Rsqrt": ("result",), "Reciprocal": ("result",), "Div": ("other",),
                 "Pow": ("self", "exponent"),
                 "Atan2": ("self", "other"), "Exp": ("result",), "Expm1": ("result",)}
