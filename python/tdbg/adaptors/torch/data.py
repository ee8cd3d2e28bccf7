"""What a training is fed: numbers of the model's first input, of the labels, and of what a loss function is given.

    context/input/...       zeros (share), nan and infinite (counts), min, max, mean, std, same_rows (1: all rows are
                            one), padding (share; where the model or the caller says what padding is)
    context/labels/...      count, distinct, min, max, ignored (share), of what a loss for classes compares with
    context/loss_input/...  wrong (1: probabilities where logits are wanted, anything but log-probabilities where those
                            are)
    context/targets/..., context/predictions/...    what is predicted against what it is compared with: predictions.py;
                            context/targets/1/... of a second loss of squared or absolute errors in the step
    topics                  input (dtype, shape, mean and deviation of each channel), labels (how often each class came,
                            in the batches that were looked at), loss_input (which function, the shape)

Exact numbers of whole tensors, at some steps: each of the first EARLY ones, in which nearly all that can be wrong is
seen, and every EVERY-th after them; large tensors seldom enough to cost PER_STEP bytes a step. A batch whose loss is
not finite is looked at whatever the step. Of a device's tensors the numbers come late, like all of its values: it is
not waited for, and labels are not counted there. Not looked at: what the training has computed itself (another model's
output is no data), and anything while a dispatch mode of the script's is on, which would see our operations as its own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..structure import every, first
from .graph import is_captured, signed
from .params import unreadable
from .predictions import CLASSIFY, MEASURES, Options, compare

if TYPE_CHECKING:
    from .session import Session

EARLY = 20
EVERY = 8
EVERY_ON_A_DEVICE = 64
SMALL = 1 << 20          # bytes: looked at in each early step
LARGEST = 256 << 20
PER_STEP = 128 << 10
ROWS = 16                # of what a loss is given: all of them are of one make
CHANNELS = 64
MOST_BAD = 64            # batches whose loss is not finite
MOST_COMPARED = 3        # losses of one step
CLASSES = 256            # told one by one
COUNTED = 1 << 16        # labels above that are no classes that can be counted
IGNORED = -100           # torch's ignore_index, unless the caller has another
DESCRIBED = 16 << 20     # bytes: channels of larger inputs are not told, which takes copies in 64 bits

_HALVES = (torch.float16, torch.bfloat16)
#: torch computes all of these numbers of these; of 16 bits without a sign, which token files have, hardly any.
_READ = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32, torch.int64))
#: Nodes of a graph that pass on what they are given, as it is or a part of it.
_PASS_ON = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Select", "Index", "Permute", "Transpose",
            "ToCopy", "Clone", "Alias", "Expand")
#: Those between a loss function and what is differentiated: accumulation, a scaler.
_FACTORS = ("Div", "Mul", "ToCopy", "View", "Reshape")
DEEP = 5
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def plain(tensor: torch.Tensor) -> bool:
    """Strided memory of numbers that have an order."""
    return (unreadable(tensor) is None and tensor.layout is torch.strided and not tensor.is_meta
            and tensor.dtype in _READ and not tensor.is_neg() and tensor.numel() > 0)


def _alone(tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is nothing else given by which rows differ? A graph whose nodes have no features has ones there, and edges."""
    if any(not isinstance(v, (torch.Tensor, list, tuple, dict, int, float, str, type(None)))
           for v in (*args, *kwargs.values())):
        return False
    rows = tensor.shape[0] if tensor.dim() else 1
    return all(t is tensor or t.numel() <= rows for t in every(torch.Tensor, (args, kwargs)))


def _rows(given: torch.Tensor) -> torch.Tensor:
    """Some of the rows over the classes, which are axis 1. Copies no more than these."""
    if given.dim() > 2:
        given = given[0].flatten(1).movedim(0, 1)
    given = given.reshape(-1, given.shape[-1])
    return given[:: max(1, given.shape[0] // ROWS)][:ROWS].float()


def _is_sigmoids(given: torch.Tensor) -> bool:
    """Does its graph say that a sigmoid gave it?"""
    node = given.grad_fn
    for _ in range(8):
        if node is None:
            return False
        name = node.name()
        if name.startswith(("Sigmoid", "Hardsigmoid")):
            return True
        if not name.startswith(_PASS_ON) or not node.next_functions:
            return False
        node = node.next_functions[0][0]
    return False


def _described(x: torch.Tensor, with_channels: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"dtype": str(x.dtype)[6:], "shape": list(x.shape)}
    if with_channels and x.dim() >= 2:
        axis = 1 if x.dim() != 3 else 2        # features of a row or of a moment, else channels
        x = x.movedim(axis, 0)[:CHANNELS].flatten(1).double()
        variance, mean = torch.var_mean(x, 1, correction=0)
        if bool(torch.isfinite(variance).all()):
            said["channels"] = {"axis": axis, "mean": mean.tolist(), "std": variance.sqrt().tolist()}
    return said


class Data:
    """Of one session. `due`: this step's tensors are looked at, if they are not too large."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0                                  # of the training, that were recorded
        self._ready: list[tuple[str, Any]] = []          # numbers for the step, a device's as tensors
        self._seen: set[str] = set()                     # what of the step at hand was looked at
        self._compared: list[tuple[str, Sequence[int]]] = []    # in the step: by which function, rows of which shape
        self._looked_at: Any = lambda: None              # weak: the input that was
        self._alike: int | None = None                   # where in `_ready` it is said that all its rows are one
        self._row: torch.Tensor | None = None            # which they are
        self._counts: dict[int, int] | None = {}         # class -> how often; None: they are too many
        self._batches = 0
        self._padding: int | None = None
        self._knows_padding = False
        self._off = self._described = False
        self._bad = 0                                    # losses that were not finite
        self._told_in = -1                               # Session.steps_closed at the step that was told last

    # What is looked at --------------------------------------------------------------------------------------

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any], even_so: bool = False) -> None:
        """A training forward is given these. `even_so`: its loss turned out not to be finite."""
        if "input" in self._seen and self._alike is None:
            return
        tensor = args[0] if args and type(args[0]) is torch.Tensor else first(torch.Tensor, args, kwargs.values())
        if type(tensor) is not torch.Tensor or not plain(tensor):
            return
        if "input" in self._seen:
            self._again(tensor)
            return
        if not self._is_due(tensor) and not (even_so and tensor.numel() * tensor.dtype.itemsize <= LARGEST):
            return
        if tensor.grad_fn is not None or _dispatch_modes():
            return
        self._seen.add("input")
        self._looked_at = weakref.ref(tensor)
        with torch.no_grad():
            alone = not tensor.is_floating_point() or _alone(tensor, args, kwargs)
            self._input(tensor.detach(), kwargs.get("attention_mask"), alone)

    def _again(self, tensor: torch.Tensor) -> None:
        """The model is called once more in the step. A policy begins all its episodes in one state, and goes on: in
        others, or all of them together in the next one."""
        size = tensor.numel() * tensor.dtype.itemsize
        if tensor.device.type != "cpu" or not tensor.dim() or size > SMALL or _dispatch_modes():
            return
        with torch.no_grad():
            if self._alike is None:
                return
            row = self._row
            same = row is not None and row.shape == tensor.shape[1:] and row.dtype == tensor.dtype
            if not same or not bool((tensor == row).all()):
                self._ready[self._alike] = ("input/same_rows", 0)
                self._alike = None

    def bad_loss(self, tensor: torch.Tensor | None) -> None:
        """A loss is not finite. `tensor`: the model's first input, if that still lives."""
        self._bad += 1
        if tensor is None or self._bad > MOST_BAD or self._off:
            return
        on_host = tensor.device.type == "cpu"
        if "input" in self._seen:
            if not on_host or tensor is self._looked_at() or not plain(tensor):
                return
            # A step of several batches: the first was looked at, and it is this one that counts.
            self._seen.discard("input")
            self._ready = [(name, value) for name, value in self._ready if not name.startswith("input/")]
            self._alike = None
        self.given((tensor,), {}, even_so=on_host)

    @property
    def has_compared(self) -> bool:
        """Was a loss function seen in the step at hand?"""
        return "loss" in self._seen

    def compared(self, function: str, given: Any, target: Any, options: Options, own: bool = False) -> None:
        """A loss function was given these in a training. `own`: none was called, and what the script computes is the
        same."""
        if type(given) is not torch.Tensor or _dispatch_modes() or not plain(given) or not given.is_floating_point():
            return
        what = (function, given.shape[1:])
        if "loss" in self._seen:
            if what not in self._compared and function in MEASURES and not own:
                self._also(function, given, target, options)
            return
        self._seen.add("loss")
        self._compared.append(what)
        ignored = options.ignored if type(options.ignored) is int else IGNORED
        with torch.no_grad():
            if type(target) is torch.Tensor and plain(target):
                if function not in MEASURES and not options.masked and self._is_due(target):
                    self._labels(function, target.detach(), ignored)
                if self.is_part_due(given):
                    self._predictions(function, given, target, options, ignored, own)
            if self._steps >= EARLY or is_captured(given):
                return
            if function == "binary_cross_entropy_with_logits" and self._is_due(given):
                self._logits_of_two(function, given)
            elif function in ("cross_entropy", "nll_loss") and given.dim() >= 1:     # of any size: only rows are read
                self._logits(function, given.detach())

    def differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward of `tensors` is about to run. A loss function that was taken from torch before tdbg was attached
        (`from torch.nn.functional import nll_loss`) is seen by nobody; its graph has what it was given."""
        given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
        if "loss" in self._seen or len(given) != 1 or not isinstance(given[0], torch.Tensor):
            return
        node = given[0].grad_fn
        for _ in range(DEEP):
            if node is None:
                return
            name = node.name()
            if name.startswith("NllLoss"):
                break
            if not name.startswith(_FACTORS) or not node.next_functions:
                return
            node = node.next_functions[0][0]
        else:
            return
        try:
            value, target, ignored = node._saved_self, node._saved_target, node._saved_ignore_index
        except RuntimeError:        # freed, or written to since
            return
        self.compared("nll_loss", value, target, Options(signed(ignored)))

    @property
    def steps(self) -> int:
        """Of the training, that were recorded."""
        return self._steps

    def step_ends(self) -> None:
        """An optimizer is about to step: what was looked at is the step's. Of several in a step it is the first one's,
        so that it is always the same model's."""
        if self._off:
            return
        context, ready = self._session.context, self._ready
        self._ready, self._alike, self._row = [], None, None
        self._seen.clear()
        self._compared.clear()
        if self._session.steps_closed == self._told_in:
            return
        self._told_in = self._session.steps_closed
        for name, value in ready:
            context.add("context/" + name, value)
        self._steps += 1
        self.due = self._steps < EARLY or self._steps % EVERY == 0

    def give_up(self) -> None:
        self.due, self._off = False, True

    # How ----------------------------------------------------------------------------------------------------

    def _is_due(self, tensor: torch.Tensor) -> bool:
        size: int = tensor.numel() * tensor.dtype.itemsize
        if not self.due or size > LARGEST:
            return False
        if is_captured(tensor):
            return False
        if self._steps < (EARLY if size <= SMALL else 2):
            return True
        if tensor.device.type == "cpu":
            return self._steps % max(EVERY, size // PER_STEP) == 0
        return self._steps % max(EVERY_ON_A_DEVICE, size // PER_STEP) == 0

    def is_part_due(self, tensor: torch.Tensor) -> bool:
        """Of tensors of which no more than a part is looked at, whatever their size."""
        if not self.due or is_captured(tensor):
            return False
        return self._steps < EARLY or tensor.device.type == "cpu" or self._steps % EVERY_ON_A_DEVICE == 0

    def _number(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            value = value.item()
        self._ready.append((name, value))

    def _input(self, x: torch.Tensor, mask: Any, alone: bool) -> None:
        host = x.device.type == "cpu"
        floats = x.is_floating_point()
        size = x.numel()
        low, high = torch.aminmax(x)
        if floats:
            whole = x
            if host and not (-float("inf") < low.item() and high.item() < float("inf")):    # NaN, too
                whole = x[torch.isfinite(x)]
                nan = int(torch.isnan(x).sum())
                self._number("input/nan", nan)
                self._number("input/infinite", size - whole.numel() - nan)
                if not whole.numel():
                    return
                low, high = torch.aminmax(whole)
            elif not host:
                self._number("input/nan", torch.isnan(x).sum())
            values = (whole.float() if x.dtype in _HALVES else whole).reshape(-1)
            mean = values.mean()
            apart = values - mean       # torch.var_mean takes seven times as long
            self._number("input/mean", mean)
            self._number("input/std", (torch.dot(apart, apart) / values.numel()).sqrt())
        self._number("input/min", low)
        self._number("input/max", high)
        self._number("input/zeros", 1 - torch.count_nonzero(x) / size)
        if alone and x.dim() and x.shape[0] >= 4 and size >= 64 and size * x.dtype.itemsize <= SMALL:
            same = not host or torch.equal(x[0], x[1])
            self._number("input/same_rows", (x == x[:1]).all() if same else 0)
            self._alike = len(self._ready) - 1 if host and self._ready[-1][1] else None
            self._row = x[0].clone() if self._alike is not None else None
        if not floats:
            self._tokens(x, mask, low, high)
        if not self._described:
            self._described = True
            with_channels = floats and host and size * x.dtype.itemsize <= DESCRIBED
            self._session.context.topic("input", _described(x, with_channels))

    def _tokens(self, x: torch.Tensor, mask: Any, low: torch.Tensor, high: torch.Tensor) -> None:
        if (type(mask) is torch.Tensor and unreadable(mask) is None and mask.layout is torch.strided
                and mask.dim() == 2 and mask.shape == x.shape and mask.device == x.device):
            absent = mask == 0
            share = torch.count_nonzero(absent) / mask.numel()
            # Padding is of one make. In a mask that is added, or that says what to leave out, zeros stand at words.
            one = torch.where(absent, x, high).amin() == torch.where(absent, x, low).amax()
            if x.device.type != "cpu":
                self._number("input/padding", torch.where(one, share, torch.full_like(share, float("nan"))))
                return
            if one:
                self._number("input/padding", share)
                return
        if not self._knows_padding:
            self._knows_padding = True
            tables = (m for root in self._session.names.roots if root.module is not None for m in root.module.modules()
                      if isinstance(m, torch.nn.Embedding))
            table = next(tables, None)
            self._padding = None if table is None else table.padding_idx
        if self._padding is not None:
            self._number("input/padding", torch.count_nonzero(x == self._padding) / x.numel())

    def _labels(self, function: str, target: torch.Tensor, ignored: int) -> None:
        if target.device.type != "cpu":
            low, high = torch.aminmax(target)
            self._number("labels/min", low)
            self._number("labels/max", high)
            return
        target = target.reshape(-1)
        if not target.is_floating_point():
            valid = target[target != ignored]
            self._number("labels/ignored", 1 - valid.numel() / target.numel())
            target = valid
        self._number("labels/count", target.numel())
        if not target.numel():
            return
        low, high = torch.aminmax(target)
        self._number("labels/min", low)
        self._number("labels/max", high)
        if target.is_floating_point():
            if "binary" in function:
                self._number("labels/distinct", 1 if low == high else 2)
            return
        if low.item() < 0 or high.item() >= COUNTED:
            return
        counts = torch.bincount(target)
        classes = counts.nonzero().reshape(-1).tolist()
        self._number("labels/distinct", len(classes))
        self._count(dict(zip(classes, counts[classes].tolist())) if len(classes) <= CLASSES else None)

    def _count(self, more: dict[int, int] | None) -> None:
        """Told after 1, 10, 100, ... batches: so a topic that changes with each is written seldom."""
        self._batches += 1
        if more is None or self._counts is None:
            self._counts = None
            return
        for label, count in more.items():
            self._counts[label] = self._counts.get(label, 0) + count
        if len(self._counts) > CLASSES:
            self._counts = None
        elif str(self._batches).rstrip("0") == "1":
            counts = {str(label): self._counts[label] for label in sorted(self._counts)}
            self._session.context.topic("labels", {"batches": self._batches, "counts": counts})

    def _predictions(self, function: str, given: torch.Tensor, target: torch.Tensor, options: Options,
                     ignored: int, own: bool) -> None:
        found = compare(function, given, target, options, ignored)
        if given.device.type == "cpu":
            found = {name: value.item() if type(value) is not float else value for name, value in found.items()}
            if not all(map(math.isfinite, found.values())):
                return
        if found:
            self._ready += found.items()
            single = function not in CLASSIFY and given.numel() == max(given.shape, default=1)
            told = {"function": function, "single": single} | ({"own": True} if own else {})
            self._session.context.topic("predictions", told)

    def _also(self, function: str, given: torch.Tensor, target: Any, options: Options) -> None:
        """A further loss of the step, which is added to the first. A single number a row is a value beside a policy."""
        if len(self._compared) >= MOST_COMPARED or given.numel() == max(given.shape, default=1):
            return
        if type(target) is not torch.Tensor or not plain(target) or not self.is_part_due(given):
            return
        number = len(self._compared)
        self._compared.append((function, given.shape[1:]))
        with torch.no_grad():
            for name, value in compare(function, given, target, options, IGNORED).items():
                self._number(name.replace("/", f"/{number}/"), value)

    def _logits_of_two(self, function: str, given: torch.Tensor) -> None:
        low, high = torch.aminmax(given.detach())
        wrong = (low >= 0) & (high <= 1)
        if not _is_sigmoids(given):
            # A network that has not learnt yet gives nearly the same for all, which may well lie between 0 and 1.
            wrong = wrong & (low < 0.25) & (high > 0.75)
        self._wrong(function, given, wrong)

    def _logits(self, function: str, given: torch.Tensor) -> None:
        rows = _rows(given)
        if rows.shape[1] < 2:
            return
        if function == "cross_entropy":
            near = 2e-2 if given.dtype in _HALVES else 1e-3
            wrong = (((rows.sum(1) - 1).abs() < near) & (rows.amin(1) >= 0)).all()
        else:
            # Of 16 bits -11 is 0.06 from the next; and a little is often added to keep a logarithm from 0.
            near = 1e-1 if given.dtype in _HALVES else 5e-2
            wrong = ~((rows.exp().sum(1) - 1).abs() < near).any()
        self._wrong(function, given, wrong)

    def _wrong(self, function: str, given: torch.Tensor, wrong: torch.Tensor) -> None:
        self._number("loss_input/wrong", wrong)
        self._session.context.topic("loss_input", {"function": function, "shape": list(given.shape[1:])})
