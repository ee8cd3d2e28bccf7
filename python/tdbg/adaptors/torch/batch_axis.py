"""Do recurrent layers and attention run over the samples of a batch, where they are to run over what comes after one
another in each?

    context/batch_axis      1 at a step at which one did, 0 at a later one at which none did
    topic batch_axis        {"module": "Net_cell", "kind": "LSTM", "batch_first": false, "shape": [32, 24, 1]}

torch's own layers are looked at (nn.LSTM, GRU, RNN and MultiheadAttention, which the Transformers consist of), in the
first LOOKS steps. By `batch_first` one of the first two axes of what a layer is given is taken for the batch, and it
runs over the other one. That other one is the batch if it alone is as long as the model's first input has rows, and
each loss has one target, or a row of targets, for each of these. Where the axis that is taken for the batch is a
multiple of these rows, and is not the second one of the model's input, the batch may be folded into it (attention over
the frames of films). A length of 1 says nothing: one long sequence has that, too.

A layer in training mode has a hook while a training forward runs, from the second step on, and at no other time:
attention that has hooks takes another way through torch in evaluations. Where anything is compiled nothing is looked
at.
"""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ..inert import Inert
from ..structure import first
from .dynamo import has_compiled, run_uncompiled
from .losses import in_backward
from .modules import is_tracing

if TYPE_CHECKING:
    from .session import Session

LOOKS = 10
FEWEST = 4              # rows: of fewer, equal lengths are chance

_RECURRENT = (torch.nn.RNN.forward, torch.nn.LSTM.forward, torch.nn.GRU.forward)
_ATTENTION = torch.nn.MultiheadAttention.forward
_is_compiling = torch.compiler.is_compiling

Shape = tuple[int, ...]
Layer = tuple["weakref.ref[torch.nn.Module]", "weakref.ref[torch.nn.Module]"]     # and what must be training as well


def _is_sequential(module: torch.nn.Module) -> bool:
    """A class of the script's that has its own forward may have its own axes."""
    return type(module).forward in (*_RECURRENT, _ATTENTION)


def _layers_in(model: torch.nn.Module) -> list[Layer]:
    around = {id(part): whole for whole in model.modules() if isinstance(whole, torch.nn.TransformerEncoderLayer)
              for part in whole.modules()}
    return [(weakref.ref(layer), weakref.ref(around.get(id(layer), layer)))
            for layer in model.modules() if _is_sequential(layer)]


def _is_compiled(model: torch.nn.Module) -> bool:
    """Hooks would have it compiled again."""
    return has_compiled() or any(module.__dict__.get("_compiled_call_impl") is not None or "_orig_mod" in
                                 module.__dict__.get("_modules", ()) for module in model.modules())


def _shape(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shape | None:
    """Of what a layer runs over; None: nothing can be said of it."""
    attends = type(module).forward is _ATTENTION
    given = args[0] if args else kwargs.get("query" if attends else "input")
    if not isinstance(given, torch.Tensor) or given.is_nested or given.dim() != 3:
        return None
    # Padding is told by [batch, time]: who could make that of it knows which is which.
    if attends and (len(args) > 3 or kwargs.get("key_padding_mask") is not None):
        return None
    return tuple(given.shape)


def _runs_over_batch(batch_first: bool, shape: Shape, given: Shape) -> bool:
    """`shape`: of what a layer is given; `given`: of the model's first input."""
    over, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    rows = given[0]
    if rows < FEWEST or over != rows or batch == rows or batch == 1:
        return False
    return batch % rows != 0 or given[1:2] == (batch,)


class _Hook(Inert):
    def __init__(self, owner: BatchAxis) -> None:
        self.owner = owner

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if not _is_compiling() and not is_tracing() and in_backward() == -1:
            self.owner.called(module, args, kwargs or {})


run_uncompiled(_Hook.__call__)


class _Calls:
    """Of one layer, in the step at hand."""

    __slots__ = ("layer", "shape", "over_batch")

    def __init__(self, layer: torch.nn.Module, shape: Shape | None) -> None:
        self.layer = weakref.ref(layer)
        self.shape = shape
        self.over_batch = True      # in each of them


class BatchAxis:
    """Of one session. `due`: this step is looked at."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._steps = 0
        self._layers: weakref.WeakKeyDictionary[torch.nn.Module, list[Layer]] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._given: Shape = ()                 # shape of the first input of the model that runs
        self._calls: dict[int, _Calls] = {}     # by id() of the layer
        self._targets: set[Shape] = set()
        self._told = False

    def give_up(self) -> None:
        self.due = False
        self.forward_ended()
        self._calls = {}

    def forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Of a training."""
        self.forward_ended()
        if self._steps == 0:        # in which what is to be compiled is compiled
            return
        layers = self._layers.get(module)
        if layers is None:
            layers = self._layers[module] = _layers_in(module)
        given = args[0] if args and type(args[0]) is torch.Tensor else first(torch.Tensor, args, kwargs.values())
        if not layers or given is None or given.is_nested or not given.dim():
            return
        if _is_compiled(module):
            self.give_up()
            return
        self._given = tuple(given.shape)
        hook = _Hook(self)
        for layer, whole in ((of(), whole()) for of, whole in layers):
            if layer is None or whole is None or not (layer.training and whole.training):
                continue
            if layer is module:
                self._see(layer, _shape(layer, args, kwargs))     # whose hooks run already
            else:
                self._handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))

    def forward_ended(self) -> None:
        """Of any model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def called(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A layer is called."""
        session, begun = self._session, perf_counter()
        try:
            if not session.elsewhere():
                self._see(module, _shape(module, args, kwargs))
        except BaseException as error:
            session.guard.failed("axes of sequences", error, self.give_up)
        session.overhead.spent += perf_counter() - begun

    def _see(self, layer: torch.nn.Module, shape: Shape | None) -> None:
        calls = self._calls.get(id(layer))
        if calls is None:
            calls = self._calls[id(layer)] = _Calls(layer, shape)
        if shape is None or not _runs_over_batch(bool(getattr(layer, "batch_first", False)), shape, self._given):
            calls.over_batch = False

    def compared(self, target: Any) -> None:
        """A loss function was given this in a training."""
        if isinstance(target, torch.Tensor):
            self._targets.add(tuple(target.shape))

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        self._steps += 1
        calls, self._calls = self._calls, {}
        targets, self._targets = self._targets, set()
        found = next((one for one in calls.values() if one.over_batch and self._one_a_row(one, targets)), None)
        if found is not None and not self._told:
            self._tell(found)
        if self._told:
            self._session.context.add("context/batch_axis", int(found is not None))
        self.due = self._steps < LOOKS
        if not self.due:
            self.give_up()

    @staticmethod
    def _one_a_row(calls: _Calls, targets: set[Shape]) -> bool:
        """Has each sample one target, or some that are not as many as the sequence is long?"""
        if not targets or calls.shape is None:
            return False
        layer = calls.layer()
        over = int(bool(getattr(layer, "batch_first", False)))
        rows, length = calls.shape[over], calls.shape[1 - over]
        return all(len(shape) in (1, 2) and shape[0] == rows and shape[1:] != (length,) for shape in targets)

    def _tell(self, calls: _Calls) -> None:
        layer = calls.layer()
        if layer is None or calls.shape is None:
            return
        self._told = True
        name = next((root.label if one is root.module else f"{root.label}_{name}" for root in self._session.names.roots
                     for name, one in root.modules() if one is layer), type(layer).__name__)
        self._session.context.topic("batch_axis", {
            "module": name, "kind": type(layer).__name__, "batch_first": bool(getattr(layer, "batch_first", False)),
            "shape": list(calls.shape)})
