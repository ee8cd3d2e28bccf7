"""What a model predicts, against what it is compared with: numbers of the two tensors that a loss function is given.

    context/targets/...      mean, std, between (the deviation over rows, as a mean over columns), guess (the loss if
                             every row were predicted as the best constant row)
    context/predictions/...  mean, std, between; loss (beside `guess`: of the same rows, in the same measure);
                             correlation (of predictions with targets, over rows: 0 where they have nothing to do with
                             each other)
    topic predictions        which function, whether a row is a single number, and whether the script computes the loss
                             by itself (own_looks.py)

A row is what lies along the first axis that has more than one. Of at most ROWS rows and ELEMENTS elements, evenly
spread, so that a look costs the same however large the tensors are.

`guess` and `loss` are means in the function's own measure: of squared errors the variance over rows (unbiased); of
absolute ones and Huber's they are taken of the distance from the mean, which is no less than that from the median. They
are not told where elements are weighted or returned one by one: some may be left out afterwards. What a binary cross
entropy is given becomes a probability, whose measure is the squared error.

Of a loss for classes `between` and `std` of predictions are those of logits less the row's mean, of CLASS_ROWS rows;
the rest is of probabilities against ones and zeros, and only told of labels in host memory, of at most CLASSES classes.

Host memory is read in C (python/src/comparison.cc): the forty operations that a device does here would take a small
training two percent of its time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tdbg import _capture

ROWS = 256
ELEMENTS = 4096
CLASS_ROWS = 64
CLASSES = 128           # of more every so many are looked at, and no probabilities are told
LARGE = 1 << 20         # elements that may be copied where rows do not lie in one piece
#: Whose logits are looked at.
CLASSIFY = ("cross_entropy", "nll_loss")
#: Whose second argument is 0 and 1, or a probability.
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
#: That compare two tensors element by element, and broadcast what differs in shape.
MEASURES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
#: Whose second argument is classes.
CLASSIFIES = frozenset((*CLASSIFY, "multi_margin_loss"))
#: Whose arguments are looked at.
COMPARED = CLASSIFIES.union(BINARY, MEASURES)
_TINY = 1e-30
_SQUARED = 0
#: As comparison.h numbers them.
_COUNTED = {"mse_loss": _SQUARED, "l1_loss": 1, "huber_loss": 2, "smooth_l1_loss": 3, "binary_cross_entropy": _SQUARED,
            "binary_cross_entropy_with_logits": 4}
_OF_ELEMENTS = ("targets/mean", "targets/std", "targets/between", "predictions/mean", "predictions/std",
                "predictions/between", "predictions/correlation", "targets/guess", "predictions/loss")
_OF_CLASSES = ("predictions/between", "predictions/std", "targets/between", "predictions/correlation", "targets/guess",
               "predictions/loss")
_GUESSED = 2            # of both lists the last ones, which are not told where elements may be left out

#: Places of arguments that are given by place: (weight, ignore_index, reduction, beta or delta, pos_weight)
_PLACES = {
    "mse_loss": (5, None, 4, None, None), "l1_loss": (5, None, 4, None, None),
    "smooth_l1_loss": (None, None, 4, 5, None), "huber_loss": (4, None, 2, 3, None),
    "binary_cross_entropy": (2, None, 5, None, None), "binary_cross_entropy_with_logits": (2, None, 5, None, 6),
    "cross_entropy": (2, 4, 6, None, None), "nll_loss": (2, 4, 6, None, None),
}
_NAMES = ("weight", "ignore_index", "reduction", None, "pos_weight")


class Options(NamedTuple):
    """How a loss function was called."""
    ignored: Any = None         # the label that it leaves out, if the caller said
    masked: bool = False        # of a binary one: labels that are missing, which are any number, may be left out of it
    plain: bool = True          # all elements count, and count the same
    width: float = 1.0          # up to which a Huber loss is a squared one


def options_of(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Options:
    places = _PLACES.get(function)
    if places is None:
        return Options()

    def given(which: int, name: str | None) -> Any:
        place = places[which]
        if place is not None and len(args) > place:
            return args[place]
        return kwargs.get(name) if name is not None else None

    weight, ignored, reduction, _, positive = (given(i, name) for i, name in enumerate(_NAMES))
    width = given(3, "delta" if function == "huber_loss" else "beta")
    single = reduction == "none" or kwargs.get("reduce") is False
    weighted = weight is not None and function not in CLASSIFY
    plain = not (single or weighted or positive is not None)
    return Options(ignored, function in BINARY and (single or weighted), plain,
                   float(width) if isinstance(width, (int, float)) else 1.0)


def evenly(size: int, most: int) -> int:
    """Every how manyth: an odd number, as lengths of sequences have many divisors of two, and the first token of each
    is the same."""
    return 1 if size <= most else -(-size // most) | 1


def part(x: torch.Tensor) -> torch.Tensor | None:
    """Rows by columns; rows alone, where a row is a number."""
    dims = x.dim()
    if dims and 1 < x.shape[0] <= ROWS and (dims == 1 or (dims == 2 and x.numel() <= ELEMENTS)):
        return x
    axis = 0
    while axis < x.dim() - 1 and x.shape[axis] == 1:
        axis += 1
    if x.dim() == 0 or x.shape[axis] < 2:
        return None
    x = x.reshape(x.shape[axis:])
    x = x[:: evenly(x.shape[0], ROWS)]
    if x.dim() > 2 and not x[0].is_contiguous() and x.numel() > LARGE:
        return None
    x = x.reshape(x.shape[0], -1)
    return x[:, :: evenly(x.shape[1], ELEMENTS // x.shape[0])]


def _class_rows(given: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Some rows over the classes, and what they are compared with."""
    if given.dim() == 2:
        step = evenly(given.shape[0], CLASS_ROWS)
        return given[::step], target[::step]
    if given.dim() < 3 or not given.is_contiguous() or target.dim() != given.dim() - 1 or not target.is_contiguous():
        return None
    given, target = given.flatten(2), target.flatten(1)
    samples = evenly(given.shape[0], 8)
    given, target = given[::samples], target[::samples]
    places = evenly(given.shape[2], max(1, CLASS_ROWS // given.shape[0]))
    given, target = given[:, :, ::places], target[:, ::places]
    return given.movedim(1, 2).reshape(-1, given.shape[1]), target.reshape(-1)


def _measure(function: str, apart: torch.Tensor, width: float) -> torch.Tensor:
    """The mean over elements of what the function makes of a difference."""
    if function in ("smooth_l1_loss", "huber_loss") and width > 0:
        size = apart.abs()
        near = size.clamp(max=width)
        mean = (near * (size - near / 2)).mean()
        return mean / width if function == "smooth_l1_loss" else mean
    if function in ("l1_loss", "smooth_l1_loss"):
        return apart.abs().mean()
    return (apart * apart).mean()


def _together(function: str, given: torch.Tensor, target: torch.Tensor, options: Options) -> dict[str, Any]:
    """Of rows by columns, of one floating type."""
    rows, columns = given.shape
    both = torch.cat((given, target), 1)
    middle = both.mean(0)
    apart = both - middle
    lengths = torch.linalg.vector_norm(apart, dim=0).view(2, columns)
    between = lengths.mean(1) / math.sqrt(rows - 1)
    squares = (lengths * lengths).sum(1)
    spread, mean = torch.var_mean(middle.view(2, columns), 1, correction=0)
    std = (squares / (rows * columns) + spread).sqrt()
    products = (apart[:, :columns] * apart[:, columns:]).sum()
    norms = squares.sqrt()
    found = {
        "targets/mean": mean[1], "targets/std": std[1], "targets/between": between[1],
        "predictions/mean": mean[0], "predictions/std": std[0], "predictions/between": between[0],
        "predictions/correlation": products / (norms[0] * norms[1] + _TINY),
    }
    if options.plain:
        if function in ("l1_loss", "smooth_l1_loss", "huber_loss"):
            unbiased = apart[:, columns:] * math.sqrt(rows / (rows - 1))
            found["targets/guess"] = _measure(function, unbiased, options.width)
        else:
            found["targets/guess"] = squares[1] / ((rows - 1) * columns)
        found["predictions/loss"] = _measure(function, given - target, options.width)
    return found


def _layout(x: torch.Tensor) -> tuple[int, int]:
    return (x.stride(0), 0 if x.dim() == 1 else x.stride(1))


def _read_elements(function: str, given: torch.Tensor, target: torch.Tensor, options: Options) -> dict[str, Any]:
    """Of two parts in host memory."""
    if given.dtype != target.dtype or given.dtype not in (torch.float32, torch.float64):
        kind = torch.float64 if torch.float64 in (given.dtype, target.dtype) else torch.float32
        given, target = given.to(kind), target.to(kind)
    columns = 1 if given.dim() == 1 else given.shape[1]
    values = _capture.compare_elements(_COUNTED.get(function, _SQUARED), options.width, given.data_ptr(),
                                       target.data_ptr(), given.dtype == torch.float64, given.shape[0], columns,
                                       _layout(given), _layout(target))
    return dict(zip(_OF_ELEMENTS, values if options.plain else values[:-_GUESSED]))


def _read_classes(logits: torch.Tensor, labels: torch.Tensor, whole: bool, options: Options,
                  ignored: int) -> dict[str, Any]:
    """Of some rows in host memory. `whole`: of all classes."""
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    rows, classes = logits.shape
    values = _capture.compare_classes(logits.data_ptr(), logits.dtype == torch.float64, rows, classes, _layout(logits),
                                      labels.data_ptr(), labels.stride(0), ignored, whole)
    found = dict(zip(_OF_CLASSES, values))
    if not options.plain:
        for name in _OF_CLASSES[-_GUESSED:]:
            found.pop(name, None)
    return found


def _of_elements(function: str, given: torch.Tensor, target: torch.Tensor, options: Options) -> dict[str, Any]:
    if given.shape != target.shape or given.device != target.device or not target.is_floating_point():
        return {}
    if target.requires_grad and not given.requires_grad:
        given, target = target, given       # of a squared error it is all the same which comes first
    given, target = given.detach(), target.detach()
    predicted, wanted = part(given), part(target)
    if predicted is None or wanted is None:
        return {}
    if given.device.type == "cpu":
        return _read_elements(function, predicted, wanted, options)
    one, other = (part.float().reshape(part.shape[0], -1) for part in (predicted, wanted))
    if function == "binary_cross_entropy_with_logits":
        one = one.sigmoid()
    return _together(function, one, other, options)


def _of_classes(given: torch.Tensor, target: torch.Tensor, options: Options, ignored: int) -> dict[str, Any]:
    if given.dim() < 2 or given.shape[1] < 2 or target.device != given.device:
        return {}
    soft = target.is_floating_point()
    if soft and (given.dim() > 2 or target.shape != given.shape):
        return {}
    rows = _class_rows(given.detach(), target.detach())
    if rows is None:
        return {}
    logits, labels = rows
    classes = given.shape[1]
    whole = classes <= CLASSES
    logits = logits[:, :: evenly(classes, CLASSES)] if not whole else logits
    if given.device.type == "cpu" and labels.dtype == torch.int64:
        return _read_classes(logits, labels, whole, options, ignored)
    logits = logits.float()
    if logits.shape[0] < 2:
        return {}
    apart = logits - logits.mean(1, keepdim=True)
    found = {"predictions/between": torch.var(apart, 0, correction=1).sqrt().mean(),
             "predictions/std": (apart * apart).mean().sqrt()}
    if not soft or not whole:
        return found
    of_probabilities = _together("cross_entropy", logits.softmax(1), labels.float(), options)
    return found | {name: of_probabilities[name] for name in _OF_CLASSES[2:] if name in of_probabilities}


def compare(function: str, given: torch.Tensor, target: torch.Tensor, options: Options, ignored: int) -> dict[str, Any]:
    """The numbers of a look by their names, of a device as tensors; empty where there is nothing to compare."""
    if function in CLASSIFY:
        return _of_classes(given, target, options, ignored)
    return _of_elements(function, given, target, options)
