"""What operations can do to numbers, by the names of their nodes without `Backward0`, and what they are called.

`bound` says how large a result can be at most.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from ...guard import pass_on
from .graph import VIEWS, base_name, is_python
from .values import Values

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
                   "IndexPut", "IndexAdd", "Scatter", "Remainder", "Fmod"}
#: Whose result is infinite for no other reason than its size, if what they were given is finite.
ADDS_AND_MULTIPLIES = _PRODUCTS | {"Add", "Sub", "Rsub", "Mul", "Sum", "Cumsum", "Mean", "MseLoss", "Addcmul", "Prod",
                                   "Cumprod", "I0"}
#: Of what these add to their product nothing is kept: a mask of attention, a bias.
ADD_TO_A_PRODUCT = {"Addmm", "Baddbmm", "Addbmm", "Addmv"}
#: What leaves -infinity out, and gives NaN where there is nothing else.
LEAVES_OUT = {"Softmax", "SafeSoftmax", "LogSoftmax"}
#: What puts an infinity on purpose, so that a softmax leaves it out.
MASKS = {"MaskedFill", "Where", "Add", "ConstantPadNd", "MaskedScatter", "Sub"}
#: Of these the ones that put a value of the script's own there.
PUTS = {"MaskedFill", "ConstantPadNd", "MaskedScatter", "Fill"}
#: What a mask is put for: these leave a class of probability 0 out, or are not asked for it.
CHOOSES = {"Softmax", "SafeSoftmax", "LogSoftmax", "NllLoss", "NllLoss2D"}

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
          "CheckpointFunction": "a checkpointed segment", "LinalgVectorNorm": "norm", "LinalgSlogdet": "slogdet",
          "LinalgSolveEx": "solve", "LinalgInvEx": "inv", "SpecialEntr": "entr", "SpecialNdtri": "ndtri",
          "SpecialLogNdtr": "log_ndtr", "SpecialXlog1Py": "xlog1py", "WeightNormInterface": "weight_norm",
          "LinalgEigh": "eigh", "LinalgSvd": "svd"}
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


def results_of(node: Any) -> int:
    return len(getattr(node, "_input_metadata", ())) or 1


def adds_unkept(node: Any) -> bool:
    """To a product something that has no gradient and is not kept."""
    base = base_name(node)
    if base in ADD_TO_A_PRODUCT:
        return bool(node.next_functions[0][0] is None)
    return base == "Convolution" and getattr(node, "_saved_bias_sym_sizes_opt", None) is not None \
        and node.next_functions[2][0] is None


def words(node: Any) -> str:
    """The same in a sentence."""
    base = base_name(node)
    if is_python(node) and base not in _WORDS:
        return f"the custom function {base}"
    return _WORDS.get(base) or short(node)


def bound(node: Any, inputs: list[float | None], given: dict[str, Values],
          kept: dict[str, torch.Tensor]) -> float | None:
    """No element of its result is larger in magnitude; None: not known. `inputs`: of its inputs' bounds, in their
    order, None where one is not known. `given`: values that it kept of its inputs, by name; `kept`: all tensors that
    it kept."""
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
        width = _inner_width(node, given, kept)
        return None if width is None else _product(every) * width + max(every)
    if base == "Mul":
        return _product(every)
    if base == "Pow":
        return _power_of(getattr(node, "_saved_exponent", None), max(every))
    if base == "Div":
        divisor = given.get("other")
        return known[0] / divisor.largest if divisor and divisor.count == 1 and divisor.largest and known else None
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


def _power_of(exponent: Any, magnitude: float) -> float | None:
    """Of one that is whole and not negative; others may give NaN."""
    if not isinstance(exponent, (int, float)) or exponent < 0 or exponent != int(exponent):
        return None
    try:
        return float(magnitude ** exponent)
    except OverflowError:
        return math.inf


def _elements_of(node: Any) -> float:
    try:
        return float(math.prod(node._input_metadata[0].shape))
    except Exception as error:
        pass_on(error)
        return math.inf


def _inner_width(node: Any, given: dict[str, Values], kept: dict[str, torch.Tensor]) -> int | None:
    """How many products are summed up."""
    for name in ("_saved_mat1_sym_sizes", "_saved_self_sym_sizes"):
        sizes = getattr(node, name, None)
        if sizes:
            return int(sizes[-1])
    if "batch1" in kept:
        return int(kept["batch1"].shape[-1])
    counts = [values.count for values in given.values()]
    return max(counts) if counts else None
