"""One training under watch: wires the pieces of the torch adaptor to a run, which the first training event opens: a
root's forward, backward or step of an optimizer's model.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as _optim

from ..inert import is_ours
from ..plan import asked_steps
from ..session import NOT_WANTED, LoopSession
from ..steps import EVAL, TRAIN, Clock
from ..structure import first
from ..watch import OFF, OPEN
from . import cuda as _cuda
from . import cuda_graphs as _cuda_graphs
from . import losses as _losses
from . import random_numbers as _random_numbers
from . import ranks
from . import scaler as _scaler
from .black_box import BlackBox
from .by_hand import patch_fastai
from .context import Context
from .dynamo import has_compiled
from .entries import Entries
from .evaluations import Evaluations
from .forward import ForwardSteps
from .modules import ModuleTensors
from .names import Names, is_wrapper
from .optimizers import Optimizers
from .other_devices import Final, Lane
from .output_gradients import OutputGradients
from .params import Unread, dtype_name, local, put_odd
from .shards import whole_of
from .unknown import UnknownModels
from .unseen import unseen
from .untrained import Untrained
from .verify import Verify

if TYPE_CHECKING:
    from .names import Root

BEFORE_CLIP = 2


class Session(LoopSession):
    """:param open_run, options: a Watch's
    :param explicit: only optimizers of the models handed over by `add_model` are watched.
    :param force_lane: host tensors take a device's lane (tests): True, that of devices without kernels of ours; "cuda",
        a GPU's.
    Threads: one of them trains; events of the others are ignored, their optimizers' steps counted as lost.
    """

    accepts = torch.nn.Module, "a torch.nn.Module"
    clock: Clock
    context: Context

    def __init__(self, open_run: Callable[..., Any], options: dict[str, Any] | None = None, explicit: bool = False,
                 force_lane: bool = False) -> None:
        super().__init__("torch", open_run, options, Context)
        self.explicit, self.force_lane = explicit, force_lane
        self.has_trained = False
        self.attached = False          # by the script, which says that it trains
        self.forwards = self.backwards = 0           # that were seen
        self.names = Names()
        self.entries = Entries(self)
        self.modules = ModuleTensors(self)
        self.losses = _losses.Losses(self)
        self.optimizers = Optimizers(self)
        self.clock = Clock(self._begin, self._end, self.optimizers.covered)
        self.untrained = Untrained(self)
        self.unknown = UnknownModels()
        self.forward: ForwardSteps | None = None    # where the plan says step_by: forward
        self.evaluations = Evaluations(self)
        self.black_box = BlackBox(self)
        self.verify: Verify | None = None           # where TDBG_VERIFY_EVERY says so
        self.output_gradients = OutputGradients(self)
        self._forward: int | None = None    # mode of the root's forward that runs
        # weak: what the last training forward gave, until backward
        self._undifferentiated: weakref.ref[torch.Tensor] | None = None
        # id()s of what was called to train in the open step, where outputs are recorded
        self.trained: set[int] = set()
        self.needs_device_lane = force_lane
        self._lane_lock = threading.Lock()
        self._sizes: dict[int, int] = {}
        self.compiled_before = False   # something was, when the watch began
        self._derived: dict[int, Any] = {}    # id -> derived statistics that the plan wants of it
        self._derives = False          # the plan wants derived statistics of anything
        self._clip_wanted = self.buffers_wanted = False
        self.unread = Unread(self.lost)
        self.state_wanted = False
        self._handles: list[Any] = []
        self._opens_evaluating = False

    # Arming and opening -------------------------------------------------------------------------------------

    def install(self) -> None:
        self.compiled_before = has_compiled()
        for piece in (_losses, _scaler, _random_numbers, _cuda_graphs):
            piece.patch(self.patches, self)
        self.entries.patch(self.patches)
        self.patches.replace([torch.optim.Optimizer], "__init__", self.watch_init)
        self._handles = [nn_module.register_module_module_registration_hook(self._registered),
                         _optim.register_optimizer_step_pre_hook(self.optimizers.pre),
                         _optim.register_optimizer_step_post_hook(self.optimizers.post)]

    def watch_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An optimizer's __init__, that tells us of it."""
        def __init__(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self.guarded("a new optimizer", self.optimizers.made, optimizer)
        return __init__

    def _registered(self, parent: torch.nn.Module, name: str, child: torch.nn.Module) -> None:
        """A wrapper (DDP, torch.compile) closed around a model we know: the script will call that one."""
        try:
            if self.listening and is_wrapper(parent):
                for root in self.names.roots:
                    if child is root.entry:
                        root.enter_through(parent)
                        self.entries.follow(self.names)
        except BaseException as error:
            self.guard.failed("wrapping a model", error)

    def watch(self, models: list[torch.nn.Module]) -> None:
        """What the script handed over: where there is any, optimizers of nothing else are watched."""
        self.explicit |= bool(models)
        self.attached = True
        self.unknown.forget()
        for model in models:
            self.add_model(model)
        if models:
            self.names.resolve([])
            self.optimizers.find()

    def add_model(self, model: torch.nn.Module) -> Root:
        root = self.names.add_root(model)
        self.entries.follow(self.names)
        if self.run is not None:
            self.modules.install(self.names)
        return root

    def keep_step(self, because: str) -> None:
        """Writes the black box of the next step whose forward begins."""
        self.black_box.asked(because)

    def adaptor(self) -> str:
        return f"torch {torch.__version__}"

    def rank(self) -> tuple[int, int]:
        return ranks.of_process()

    def optimizer_count(self) -> tuple[int, str] | None:
        return self.optimizers.own_count()

    def begins_with_evaluation(self) -> bool:
        return self._opens_evaluating

    def may_open(self) -> bool:
        return torch.utils.data.get_worker_info() is None

    def _opened(self) -> None:
        super()._opened()
        self.run.share_threads(torch.get_num_threads())
        self._clip_wanted = self.keeps("gradients_before_clip")
        self.black_box.opened(self.plan.get("black_box_bytes", 0), asked_steps("TDBG_FLIGHT", self.plan, "flight"))
        if interval := asked_steps("TDBG_VERIFY_EVERY", self.plan, "verify_every"):
            self.verify = Verify(self, interval)
        self.buffers_wanted = self.keeps("buffers")
        self._derives = any(c.get("statistics") for c in self.plan.get("collections", []))
        self.state_wanted = self.run.wants("optimizer/x/exp_avg", "optimizer", "", 0)
        step_by = self.plan.get("step_by", "optimizer")
        if step_by == "forward":
            self.forward = ForwardSteps(self)
        self.clock.by_call = step_by == "call"
        self.context.started()
        self.losses.origins.opened()
        self.modules.install(self.names)

    def define(self, name: str, short: str, kind: str, module_kind: str, dtype: torch.dtype, shape: Iterable[int],
               variable: bool = False, unit_axis: int = -1, aliases: Sequence[str] = (),
               collections: Sequence[str] = (), **part: Any) -> int:
        """Run.define's arguments; `part`: whole_shape and part_begin, of a tensor that lies on several ranks."""
        shape = list(shape)
        ident: int = self.run.define(name, short, kind, module_kind, dtype_name(dtype), shape, variable, unit_axis,
                                list(aliases), list(collections), **part)
        if ident != NOT_WANTED:
            size: int = dtype.itemsize
            for d in shape:
                size *= d
            self._sizes[ident] = size
            # Counts and sums of complex numbers there are none: the run says so of those that it reads.
            if (
                self._derives
                and not dtype.is_complex
                and (statistics := self.run.statistics(ident, unit_axis, len(shape)))
            ):
                self._derived[ident] = statistics
        return ident

    def on_device(self, tensor: torch.Tensor) -> bool:
        return bool(self.force_lane) or tensor.device.type != "cpu"

    def put_device(self, ids: list[int], tensors: Sequence[torch.Tensor], sub: int = 0, point: int = 0,
                   unchanged: bool | None = None) -> None:
        self._lane_for(tensors[0]).put_device(ids, tensors, sub, point, unchanged)

    def put_device_scalar(self, ident: int, tensor: torch.Tensor, sub: int = 0, every_step: bool = True) -> None:
        self._lane_for(tensor).put_device_scalar(ident, tensor, sub, every_step)

    def skipped_if(self, found: torch.Tensor) -> None:
        """The open step's update was skipped if this number on a device is not 0."""
        self._lane_for(found).skipped_if(found)

    def raw_due(self, ident: int) -> bool:
        """Are raw values of it due in the open step? Never where the step is not in the run yet, but in a lane."""
        mode = self.open_mode
        return self.port is self.run and mode is not None and self.run.raw_due(ident, mode, self._mode_steps[mode])

    def made_copy(self, size: int) -> None:
        """What was put last is a copy of this many bytes, made for us."""
        if self.port is not self.run:
            self.port.made_copy(size)

    def _lane_for(self, tensor: torch.Tensor | None) -> Any:
        """The port, which from here on is a lane in front of the run: also in a step that began without any tensor on a
        device."""
        if self.port is self.run:
            with self._lane_lock:               # autograd has a thread for each device
                if self.port is self.run:
                    self.needs_device_lane = True
                    self.modules.unsettle()
                    lane = self._new_lane(None if tensor is None else tensor.device.type)
                    lane.adopt(self.open_mode)
                    self.port = lane
        return self.port

    def _new_lane(self, kind: bool | str | None = None) -> Any:
        if self.force_lane:
            kind = self.force_lane
        elif kind is None:
            kind = "cuda" if torch.cuda.is_initialized() else ""
        lane = _cuda.CudaLane if kind == "cuda" else Lane
        return lane(self.run, self.forecast, self._mode_steps, self._sizes, self._derived)

    @contextlib.contextmanager
    def gathering(self) -> Iterator[None]:
        """Tensors on a device that are put meanwhile go together: nothing changes them before its end."""
        port = self.port
        if port is self.run:
            if not self.needs_device_lane or self.open_mode is None:
                yield
                return
            port = self._lane_for(None)
        port.gather()
        try:
            yield
        finally:
            port.launch()

    def out_of_sight(self, modules: list[torch.nn.Module]) -> contextlib.AbstractContextManager[None]:
        """These modules have no hooks of ours while the returned context lasts."""
        return _cuda_graphs.unhooked(modules, is_ours)

    def capture_ended(self) -> None:
        """The script has captured a CUDA graph: a step that is wholly in it ends with it."""
        if self.open_mode is None or self.port is self.run:
            return
        if self.clock.mode == TRAIN and not self.clock.stepped:
            self.port.keep_part()           # no optimizer is in it
        elif self.port.was_captured():
            self.clock.close()

    def graph_replayed(self, graph: Any) -> None:
        """A CUDA graph with steps, or a part of one, in it was launched."""
        part, whole = self.port.holds_part(graph), self.port.holds(graph)
        if not part and not whole:
            return
        if self.elsewhere():
            self.port.replayed_elsewhere(graph)
            self.lost("unsupported", 1, "a CUDA graph with tensors of the training was launched in another thread than "
                                        "the one that is recorded")
            return
        if part:
            due = self.clock.train()
            self.port.part_replayed(graph, due)
        if not whole:
            return
        self.clock.close()
        for _ in self.port.replayed(graph):
            self.step_is_over()
        self.take_request()

    # The script's own values --------------------------------------------------------------------------------

    @unseen
    def record_value(self, name: str, tensor: Any, collection: str) -> None:
        value = local(torch.as_tensor(tensor).detach())
        if self.unread(name, value, meta(value)):       # somebody asked for it
            return
        value = value.resolve_conj().resolve_neg()      # whose bytes do not say so
        ident = self.own_id(name, collection, (name, value.dtype, value.dim()), lambda: self.define(
            name, name, "", "", value.dtype, value.shape, True, -1, [], [collection]))
        if ident is not None:
            if self.open_mode is None:
                value = value.clone()      # it waits for a step, and the script may write into it meanwhile
            self.soon(lambda: put_odd(self, ident, value, 0, 0, name))

    @unseen
    def record_scalar(self, name: str, value: Any, collection: str) -> None:
        ident = self.context.id("scalar/" + name, collection)
        number: Any = value.detach() if isinstance(value, torch.Tensor) else float(value)
        if isinstance(number, torch.Tensor):
            whole = whole_of(number)
            why = "this rank has a share of it" if whole is None else meta(number)
            if self.unread("scalar/" + name, number, why):
                return
            number = whole
        if isinstance(number, torch.Tensor) and self.open_mode is None:
            number = number.clone()        # likewise
        self.soon(lambda: self.put_number(ident, number))

    def put_value(self, ident: int, tensor: torch.Tensor, sub: int = 0) -> None:
        tensor = local(tensor)
        if self.on_device(tensor):
            self.put_device([ident], [tensor], sub)
        elif tensor.numel():
            self.port.put_ptr(ident, tensor.data_ptr(), dtype_name(tensor.dtype), list(tensor.shape),
                              list(tensor.stride()), sub, 0)

    def put_number(self, ident: int, number: Any) -> None:
        if not isinstance(number, torch.Tensor):
            self.port.put_scalars([ident], [number], 0)
        elif self.on_device(number):
            self.put_device_scalar(ident, number, every_step=False)
        else:
            self.port.put_scalars([ident], [number.item()], 0)

    # Steps --------------------------------------------------------------------------------------------------

    def _begin(self, mode: int) -> bool:
        self.modules.unsettle()
        if self.needs_device_lane and self.port is self.run:
            self.port = self._new_lane()
        due = self.begin_step(mode)
        if mode == TRAIN:
            self.has_trained = True
        if self.waiting.puts:
            self.waiting.write()
        return due

    def _end(self, mode: int, skipped: bool) -> None:
        self.modules.unsettle()
        if mode == TRAIN:
            self.losses.put_left()
        if self.port is not self.run and self.port.was_captured():
            self._mode_steps.add(mode, -1)     # it has not happened: its replays will
        self.port.end_step(skipped)
        self.step_is_over()
        self.modules.arm(False)
        if mode == TRAIN:
            self._undifferentiated = None
            self.trained.clear()
            self.losses.step_ended()
            self.entries.step_ended()
            self.black_box.step_ended()
            self.training_step_is_over(self.port is not self.run and self.port.lags())
            if self.verify is not None:
                self.verify.step_over()
            if self.evaluations.held:
                self.evaluations.put_held()
        self.take_request()

    def sub(self) -> int:
        """Sub-key of what happens now: 0 up to the first backward of a step, n + 1 after the n-th, whichever optimizer
        has stepped meanwhile."""
        if self.clock.evaluates or self.forward is not None:
            return 0
        n = self.losses.passes
        return n + 1 if n else 0

    def place(self) -> tuple[int, int | None, int]:
        return self.steps_closed, self.clock.mode, self.losses.passes

    # Events: forward and backward ---------------------------------------------------------------------------

    def forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.run is None:
            self._opens_evaluating = not module.training
        if not self.ensure_open() or self.elsewhere(trains=module.training and torch.is_grad_enabled()):
            return
        twin = bool(self.entries.twins) and module in self.entries.twins
        if twin and module.training:
            return                   # a target network
        if self.forward is not None:
            self.forward.begins(module, args, kwargs)
            return
        self.forwards += 1
        self.optimizers.left_by_exception()
        evaluation = self.entries.evaluates(module)
        self.evaluations.close(next_evaluates=evaluation)
        self.context.modes.forward_begins(module, evaluation)
        if evaluation:
            self._forward = EVAL
            self.evaluations.begins(module, args, kwargs, twin)
        elif torch.is_grad_enabled():
            self._forward = TRAIN
            self.clock.training_goes_on()
            if not self.idle[TRAIN]:
                self.context.saw_batch(args, kwargs, module)
                self.black_box.forward_begins(module, args, kwargs)
            if self.verify is not None:
                self.verify.forward_begins(module, args, kwargs)
            if self.modules.active:
                self.modules.arm(self.clock.train())
                self.trained.add(id(module))
        else:
            self.modules.arm(False)

    def evaluation_goes_on(self) -> None:
        """Another part of a model that is not called as a whole, in the evaluation that runs."""
        if self.run is not None:
            self._forward = EVAL

    def forward_ended(self, output: Any) -> None:
        if self.run is None or self.elsewhere():
            return
        self.modules.forward_ended()
        self.context.batch_axis.forward_ended()
        mode, self._forward = self._forward, None
        if mode == TRAIN:
            if self.verify is not None:
                self.verify.forward_ended(output)
            value = output if type(output) is torch.Tensor else first(torch.Tensor, (output,))
            self._undifferentiated = None if value is None else weakref.ref(value)
            self.losses.of_training(output)
            self.context.gave(output)
        elif mode is not None:
            self.evaluations.ended(output)

    def awaits_backward(self) -> bool:
        """Does what a training forward gave live, and backward was not called since?"""
        return self._undifferentiated is not None and self._undifferentiated() is not None

    @unseen
    def before_backward(self, tensors: Sequence[torch.Tensor], creates_graph: bool = False) -> None:
        self.modules.unsettle()
        if not self.listening or _losses.in_backward() != -1:
            return
        self.backwards += 1
        if not self.optimizers.entries and not patch_fastai(self) and not self.attached:
            self.guarded("models without an optimizer", self.unknown.found_by, tensors)
            return
        if not self.ensure_open():
            return
        if self.elsewhere(trains=True):
            return
        if self.forward is not None:
            self.losses.backward(tensors)
            return
        self.optimizers.left_by_exception()
        self._undifferentiated = None
        self.context.before_backward(tensors)
        self.context.differentiated(tensors)
        self.evaluations.differentiated(tensors)
        self.losses.backward(tensors)
        if self.verify is not None:
            self.verify.backward_begins((tensors,) if isinstance(tensors, torch.Tensor) else tensors, creates_graph)

    def after_backward(self) -> None:
        if self.verify is not None and self.listening and _losses.in_backward() == -1 and not self.elsewhere():
            self.verify.backward_ended()

    @unseen
    def step_ends(self) -> None:
        """The script says that its step ends here."""
        if not self.ensure_open() or self.forward is not None or self.elsewhere(trains=True):
            return
        self.optimizers.left_by_exception()
        self.evaluations.close()
        self.optimizers.step_ends()
        self.clock.said()

    # Events: clipping ---------------------------------------------------------------------------------------

    @property
    def clip_wanted(self) -> bool:
        """Are gradients before clipping to be recorded? Where the plan keeps a collection `gradients_before_clip`."""
        return self._clip_wanted and self.forward is None and self.state is OPEN and not self.elsewhere()

    @unseen
    def before_clipping(self, parameters: Iterable[torch.Tensor]) -> None:
        """Gradients before clipping (point 2): of the optimizers that have any of these `parameters`. Another one's may
        be those of an earlier step, and are clipped by themselves."""
        clipped = set(map(id, (parameters,) if isinstance(parameters, torch.Tensor) else parameters))
        found = [entry for entry in list(self.optimizers.entries.values())
                 if (optimizer := entry.ref()) is not None and self.optimizers.prepare(entry, optimizer)]
        # Where none has (copies of a library's own), whoever is still to step.
        for entry in [e for e in found if not clipped.isdisjoint(map(id, e.members()))] or found:
            if entry.serial in self.clock.stepped or not any(p.grad is not None for p in entry.params):
                continue
            if self.clock.train():
                entry.capture_gradients(0, BEFORE_CLIP)

    @unseen
    def clipped(self, total_norm: Any) -> None:
        if self.state is OPEN and threading.get_ident() == self._thread and isinstance(total_norm, torch.Tensor):
            norm = total_norm.detach()
            if not hasattr(norm, "_local_tensor"):      # a DTensor's value takes a collective
                self.context.norm = norm.clone()

    # The end ------------------------------------------------------------------------------------------------

    def what_was_seen(self) -> str | None:
        made = [entry.label for entry in list(self.optimizers.entries.values()) if not entry.ignored]
        return self.unknown.why_nothing(self.forwards, self.losses.seen, self.backwards, made)

    @unseen
    def _last_words(self) -> None:
        hangs = self.failed and self.port is not self.run and not self.port.answers()
        if not hangs:
            self.black_box.before_update()      # the script raised before its optimizer stepped
        self.output_gradients.ended()
        if self.verify is not None:
            self.verify.ended()
        if self.forward is not None:
            self.forward.close()
        self.evaluations.close()
        self.clock.over(self._leave_step)
        if not self.has_trained and self.backwards:
            self.lost("unsupported", 1, self.what_was_seen() or "")
        if self.port is not self.run:
            self.port.drain(wait=True)
            if self.exits or hangs:
                self.port.leave()
            if hangs:
                if self.plan.get("record_end", True):
                    self.lost("device_late", sum(len(entry.members()) for entry in self.optimizers.with_tensors()),
                              "the device did not answer when the script had ended with an exception: there are no "
                              "final weights")
                return
            self.port = Final(self.run)
        if self.begin_end():
            taken: set[int] = set()
            for entry in self.optimizers.with_tensors():
                entry.capture_weights(taken)
                taken.update(map(id, entry.members()))
            self.untrained.capture_end()

    def _leave_step(self) -> None:
        """Of a forward after the last update: it is no step, whether outputs are recorded or not."""
        first = self.next_step(TRAIN) <= 1
        self.leave_step()
        self.has_trained &= not first
        self.modules.arm(False)
        if self.evaluations.held:
            self.evaluations.put_held()

    def _words_under_way(self) -> None:
        if self.port is not self.run:
            self.port.drain(wait=True)
            if self.exits:
                self.port.leave()

    def forked(self) -> None:
        super().forked()
        if self.state is OFF:
            self.modules.arm(False)     # the child may have been made in the middle of a step

    def disarm(self) -> None:
        """Takes hooks and patches away; the run, if open, is not touched."""
        self.state = OFF
        self.patches.undo()
        self.losses.origins.closed()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.entries.remove()
        self.unknown.forget()
        self.modules.remove()
        self.context.batch_axis.give_up()
        self.black_box.forget()
        if self.verify is not None:
            self.verify.step_over()
        if self.forward is not None:
            self.forward.remove()


def meta(tensor: torch.Tensor) -> str | None:
    return "on the meta device" if tensor.is_meta else None
