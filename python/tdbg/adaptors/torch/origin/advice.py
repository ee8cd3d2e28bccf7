"""What to do about an origin: one clause in the imperative, by what it is and what it was found to be given."""

from __future__ import annotations

from .birth import BUFFER, CONSTANT, INPUT, LABEL, OPERATION, PARAMETER, Birth

_GUARD_A_LOG = "take log_softmax or logsigmoid of the scores, or clamp what log is given from below (1e-7)"
_DIVISOR = "add a small number to the divisor, or leave those elements out before the division"
_CHOOSE_BEFORE = "; a where behind it does not help: the derivative is taken all the same"
_ABOVE_ZERO = "clamp what it is given above 0 (1e-6)"
_SUM_LOGARITHMS = "add up logarithms in place of multiplying, or scale down what it is given"
_UNMASK = "leave one element of each row unmasked, or mask with torch.finfo(dtype).min and not -inf"
_LOOK_AT_MASK = ("look at what was added to the scores: a mask must leave one element of each row, and neither it nor "
                 "a bias may hold NaN or +infinity")
_ENDS = "clamp what it is given to a little inside of its ends (1e-6)"

#: (operation, what was found of it: a key of `numbers`) -> what to do. Of a result, `forward`.
_FORWARD = {
    ("log", "zeros"): _GUARD_A_LOG,
    ("log2", "zeros"): _GUARD_A_LOG,
    ("log10", "zeros"): _GUARD_A_LOG,
    ("xlogy", "zeros"): _GUARD_A_LOG,
    ("sqrt", "negative"): "clamp what it is given at 0, or look for what makes it negative",
    ("rsqrt", "negative"): "clamp what it is given above 0, or look for what makes it negative",
    ("rsqrt", "zeros"): _DIVISOR,
    ("reciprocal", "zeros"): _DIVISOR,
    ("div", "zeros"): _DIVISOR,
    ("addcdiv", "zeros"): _DIVISOR,
    ("fmod", "zeros"): _DIVISOR,
    ("remainder", "zeros"): _DIVISOR,
    ("pow", "negative"): "clamp what is raised at 0: a negative number has no real power that is not whole",
    ("pow", "zeros"): "clamp what is raised above 0: a negative power divides by it",
    ("exp", "overflows"): "subtract the largest value first, as softmax and logsumexp do, or clamp what exp is given",
    ("pow", "largest"): "clamp what it is given",
    ("i0", "largest"): "take i0e, which is scaled, or clamp what it is given",
    ("prod", "largest"): _SUM_LOGARITHMS,
    ("cumprod", "largest"): _SUM_LOGARITHMS,
    ("digamma", "at_pole"): _ABOVE_ZERO,
    ("lgamma", "at_pole"): _ABOVE_ZERO,
    ("polygamma", "at_pole"): _ABOVE_ZERO,
    ("softmax", "rows"): _UNMASK,
    ("log_softmax", "rows"): _UNMASK,
    ("softmax", "nan_rows"): _LOOK_AT_MASK,
    ("log_softmax", "nan_rows"): _LOOK_AT_MASK,
    ("ctc_loss", "too_long"): "leave such samples out, or give it zero_infinity=True",
    ("batch_norm", "running"): "look at what wrote to its running variance",
    ("nll_loss", "ignored"): "leave such a batch out, or sum the losses and divide by max(count, 1)",
    ("nll_loss", "labels_at_zero"): "look at the labels and at the mask: they contradict each other",
    ("median", "values"): "leave an empty selection out before the median is taken",
    ("weight_norm", "zeros"): "look at what made a row of the weight 0: an initialisation, or a pruning",
    ("mean", "values"): "leave an empty selection out before the mean is taken",
    ("var", "correction"): "take it of more than one value, or with correction=0",
    ("std", "correction"): "take it of more than one value, or with correction=0",
    ("var_mean", "correction"): "take it of more than one value, or with correction=0",
    ("std_mean", "correction"): "take it of more than one value, or with correction=0",
}
#: The same of whatever operation it is.
_OF_ANY = {
    "overflows": "clamp what it is given",
    "elements": "leave such a batch out, or sum the losses and divide by max(count, 1)",
    "infinite": "give what was masked no share in the loss (smoothed labels, targets, sums), or mask with -1e4 and not "
                "-inf",
    "singular": "add a small number to its diagonal: A + 1e-6 * I",
    "variances": "give it an eps above 0 (1e-5)",
    "negative": "look for what makes its argument negative",
}
#: What was found to be so large that no operation is to blame.
_TOO_LARGE = {
    "at_first": "look at how that parameter is initialised, or at what was loaded into it",
    "largest_parameter": "lower the learning rate, or clip gradients: what it is given has grown",
    "largest_input": "look at what makes the batch, or scale it: no input should be that large",
}
#: The same of a derivative, `backward`: the value is finite there, and its slope is not.
_BACKWARD = {
    ("sqrt", "zeros"): "add a small number below the root: sqrt(x + 1e-12)",
    ("rsqrt", "zeros"): "add a small number below the root: rsqrt(x + 1e-12)",
    ("pow", "zeros"): "add a small number to what is raised: (x + 1e-12) ** p",
    ("pow", "negative"): "clamp what is raised above 0" + _CHOOSE_BEFORE,
    ("log", "zeros"): "clamp what log is given from below (1e-7)" + _CHOOSE_BEFORE,
    ("log2", "zeros"): "clamp what it is given from below (1e-7)" + _CHOOSE_BEFORE,
    ("log10", "zeros"): "clamp what it is given from below (1e-7)" + _CHOOSE_BEFORE,
    ("xlogy", "zeros"): "clamp what log is given from below (1e-7)" + _CHOOSE_BEFORE,
    ("div", "zeros"): "replace the zeros before it divides" + _CHOOSE_BEFORE,
    ("reciprocal", "zeros"): "replace the zeros before it divides" + _CHOOSE_BEFORE,
    ("exp", "overflows"): "clamp what exp is given" + _CHOOSE_BEFORE,
    ("expm1", "overflows"): "clamp what it is given" + _CHOOSE_BEFORE,
    ("pow", "nan"): "leave those elements out before" + _CHOOSE_BEFORE,
    ("mul", "nan"): "leave those elements out before" + _CHOOSE_BEFORE,
    ("logaddexp", "infinite"): "mask with -1e4 and not -inf" + _CHOOSE_BEFORE,
    ("eigh", "repeated"): "add a little noise to the matrix, or leave its eigenvectors out of the loss",
    ("svd", "repeated"): "add a little noise to the matrix, or leave its singular vectors out of the loss",
    ("entr", "zeros"): "clamp what it is given from below (1e-7)",
    ("hypot", "zeros"): "add a small number to one of its arguments",
}
_LOOK = "look at what it was given: tdbg replay brings that step back"
_SIXTEEN_BITS = ("float16", "bfloat16")


def advice(birth: Birth, direction: str, made_by: str = "") -> str:
    """What a person does next; "" only where the origin was not seen.

    :param direction: "forward" (the loss is not finite) or "backward" (a gradient is not, the loss is)
    :param made_by: of a parameter, who made it so, or what was found of its update (docs/format.md, `update`: `by`,
        `found`)
    """
    if birth.what == OPERATION:
        return _of_operation(birth, direction)
    if direction == "backward" and birth.what == LABEL:
        return "leave out what has no label before the loss is computed: behind it its derivative is taken all the same"
    if birth.what == PARAMETER:
        return {
            "update": "lower the learning rate, or clip gradients; look at what the script itself writes to it",
            "initial": "look at how it is initialised, or at what was loaded into it",
            "rate": "look at what computes the learning rate",
            "eps": "give the optimizer an eps that its type holds (1e-4 in float16), or keep the weights in float32",
            "state": "look at what was loaded into the optimizer, or at what writes to its state",
        }.get(made_by, "look at what writes to it")
    return {
        INPUT: "look for missing values, a division by a deviation of 0 or a logarithm of 0 in what makes the batch",
        LABEL: "look at where the labels come from: missing values, or a transformation of them",
        BUFFER: "look at what writes to it: running statistics take over whatever one batch brings",
        CONSTANT: "look at what the script computes without a gradient and gives to it",
    }.get(birth.what, "")


def _of_operation(birth: Birth, direction: str) -> str:
    for found, said in _TOO_LARGE.items():
        if found in birth.numbers:
            return said
    table = _BACKWARD if direction == "backward" else _FORWARD
    for (operation, found), said in table.items():
        if operation == birth.operation and found in birth.numbers:
            return said
    if {"outside", "at_ends", "below_domain", "at_pole"} & birth.numbers.keys():
        return _ENDS
    for found, said in _OF_ANY.items():
        if found in birth.numbers:
            return said
    dtype = birth.numbers.get("dtype")
    if dtype in _SIXTEEN_BITS:
        other = "bfloat16 or float32" if dtype == "float16" else "float32"
        return f"compute it in {other}, or scale down what it is given"
    if "largest" in birth.numbers and "limit" in birth.numbers:
        return ("scale down what it is given; where it has grown from step to step, lower the learning rate, or clip "
                "gradients")
    return _LOOK
