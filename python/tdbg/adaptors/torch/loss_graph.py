"""What lies between the last layer and what is differentiated: facts of torch's graph, in the first LOOKS steps.

    context/loss_graph/<fact>       1 at a step at which it was seen, 0 at a later one at which it was not
    context/loss_graph/constant     how much of what is differentiated is a number without a gradient
    topic loss_graph                {<fact>: what is told of it}

Facts are softmax_over_batch and softmax_of_one (along which axis, of which shape), not_logits (what a loss function was
given, where its graph or its values say that it is none of what it takes), out_of_reach (targets that the last layer's
function cannot give: its range, theirs, and which share of them), pairs (each prediction is compared with each target,
in a loss that the script computes by itself: both shapes). `constant` is there where what is differentiated is a
sum of nothing but results of torch's loss functions and of what has no graph.

Only one path is followed, whose nodes have one input that is differentiated each (a sum of terms has several). Names
and sizes are read; of what the graph keeps only differences, where no hook unpacks them (own_losses.py): a checkpoint
would compute that again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .graph import is_captured, name_of, shape_of, signed
from .own_losses import Pairs, are_pairs, differences, pairs_of, root_of
from .params import unreadable
from .predictions import MEASURES

if TYPE_CHECKING:
    from .session import Session

LOOKS = 10
NODES = 64              # of one walk
LAYERS_IN = 6           # nodes between a softmax and the layer before it
VALUES = 1 << 16        # of what a function is given
OUTSIDE = 0.05          # share of targets
MARGIN = 0.1            # of the range

#: What keeps elements and their order, and most of it the shape.
_SAME = ("ToCopy", "Clone", "Alias")
_SHAPES = ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Slice", "Select")
_SCALES = ("Div", "Mul", "Add", "Sub", "Neg")
#: Between the loss and the softmax that it is computed of.
_OF_LOSSES = ("NllLoss", "NllLoss2D", "BinaryCrossEntropy", "MseLoss", "SmoothL1Loss", "HuberLoss")
_CLAMPS = ("Clamp", "ClampMin", "ClampMax")
_ABOVE = (*_SAME, *_SHAPES, *_SCALES, *_CLAMPS, *_OF_LOSSES, "Mean", "Sum", "Log", "Gather", "Index", "Pow", "Abs")
#: Behind these a softmax is what is scored. Behind a product it may be what parts of a bag are weighted with.
_SCORES = frozenset((*_OF_LOSSES, "Log", "Pow", "Abs"))
_ALSO = frozenset((*_SAME, *_SHAPES, *_CLAMPS, "Add", "Sub", "Neg"))
_LAYERS = frozenset(("Addmm", "Mm", "Linear", "Convolution"))

#: By what a function of torch gave: the least and the most.
_RANGES: dict[str, tuple[float, float]] = {
    "Relu": (0.0, float("inf")), "Sigmoid": (0.0, 1.0), "Hardsigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0),
    "Softmax": (0.0, 1.0), "Softplus": (0.0, float("inf")),
}
_WORDS = {"Relu": "ReLU", "Sigmoid": "sigmoid", "Hardsigmoid": "sigmoid", "Tanh": "tanh", "Softmax": "softmax",
          "Softplus": "softplus"}
#: What each takes logits or logarithms of, and is given cut off.
_CUT = {
    "cross_entropy": frozenset(("Relu", "Sigmoid", "Hardsigmoid", "Tanh", "Softplus")),     # of a softmax: data.py
    "binary_cross_entropy_with_logits": frozenset(("Relu", "Softmax", "Softplus")),
    "kl_div": frozenset(("Relu", "Sigmoid", "Hardsigmoid", "Softmax", "Softplus")),
}
FUNCTIONS = frozenset((*_CUT, *MEASURES))
_RETURNED = "tdbg.returned"     # among a node's notes: the number that a loss function returned


def _inputs(node: Any) -> list[Any]:
    """Those that are differentiated."""
    return [behind for behind, _ in node.next_functions if behind is not None]


def _axis(node: Any, rank: int) -> int:
    axis = signed(node._saved_dim)
    return axis + rank if axis < 0 else axis


def _softmaxes(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Iterator[Any]:
    """Those that what is differentiated is computed of, without a layer between."""
    given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
    todo = [(t.grad_fn, "") for t in given if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    for _ in range(NODES):
        if not todo:
            return
        node, last = todo.pop()
        name = name_of(node)
        if name == "LogSoftmax" or (name == "Softmax" and last in _SCORES):
            yield node
        elif name in _ABOVE:
            behind = _inputs(node)
            if len(behind) == 1 or name in ("Add", "Sub"):
                todo += [(one, last if name in _ALSO else name) for one in behind]


def _is_parameter(node: Any) -> bool:
    """Is it a parameter that arrives here, transposed or in another type?"""
    for _ in range(4):
        name = name_of(node)
        if name.endswith("AccumulateGrad"):
            return True
        behind = _inputs(node)
        if name not in ("T", "Transpose", "ToCopy") or len(behind) != 1:
            return False
        node = behind[0]
    return False


def _behind_a_layer(node: Any) -> bool:
    """Is it given what a layer with a weight gave, in its shape? A matrix of likenesses has rows on both sides."""
    for _ in range(LAYERS_IN):
        behind = [one for one in _inputs(node) if not _is_parameter(one)]
        name = name_of(node)
        if name in _LAYERS:
            return any(map(_is_parameter, _inputs(node)))
        if len(behind) != 1 or name not in (*_SAME, *_SCALES, "Softmax", "LogSoftmax"):
            return False
        node = behind[0]
    return False


def _cut_by(node: Any) -> str:
    """The function that gave what a node gives, "" where that is none of those that have a range."""
    for _ in range(LAYERS_IN):
        if node is None:
            return ""
        name = name_of(node)
        if name in _RANGES:
            return name
        behind = _inputs(node)
        if name not in (*_SAME, *_SHAPES) or len(behind) != 1:
            return ""
        node = behind[0]
    return ""


def _readable(tensor: Any, *devices: str) -> bool:
    """Of the host, or one of `devices`."""
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and unreadable(tensor) is None
            and tensor.layout is torch.strided and tensor.device.type in ("cpu", *devices)
            and tensor.is_floating_point() and tensor.numel() > 0)


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of it, VALUES of them or so."""
    rows = max(1, VALUES * len(tensor) // tensor.numel()) if tensor.dim() else 1
    return (tensor[:rows] if tensor.dim() else tensor).detach().float()


def _no_logarithms(given: torch.Tensor) -> bool:
    """Can these be no logarithms of probabilities?"""
    some = _some(given)
    return bool(some.max() > 0) and (bool(some.min() >= 0) or bool((some > 1e-3).float().mean() > 0.01))


def _returned(node: Any) -> float | None:
    notes = getattr(node, "metadata", None)
    return notes.get(_RETURNED) if isinstance(notes, dict) else None


def _terms(node: Any) -> tuple[list[float | None], bool]:
    """What is summed to it: numbers that loss functions returned, None of all else; and whether anything without a
    gradient is."""
    found: list[float | None] = []
    todo, without = [node], False
    while todo and len(found) < NODES:
        node = todo.pop()
        value = _returned(node)
        if value is not None or name_of(node) != "Add":
            found.append(value)
            continue
        without |= any(behind is None for behind, _ in node.next_functions)
        todo += _inputs(node)
    return found, without


def _on_host(value: Any) -> bool:
    return (type(value) is torch.Tensor and value.device.type == "cpu" and value.numel() == 1
            and unreadable(value) is None)


class LossGraph:
    """Of one session. `due`: this step is looked at."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0
        self._told: dict[str, Any] = {}         # fact -> what is told of it, as it was seen first
        self._seen: set[str] = set()            # in the step at hand
        self._late: dict[str, torch.Tensor] = {}    # of facts of a device's values: 1 or 0, once they are there
        self._constant: float | None = None

    def give_up(self) -> None:
        self.due = False

    def differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor], rows: int) -> None:
        """A backward is about to run. `rows`: of the model's first input."""
        whole = tensors if isinstance(tensors, torch.Tensor) else tensors[0] if len(tensors) == 1 else None
        if whole is not None and _on_host(whole) and whole.grad_fn is not None:
            self._without_gradient(whole)
        for node in _softmaxes(tensors):
            shape = shape_of(node)
            axis = _axis(node, len(shape)) if shape else 0
            if not shape or not 0 <= axis < len(shape) or not _behind_a_layer(node):
                continue
            over = {"function": "log_softmax" if name_of(node) == "LogSoftmax" else "softmax", "shape": list(shape)}
            if shape[axis] == 1:
                self._see("softmax_of_one", over)
            elif axis == 0 and len(shape) in (2, 4) and shape[0] == rows and shape[1] > 1:
                self._see("softmax_over_batch", over)
        for difference in differences(root_of(tensors)):
            pairs = pairs_of(difference, rows)
            if pairs is not None:
                self._compared_in_pairs(pairs)
                break

    def returned(self, result: Any) -> None:
        """A loss function returned `result` in a training."""
        notes = getattr(result.grad_fn, "metadata", None)       # which live as long as the graph, and do not hold it
        if isinstance(notes, dict) and _on_host(result):
            notes[_RETURNED] = result.item()

    def compared(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A loss function of FUNCTIONS was given these in a training."""
        given = args[0] if args else kwargs.get("input")
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if not isinstance(given, torch.Tensor) or not isinstance(target, torch.Tensor):
            return
        cut = _cut_by(given.grad_fn)
        if function in MEASURES:
            if cut:
                self._range(cut, given, target)
            return
        if function == "cross_entropy" and given.dim() < 2:
            return
        if cut in _CUT[function]:
            self._see("not_logits", {"function": function, "given": _WORDS[cut]})
        elif function == "kl_div":
            if _readable(given) and _no_logarithms(given):
                self._see("not_logits", {"function": function, "given": "numbers above 0"})
            elif kwargs.get("log_target") and _readable(target) and _no_logarithms(target):
                self._see("not_logits", {"function": function, "given": "targets above 0 with log_target"})

    def reached(self, node: Any, given: torch.Tensor, target: torch.Tensor) -> None:
        """A loss that the script computes by itself compares these. `node`: what gave the first."""
        cut = _cut_by(node)
        if cut:
            self._range(cut, given, target)

    def scored(self, node: Any) -> None:
        """A softmax of a cross entropy that the script computes by itself is taken of what `node` gave."""
        while name_of(node) in ("Permute", "Transpose"):
            node = node.next_functions[0][0]
        cut = _cut_by(node)
        if cut in _CUT["cross_entropy"] or cut == "Softmax":
            self._see("not_logits", {"function": "softmax", "given": _WORDS[cut]})

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        self._steps += 1
        self.due = self._steps < LOOKS
        if self._constant is not None:
            self._session.context.add("context/loss_graph/constant", self._constant)
            self._constant = None
        if self._told:
            for fact in self._told:
                told = self._late.get(fact, 1) if fact in self._seen else 0
                self._session.context.add("context/loss_graph/" + fact, told)
            self._session.context.topic("loss_graph", dict(self._told))
            self._seen.clear()
            self._late.clear()
            if not self.due:
                self._told = {}

    # How ----------------------------------------------------------------------------------------------------

    def _see(self, fact: str, told: dict[str, Any]) -> None:
        self._told.setdefault(fact, told)
        self._seen.add(fact)

    def _compared_in_pairs(self, pairs: Pairs) -> None:
        if not _readable(pairs.values, "cuda") or is_captured(pairs.values):
            return
        told = are_pairs(pairs)
        if told.device.type != "cpu":
            self._late["pairs"] = told
        elif not told.item():
            return
        self._see("pairs", {"input": list(pairs.input), "result": list(pairs.result)})

    def _without_gradient(self, whole: torch.Tensor) -> None:
        terms, without = _terms(whole.grad_fn)
        known = [value for value in terms if value is not None]
        self._constant = whole.item() - sum(known) if without and len(known) == len(terms) else None

    def _range(self, cut: str, given: torch.Tensor, target: torch.Tensor) -> None:
        if not _readable(target) or target.requires_grad or target.shape != given.shape:
            return
        low, high = _RANGES[cut]
        some = _some(target)
        least, most = some.min().item(), some.max().item()
        width = high - low if high < float("inf") else most - least
        margin = MARGIN * width
        share = ((some < low - margin) | (some > high + margin)).float().mean().item()
        if share >= OUTSIDE:
            self._see("out_of_reach", {"function": _WORDS[cut], "least": least, "most": most, "share": share})
