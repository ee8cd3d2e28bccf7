"""The training context of a step: numbers as series `context/...`, structure as JSON written when it changes.

Series: lr/<optimizer>/<group>, optimizer_step/<optimizer>, micro_steps, batch_size, batch_elements (where they are as
many as before it is left out), batch_fingerprint (hash of samples of the first inputs of root forwards:
Context.take_batch), gradients_absent, gradients_kept (1: they were not reset; of several optimizers: kept.py),
loss_scale, skipped, grad_norm; of what the training is fed, and what it
predicts: data.py, own_looks.py, arguments.py; what evaluations are fed: held_out.py; of the mode that modules are in:
module_modes.py; of what lies between the last layer and the loss: loss_graph.py; of random numbers: random_numbers.py;
of the axis that sequences lie along: batch_axis.py.
Topics: versions, batch, parameters (in no optimizer, frozen), gradients_absent (names), gradients_absent/<optimizer>,
loss_broadcast (shapes), optimizer_uncounted (how many steps had no gradient at all, so far), optimizer/<optimizer>
(class, groups, options), settings (of modules and of functions: settings.py), made_anew (layers: made_anew.py),
lone_parameters (lone.py), batch_axis.
An absent gradient and a gradient of zeros are different: the first is listed here.
"""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from tdbg import _capture

from ..context import Context as BaseContext
from ..guard import pass_on
from ..steps import EVAL, TRAIN
from ..structure import first
from .arguments import Arguments
from .batch_axis import BatchAxis
from .data import Data
from .held_out import HeldOut, Numbers
from .kept import KeptGradients
from .lone import LoneParameters
from .loss_graph import FUNCTIONS, LossGraph
from .made_anew import MadeAnew
from .module_modes import ModuleModes
from .own_looks import OwnLosses
from .params import READER, local
from .predictions import COMPARED, options_of
from .random_numbers import RandomNumbers
from .settings import Settings
from .unregistered import AFTER, Unregistered
from .unseen import unseen

if TYPE_CHECKING:
    from .names import NamedParameter
    from .params import OptimizerTensors
    from .session import Session


def _plain(value: Any) -> Any:
    """A group's option as JSON; a tensor on a device is not read (that would wait for it)."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else f"tensor on {value.device}"
    if isinstance(value, (int, float, str, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value)


def fingerprint(tensor: torch.Tensor) -> int:
    """Mark of a host tensor's values in C order: the same for the same batch. At most 4 KiB of it is looked at."""
    tensor = tensor.contiguous()
    return _capture.fingerprint(tensor.data_ptr(), tensor.numel() * tensor.element_size())


_ZEROS: dict[torch.dtype, int] = {}        # the mark of a zero


def _mark_of_first(gradient: torch.Tensor) -> int:
    """Mark of a host gradient's first number; 0 where that is zero. 1 of a device's, which is not waited for, and of a
    subclass, whose memory may be elsewhere. Read from memory: torch's indexing takes 5 us."""
    if type(gradient) is not torch.Tensor or gradient.device.type != "cpu" or not gradient.numel():
        return 1
    kind, size = gradient.dtype, gradient.element_size()
    zero = _ZEROS.get(kind)
    if zero is None:
        number = torch.zeros(1, dtype=kind)
        zero = _ZEROS[kind] = _capture.fingerprint(number.data_ptr(), size)
    mark = _capture.fingerprint(gradient.data_ptr(), size)
    return 0 if mark == zero else mark


#: Length of the first axis; mark of the values, None where these are not looked at; was it computed with gradients?
#: Number of elements.
Batch = tuple[int, int | None, bool, int]
NOT_OPTIONS = ("params", "lr", "param_names")


def _same_objects(groups: Any, options: Sequence[Any]) -> bool:
    """Nothing was assigned to the groups' options since they were put down, nor added: what every step but a few
    finds."""
    for group, known in zip(groups, options):
        if len(group) - sum(map(group.__contains__, NOT_OPTIONS)) != len(known):
            return False
        for key, value in known:
            if group.get(key) is not value:
                return False
    return len(groups) == len(options)


class _Looks(Protocol):
    """Looks at something of a training, and can be given up alone."""

    def give_up(self) -> None: ...


class Context(BaseContext):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._waiting: list[tuple[str, str]] = []    # topics, until numbers are handed over: a step is open then
        self._batch: Any = None
        self._elements = -1     # of the batch that was recorded last
        self._marks: set[int | None] = set()    # of the step's batches
        self._groups: dict[Any, Any] = {}
        # (parameter, version and mark of its gradient's first number after an update) until backward: was it reset?
        self._left: tuple[weakref.ref[Any], int, int] | None = None
        self._kept = False
        self.uncounted = 0      # steps of an optimizer without any gradient: its own count does not know of them
        self._uncounted_told = 0
        self.data = Data(session)
        self.unregistered = Unregistered(session)
        self.modes = ModuleModes()
        self.settings, self.loss_graph = Settings(session), LossGraph(session)
        self.arguments, self.held_out = Arguments(), HeldOut()
        self.random_numbers = RandomNumbers(session)
        self.made_anew, self.lone = MadeAnew(session), LoneParameters(session)
        self.batch_axis = BatchAxis(session)
        self.own_losses = OwnLosses(session)
        self._kept_of = KeptGradients(_mark_of_first)
        self._looked_in = -1    # Session.steps_closed at the step that these were told of last

    # Scalars ------------------------------------------------------------------------------------------------

    def add(self, name: str, value: Any, every_step: bool = False) -> None:
        """One number for the open step, handed over by `flush`. `every_step`: of a device's numbers, whether each step
        has it."""
        if not self.enabled:
            return
        if type(value) not in (int, float) and isinstance(value, torch.Tensor):
            if self.session.unread(name, value):
                return
            if self.session.on_device(value):
                self.session.put_device_scalar(self.id(name), value, every_step=every_step)
                return
            value = value.item()
        self.number(self.id(name), float(value))

    def series(self, name: str, value: Any, sub: int) -> None:
        """A loss that is kept as a series beside the losses. `value` is a tensor of one element."""
        if self.session.on_device(value):
            self.session.put_device_scalar(self.id(name), value.reshape(()), sub)
        elif sub:
            self.session.port.put_scalars([self.id(name)], [value.item()], sub)
        else:
            self.number(self.id(name), value.item())

    def flush(self) -> None:
        for topic, text in self._waiting:
            self.session.port.put_context(topic, text)
        self._waiting.clear()
        ids, values = self._ready
        if ids:
            self._ready = ([], [])
            self.session.port.put_scalars(ids, values, 0)

    def put_topic(self, name: str, text: str) -> None:
        self._waiting.append((name, text))

    def origin(self, topic: str, text: str) -> None:
        """Now, and not with the step's other topics: a script that finds the NaN itself raises before there is a
        step."""
        if self.enabled:
            self.session.port.put_context(topic, text)

    # What is observed ---------------------------------------------------------------------------------------

    def updated(self, serial: int, parameters: Sequence[torch.Tensor], alone: bool) -> None:
        """An optimizer has stepped, the training's only one if it is `alone`: what gradient is left?"""
        self._left = None
        if not alone:
            if self.enabled:
                self._kept_of.stepped(serial, parameters)
            return
        self._kept_of.forget()
        if self.enabled and parameters:
            # Of a DTensor this rank's part: an element of the whole takes a collective, which a rank that is not
            # recorded takes no part in.
            left: Any = parameters[-1].grad
            gradient = None if left is None else local(left)
            if gradient is not None and gradient.layout is torch.strided:
                self._left = weakref.ref(parameters[-1]), gradient._version, _mark_of_first(gradient)

    @unseen
    def differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """A backward of `tensors` is about to run."""
        session = self.session
        if not self.enabled or session.idle[TRAIN]:
            return
        if self.data.due:
            self._look("a loss of the script's own", self.own_losses, self.own_losses.differentiated, tensors)
            self._look("labels", self.data, self.data.differentiated, tensors)
        if self.random_numbers.due:
            self._look("random numbers", self.random_numbers, self.random_numbers.look)
        if self.loss_graph.due:
            self._look("what a loss is made of", self, self._differentiated, tensors)
        if self.unregistered.due and self.data.steps >= AFTER:
            self._look("layers in a list", self.unregistered, self.unregistered.look, tensors)
        if self.made_anew.due:
            self._look("layers that are made anew", self.made_anew, self.made_anew.look, tensors)
        if self.lone.due:
            self._look("parameters that stand alone", self.lone, self.lone.look, tensors)

    def _look(self, at: str, whose: _Looks, look: Callable[..., Any], *args: Any) -> Any:
        """`look(*args)`, and None where that fails: what fails again and again is given up, alone."""
        try:
            return look(*args)
        except BaseException as error:
            self.session.guard.failed(at, error, whose.give_up)

    def _differentiated(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        self.settings.differentiated()
        self.loss_graph.differentiated(tensors, self._batch[0] if self._batch else -1)

    def give_up(self) -> None:
        """What losses are made of and given."""
        self.settings.give_up()
        self.loss_graph.give_up()

    def clipped(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Gradients are clipped by a function that is given these behind the parameters."""
        if self.settings.due and self.enabled and not self.session.idle[TRAIN]:
            self.settings.clipped(function, args, kwargs)

    def before_backward(self, tensors: torch.Tensor | Sequence[torch.Tensor]) -> None:
        """backward adds to the gradients that are there."""
        self._kept_of.before_backward(tensors)
        left, self._left = self._left, None
        if left is not None:
            parameter = left[0]()
            gradient = None if parameter is None else local(parameter.grad)
            # By version where nothing was written; by value where somebody wrote past it, through `.data`.
            self._kept = (gradient is not None and gradient._version == left[1] and left[2] != 0
                          and _mark_of_first(gradient) == left[2])

    def broadcast(self, value: torch.Tensor, target: torch.Tensor) -> None:
        """A loss was given predictions of another shape than its targets have."""
        if value.dim() != target.dim() and torch.broadcast_shapes(value.shape, target.shape).numel() > value.numel():
            self.topic("loss_broadcast", {"input": list(value.shape), "target": list(target.shape)})

    def started(self) -> None:
        self.topic("versions", {"torch": torch.__version__, "python": platform.python_version(),
                                "threads": torch.get_num_threads()})

    def saw_batch(self, args: tuple[Any, ...], kwargs: dict[str, Any], module: torch.nn.Module | None = None) -> None:
        """A training forward begins, of `module` if its step is an optimizer's."""
        self.session.losses.origins.given(args, kwargs)
        self.take_batch(self.batch_of(args, kwargs))
        if module is not None and self.enabled:
            self._forward_begins(module, args, kwargs)
        if self.data.due and self.enabled:
            self._look("the model's input", self.data, self._given, args, kwargs)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.arguments.given(args, kwargs)
        self.held_out.trained_on(args, kwargs)
        self.data.given(args, kwargs)

    def _forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.random_numbers.due:
            self._look("random numbers", self.random_numbers, self.random_numbers.forward_begins)
        if self.batch_axis.due:
            self._look("axes of sequences", self.batch_axis, self.batch_axis.forward_begins, module, args, kwargs)

    @unseen
    def evaluated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Numbers | None:
        """A forward in evaluation mode is given these. For `add_fed`, if it becomes a step."""
        if not self.enabled or self.session.idle[EVAL]:
            return None
        numbers: Numbers | None = self._look("an evaluation's input", self.held_out, self.held_out.given, args, kwargs)
        return numbers

    def add_fed(self, numbers: Numbers | None) -> None:
        for name, number in numbers or ():
            self.add("context/evaluated_input/" + name, number)

    def gave(self, output: Any) -> None:
        """A model returned `output`, in training."""
        if self.data.due and self.enabled and not self.session.idle[TRAIN]:
            self._look("the model's output", self.own_losses, self.own_losses.gave, output)

    @unseen
    def compared(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A loss function was called so, and returned `result`."""
        session = self.session
        if not self.enabled or session.idle[TRAIN] or not getattr(result, "requires_grad", False):
            return
        if session.evaluations.evaluating or session.forward is not None or session.elsewhere():
            return
        if self.data.due and function in COMPARED:
            self._look("labels", self.data, self._labelled, function, args, kwargs)
        if self.batch_axis.due and function in COMPARED:
            self.batch_axis.compared(args[1] if len(args) > 1 else kwargs.get("target"))
        if self.loss_graph.due:
            self._look("what a loss is given", self, self._returned, function, args, kwargs, result)

    def _labelled(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.data.compared(function, args[0] if args else kwargs.get("input"),
                           args[1] if len(args) > 1 else kwargs.get("target"), options_of(function, args, kwargs))

    def _returned(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self.settings.due:
            self.settings.compared(function, args, kwargs)
        self.loss_graph.returned(result)
        if function in FUNCTIONS:
            self.loss_graph.compared(function, args, kwargs)

    def bad_loss(self) -> None:
        """backward is about to run on what is not finite."""
        # A step that is not recorded has no input of its own: numbers would go into a later one.
        if not self.enabled or self.session.idle[TRAIN]:
            return
        self._look("the model's input", self.data, self._bad_loss)

    def _bad_loss(self) -> None:
        self.data.bad_loss(self.session.losses.origins.first_input())

    def take_batch(self, batch: Batch | None) -> None:
        """Of `batch_of`: of a training forward. Of several in a step the last one's size counts, and the mark of all
        together: a script may call its model's parts one by one, and the last is given what units of the others
        made of the batch, nothing but zeros once they died. What comes twice counts once: a line search evaluates one
        batch as often as it has to. What was computed with gradients counts only where nothing else came: weights
        that change make another one of the same batch."""
        before, self._batch = self._batch, batch or self._batch
        if batch is None:
            return
        size, mark, computed, elements = batch
        if before is None or before[2]:
            self._marks = {mark}
            return
        earlier = before[1]
        if computed or mark in self._marks:
            mark = earlier
        elif mark is not None:
            self._marks.add(mark)
            mark = None if earlier is None else (earlier * 1000003 ^ mark) & 0xFFFFFFFF
        self._batch = size, mark, False, elements

    def forget_batch(self) -> None:
        """The step that it was given to is not due."""
        self._batch = None
        self.random_numbers.forget()

    def batch_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch | None:
        """What a model is called with; None where that is no tensor."""
        if not self.enabled:
            return None
        tensor = args[0] if args and type(args[0]) is torch.Tensor else first(torch.Tensor, args, kwargs.values())
        if type(tensor) is not torch.Tensor:
            return None
        read: tuple[int, int] | None = READER.batch(tensor) if READER is not None else None
        if read is not None:
            batch: Batch = (*read, not tensor.is_leaf, tensor.numel())
        else:
            if self.session.unread("batch", tensor):
                return None
            size = tensor.shape[0] if tensor.dim() else 1
            mark = None
            if tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel():
                mark = fingerprint(tensor)
            batch = (size, mark, not tensor.is_leaf, tensor.numel())
        if "batch" not in self._topics:
            self.topic("batch", {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape)})
        return batch

    def add_batch(self, batch: Any = None) -> None:
        """The batch that was seen last, or this one; (): none."""
        if batch is None:
            batch, self._batch = self._batch, None
        if batch:
            size, mark, _, elements = batch
            self.add("context/batch_size", size)
            if elements != self._elements:
                self._elements = elements
                self.add("context/batch_elements", elements)
            if mark is not None:
                self.add("context/batch_fingerprint", mark)

    def membership(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer,
                   outside: list[torch.Tensor]) -> None:
        named = dict(zip(map(id, entry.params), entry.named))
        self._groups[entry.serial] = [
            [name for p in g["params"] for name in self._names_of(entry, p, named)] for g in entry.groups(optimizer)
        ]
        self._options(entry, optimizer, force=True)
        of = self.session.names.named
        out = [(p, of(p)) for p in outside]
        self.topic("parameters", {
            "in_no_optimizer": [n.name for p, n in out if n and p.requires_grad],
            "frozen": [n.name for p, n in out if n and not p.requires_grad]
                      + [n.name for p, n in zip(entry.params, entry.named) if not p.requires_grad]})

    @staticmethod
    def _names_of(entry: OptimizerTensors, parameter: torch.Tensor, named: dict[int, NamedParameter]) -> list[str]:
        pieces = entry.pieces.get(id(parameter))
        return [named[id(parameter)].name] if pieces is None else [piece.named.name for piece in pieces]

    def _options(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer, force: bool = False) -> None:
        groups = entry.groups(optimizer)
        if not force and _same_objects(groups, entry.options):
            return
        options = [tuple((k, v) for k, v in g.items() if k not in NOT_OPTIONS) for g in groups]
        try:
            same = not force and options == entry.options
        except Exception as error:      # a tensor of several elements among the options has no truth value
            pass_on(error)
            same = False
        if not same:
            entry.options = options
            self.topic(f"optimizer/{entry.label}", {
                "class": type(optimizer).__name__,
                "groups": [{"parameters": names, "options": {k: _plain(v) for k, v in group}}
                           for names, group in zip(self._groups[entry.serial], options)]})

    def optimizer_step(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer, micro_steps: int,
                       absent: list[str], skipped: bool) -> None:
        """Everything that is known when an optimizer is about to step."""
        if not self.enabled:
            return
        self._options(entry, optimizer)
        groups = entry.groups(optimizer)
        if len(entry.lr_ids) != len(groups):
            entry.lr_ids = [self.id(f"context/lr/{entry.label}/{number}") for number in range(len(groups))]
            entry.step_id = self.id(f"context/optimizer_step/{entry.label}")
        for number, group in enumerate(groups):
            rate = group.get("lr")
            if type(rate) is float:
                self.number(entry.lr_ids[number], rate)
            elif rate is not None:          # a tensor, on a device perhaps
                self.add(f"context/lr/{entry.label}/{number}", rate)
        self.number(entry.step_id, float(entry.steps))
        if micro_steps:
            self.add("context/micro_steps", micro_steps)
        self.add_absent(entry.label, absent)
        if self._kept:
            self._kept = False
            self.add("context/gradients_kept", 1)
        elif self._kept_of.take(entry.serial):
            self.add(f"context/gradients_kept/{entry.label}", 1)
        if skipped:
            self.add("context/skipped", 1)
        if self._uncounted_told != self.uncounted:
            self._uncounted_told = self.uncounted
            self.put_topic("optimizer_uncounted", str(self.uncounted))
        if self.norm is not None:
            norm, self.norm = self.norm, None
            self.add("context/grad_norm", norm)
        for name, number in self.modes.take():
            self.add(name, number)
        self.data.step_ends()
        self.held_out.step_ends()
        self._looked(entry.serial)
        self.add_batch()

    def _looked(self, serial: int) -> None:
        """What was looked at is the step's. Of several optimizers' in one step the first one's, as in `Data`."""
        numbers = self.arguments.take()
        is_first = self.session.steps_closed != self._looked_in
        if self.random_numbers.due:
            self._look("random numbers", self.random_numbers, self.random_numbers.optimizer_steps, serial, is_first)
        if not is_first:
            return
        self._looked_in = self.session.steps_closed
        for name, number in numbers:
            self.add(name, number)
        self.own_losses.step_ends()
        if self.made_anew.due:
            self._look("layers that are made anew", self.made_anew, self.made_anew.step_ends)
        if self.lone.due:
            self._look("parameters that stand alone", self.lone, self.lone.step_ends)
        if self.batch_axis.due:
            self.batch_axis.step_ends()
        if self.loss_graph.due:
            self.settings.step_ends()
            self.loss_graph.step_ends()
