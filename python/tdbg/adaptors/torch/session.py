"""One training under watch: wires the pieces of the torch adaptor to a run.

    ARMED  hooks and patches are in place, nothing is on disk
    OPEN   the first training event (a root's forward, backward or step of an optimizer's model) opened the run
    OFF    ended, disarmed, or the child of a fork
"""

import json
import os
import signal
import sys
import threading
import weakref

import torch
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as _optim

from . import losses as _losses
from . import scaler as _scaler
from .context import Context
from .cuda import Final, Lane
from .forecast import Forecast
from .guard import Guard, say
from .modules import Entries, ModuleTensors
from .names import Names, is_wrapper
from .params import NOT_WANTED, OptimizerTensors, dtype_name
from .patches import Patches
from .steps import EVAL, TRAIN, Clock

ARMED, OPEN, OFF = "armed", "open", "off"
BEFORE_CLIP = 2
KEEP_AFTER_DEATH = 64 << 20   # bytes of a dead optimizer's parameters that may wait for the end of the run


class Session:
    """:param open_run: called once, with the keyword arguments of Run.open; what it raises switches us off.
    :param explicit: only optimizers of the models handed over by `add_model` are watched.
    :param force_lane: host tensors take the device lane (tests).
    Threads: events of other threads than the one that opened the run are ignored.
    """

    def __init__(self, open_run, options=None, explicit=False, force_lane=False):
        self.open_run, self.options = open_run, dict(options or {})
        self.explicit, self.force_lane = explicit, force_lane
        self.state = ARMED
        self.run = self.port = None
        self.plan = {}
        self.guard = Guard(self._adaptor_error, self.disarm)
        self.names = Names()
        self.entries = Entries(self)
        self.modules = ModuleTensors(self)
        self.context = Context(self)
        self.losses = _losses.Losses(self)
        self.clock = Clock(self._begin, self._end)
        self.optimizers = {}           # id(optimizer) -> OptimizerTensors
        self.departed = []             # of optimizers that died since the last one was made, if small
        self.evaluating = False        # the last root forward was an evaluation's, and its step is not closed
        self._eval_with_grad = False
        self.scaler = None             # the GradScaler whose step() is running
        self.needs_device_lane = force_lane
        self.inside = None             # the optimizer that is stepping
        self._closures = 0             # closures running inside its step()
        self._evaluation = 0
        self._sizes = {}
        self._serial = 0
        self._labels = {}
        self._thread = None
        self._ended = False            # or not ours to end
        self._clip_wanted = False
        self.idle = {TRAIN: False, EVAL: False}    # nothing will be due in the next step of this mode
        self._steps_closed = 0
        self._soon = []                # values recorded by the script while no step was open
        self._extras = self._state_wanted = False
        self.patches = Patches()
        self._handles = []

    @property
    def listening(self):
        return self.state is not OFF

    # Arming and opening -------------------------------------------------------------------------------------

    def install(self):
        _losses.patch(self.patches, self)
        _scaler.patch(self.patches, self)
        session = self

        def watch_init(original):
            def __init__(optimizer, *args, **kwargs):
                original(optimizer, *args, **kwargs)
                try:
                    session.optimizer_made(optimizer)
                except Exception as error:
                    session.guard.failed("a new optimizer", error)
            return __init__

        self.patches.replace([torch.optim.Optimizer], "__init__", watch_init)
        self._handles = [nn_module.register_module_module_registration_hook(self._registered),
                         _optim.register_optimizer_step_pre_hook(self._pre),
                         _optim.register_optimizer_step_post_hook(self._post)]

    def _registered(self, parent, name, child):
        """A wrapper (DDP, torch.compile) closed around a model we know: the script will call that one."""
        try:
            if self.listening and is_wrapper(parent):
                for root in self.names.roots:
                    if child is root.entry:
                        root.enter_through(parent)
                        self.entries.follow(self.names)
        except Exception as error:
            self.guard.failed("wrapping a model", error)

    def add_model(self, model):
        root = self.names.add_root(model)
        self.entries.follow(self.names)
        if self.run is not None:
            self.modules.install(self.names)
        return root

    def ensure_open(self):
        if self.run is not None:
            return True
        if self.state is not ARMED or torch.utils.data.get_worker_info() is not None:
            return False
        try:
            self._open()
        except Exception as error:
            self.disarm()
            if self.guard.strict:
                raise
            say(f"nothing is captured: {error}; training goes on")
            return False
        return True

    def _open(self):
        rank, world_size = _rank()
        options = {"adaptor": f"torch {torch.__version__}", "command": list(sys.orig_argv), "rank": rank,
                   "world_size": world_size, **self.options}
        self._thread = threading.get_ident()
        self.run = self.port = self.open_run(**options)
        self.plan = json.loads(self.run.plan() or "{}")
        workers = self.plan.get("include_workers", -1)
        self.state = OPEN
        self.context.enabled = bool(self.plan.get("context", True))
        self._forecast = Forecast(self.plan)
        self._mode_steps = {mode: self.run.mode_step(mode) for mode in (TRAIN, EVAL)}
        self._look_ahead()
        self._clip_wanted = any(c.get("name") == "gradients_before_clip" and c.get("keep")
                                for c in self.plan.get("collections", []))
        self._state_wanted = self.run.wants("optimizer/x/exp_avg", "optimizer", "", 0)
        if self.plan.get("step_by", "optimizer") != "optimizer":
            say("step_by: forward is not supported by the torch adaptor; steps are optimizer steps")
        self.context.started()
        self.modules.install(self.names)
        if 0 <= workers != rank:
            self._ended = True
            self.run.abandon()
            self.disarm()

    def define(self, name, short, kind, module_kind, dtype, shape, variable=False, unit_axis=-1, aliases=(),
               collections=()):
        shape = list(shape)
        ident = self.run.define(name, short, kind, module_kind, dtype_name(dtype), shape, variable, unit_axis,
                                list(aliases), list(collections))
        if ident != NOT_WANTED:
            size = torch.empty((), dtype=dtype).element_size()
            for d in shape:
                size *= d
            self._sizes[ident] = size
        return ident

    def elsewhere(self):
        """Are we in another thread than the training?"""
        return self._thread is not None and threading.get_ident() != self._thread

    def on_device(self, tensor):
        return self.force_lane or tensor.device.type != "cpu"

    def lost(self, cause, tensors, detail):
        if self.run is not None:
            self.run.count_loss(cause, tensors, detail)

    def put_device(self, ids, tensors, sub=0, point=0):
        if self.port is self.run:
            self.needs_device_lane = True      # from the next step on
            self.lost("unsupported", len(ids), "a tensor on a device in a step that began without any")
        else:
            self.port.put_device(ids, tensors, sub, point)

    def put_device_scalar(self, ident, tensor, sub=0):
        if self.port is self.run:
            self.needs_device_lane = True
        else:
            self.port.put_device_scalar(ident, tensor, sub)

    # The script's own values --------------------------------------------------------------------------------

    def soon(self, put):
        """Runs `put` in the open step, or when the next one opens. The caller's value must stay as it is until then."""
        if self.clock.mode is not None:
            put()
        elif len(self._soon) < _losses.MAX_PENDING:
            self._soon.append(put)

    def put_value(self, ident, tensor):
        if self.on_device(tensor):
            self.put_device([ident], [tensor])
        elif tensor.numel():
            self.port.put_ptr(ident, tensor.data_ptr(), dtype_name(tensor.dtype), list(tensor.shape),
                              list(tensor.stride()), 0, 0)

    def put_number(self, ident, number):
        if not isinstance(number, torch.Tensor):
            self.port.put_scalars([ident], [number], 0)
        elif self.on_device(number):
            self.put_device_scalar(ident, number)
        else:
            self.port.put_scalars([ident], [number.item()], 0)

    # Steps --------------------------------------------------------------------------------------------------

    def _look_ahead(self):
        for mode, step in self._mode_steps.items():
            self.idle[mode] = not self._forecast.due(mode, step + 1)

    def _begin(self, mode):
        self._mode_steps[mode] += 1
        if self.needs_device_lane and self.port is self.run:
            self.port = Lane(self.run, self.plan, self._sizes)
        due = self.port.begin_step(mode)
        if self._soon:
            waiting, self._soon = self._soon, []
            for put in waiting:
                put()
        return due

    def _end(self, mode, skipped):
        self.port.end_step(skipped)
        self._steps_closed += 1
        self._look_ahead()
        self.modules.arm(False)
        if mode == TRAIN:
            self.losses.new_step()
            self.entries.step_ended()
        request = self.run.take_request()
        if request is not None:
            self._obey(request)

    def _obey(self, text):
        if json.loads(text).get("action") == "stop":
            say("stopping, as asked")
            # As a launcher on this machine would: handlers that save a checkpoint run, others get the default.
            os.kill(os.getpid(), signal.SIGTERM)

    def sub(self):
        """Sub-key of what happens now: 0 for the first micro-step or evaluation of a step, n + 1 for later ones."""
        if self.clock.mode == EVAL:
            return 0
        n = self._evaluation or self.losses.micro
        return n + 1 if n else 0

    def place(self):
        return self._steps_closed, self.clock.mode, self.losses.micro, self._evaluation

    def _close_evaluation(self):
        if not self.evaluating:
            return
        self.evaluating = False
        due = self.clock.due if self.clock.mode == EVAL else self.clock.evaluate()
        if due:
            self.losses.flush_eval()
            self.context.add_batch()
            self.context.flush()
        self.losses.eval.clear()
        self.context.discard()
        self.clock.close()

    # Events: forward and backward ---------------------------------------------------------------------------

    def forward_begins(self, module, args, kwargs):
        if not self.ensure_open() or self.elsewhere():
            return
        self._left_by_exception()
        self._close_evaluation()
        grad = torch.is_grad_enabled()
        if not module.training:
            self.evaluating, self._eval_with_grad = True, grad
            if not self.idle[EVAL]:
                self.context.saw_batch(args, kwargs)
            if self.modules.active:
                self.modules.arm(self.clock.evaluate())
        elif grad:
            if not self.idle[TRAIN]:
                self.context.saw_batch(args, kwargs)
            if self.modules.active:
                self.modules.arm(self.clock.train())
        else:
            self.modules.arm(False)

    def forward_ended(self):
        if self.run is not None:
            self.modules.forward_ended()

    def before_backward(self, tensors):
        if not self.listening or _losses.in_backward() != -1 or not self.optimizers or not self.ensure_open():
            return
        if self.elsewhere():
            return
        self._left_by_exception()
        if self.evaluating and self._eval_with_grad:
            self.evaluating = False
            self.losses.evaluation_was_training()
            if self.clock.mode == EVAL:
                self.clock.close()
        self._close_evaluation()
        self.losses.backward(tensors)

    # Events: optimizers -------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer):
        """Knows the model from here on, so that its first forward is seen already."""
        if not self.listening or torch.utils.data.get_worker_info() is not None:
            return
        entry = self._entry(optimizer)
        params = [p for g in optimizer.param_groups for p in g["params"]]
        self.names.resolve(params, search=not self.explicit)
        self.entries.follow(self.names)
        if self.run is not None:
            self.modules.install(self.names)
        return entry

    def _entry(self, optimizer):
        entry = self.optimizers.get(id(optimizer))
        if entry is not None and entry.ref() is optimizer:
            return entry
        base = type(optimizer).__name__
        used = self._labels.get(base, 0)
        self._labels[base] = used + 1
        self._serial += 1
        entry = OptimizerTensors(self, self._serial, base if used == 0 else f"{base}_{used}")
        key = id(optimizer)
        entry.ref = weakref.ref(optimizer, lambda _: self._optimizer_died(key))
        self.optimizers[key] = entry
        self.departed = []
        return entry

    def _optimizer_died(self, key):
        # Training in a function that returns leaves nothing to record the final weights from at exit. Small
        # models may wait for it; a large one is not kept in memory for our sake.
        entry = self.optimizers.pop(key, None)
        if entry is not None and entry.params and entry.total_bytes <= KEEP_AFTER_DEATH and self.run is not None:
            self.departed.append(entry)

    def steps_of(self, optimizer):
        entry = self.optimizers.get(id(optimizer))
        return entry.steps if entry is not None else 0

    def _pre(self, optimizer, args, kwargs):
        if self.state is OFF or self.elsewhere():
            return None
        try:
            return self._before_step(optimizer, args, kwargs)
        except Exception as error:
            self.guard.failed("optimizer step", error)
            return None

    def _before_step(self, optimizer, args, kwargs):
        if not self.ensure_open():
            return None
        entry = self._entry(optimizer)
        if self._is_nested(entry, optimizer):
            entry.nested += 1
            return None
        entry.steps += 1
        entry.nested = 0
        self.inside = entry
        closure = kwargs["closure"] if "closure" in kwargs else args[1] if len(args) > 1 else None
        self._evaluation = 0
        if not callable(closure):
            self._capture(entry, optimizer)
            return None
        # LBFGS, and Lightning with every optimizer, run forward and backward inside step(): gradients exist
        # only when the closure returns, and the weights are still those they were computed with.
        if self._prepare(entry, optimizer):
            self.clock.about_to_step(entry.serial)

        def watched(*a, **k):
            self._closures += 1
            try:
                loss = closure(*a, **k)
            finally:
                self._closures -= 1
            try:
                if self.state is OPEN and self.inside is entry:
                    self._capture(entry, optimizer, closure=True)
                    self._evaluation += 1
            except Exception as error:
                self.guard.failed("optimizer closure", error)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def _is_nested(self, entry, optimizer):
        """An optimizer inside another's step (Lookahead), or a subclass's step() that calls its parent's."""
        outer = self.inside
        if outer is None or outer is entry:
            return outer is not None
        entry.refresh(optimizer)
        return bool(entry.params) and {id(p) for p in entry.params} <= {id(p) for p in outer.params}

    def _left_by_exception(self):
        # Forward or backward outside a closure: whatever step() we think we are in has been left.
        if not self._closures:
            self.inside = None

    def _prepare(self, entry, optimizer):
        self._close_evaluation()
        if entry.shape_key is None and self.explicit:
            params = [p for g in optimizer.param_groups for p in g["params"]]
            self.names.resolve(params, search=False)
            if not any(self.names.named(p) for p in params):
                entry.ignored = True
        if entry.ignored:
            return False
        entry.refresh(optimizer)
        return True

    def _capture(self, entry, optimizer, closure=False, skipped=False):
        if not self._prepare(entry, optimizer):
            return
        evaluation = self._evaluation
        if closure:
            due = self.clock.train()
        else:
            due = self.clock.about_to_step(entry.serial)
        if not due:
            self.losses.discard()
            self.context.discard()
            return
        micro = self.losses.micro
        self.losses.flush_train(evaluation)
        sub = evaluation + 1 if evaluation else 0
        unscale, found = None, getattr(optimizer, "found_inf", None)
        if isinstance(found, torch.Tensor):
            # A fused optimizer under GradScaler unscales and skips by itself, with the gradients still scaled here.
            unscale = getattr(optimizer, "grad_scale", None)
            skipped = skipped or (found.device.type == "cpu" and bool(found))
        entry.skipped = skipped
        absent = entry.capture(sub, unscale)
        if not evaluation:
            if not entry.extras_done:
                entry.extras_done = True
                if not self._extras_done():
                    entry.capture_extras()
            if self._state_wanted:
                entry.capture_state(optimizer)
            self.context.optimizer_step(entry, optimizer, micro, absent, skipped)
            scale = _scaler.scale_of(self.scaler) if self.scaler is not None else None
            if scale is not None:
                self.context.add("context/loss_scale", scale)
        self.context.flush()

    def _extras_done(self):
        done, self._extras = self._extras, True
        return done

    def _post(self, optimizer, args, kwargs):
        if self.state is not OPEN or self.elsewhere():
            return
        try:
            entry = self.optimizers.get(id(optimizer))
            if entry is None or entry.ignored:
                return
            if entry.nested:
                entry.nested -= 1
                return
            self._stepped(entry, entry.skipped)
        except Exception as error:
            self.guard.failed("after an optimizer step", error)

    def _stepped(self, entry, skipped):
        self.inside = None
        self._evaluation = 0
        if self.clock.mode != TRAIN:
            return                          # nothing was captured: an error, counted already
        alone = self.clock.expected is None and self._nobody_left(entry)
        if not self.clock.has_stepped(entry.serial, skipped, alone):
            self.losses.next_optimizer()

    def _nobody_left(self, entry):
        """Before the first step has closed: has every trainable parameter we know of been stepped?"""
        serials = self.clock.stepped | {entry.serial}
        stepped = {id(p) for e in self.optimizers.values() if e.serial in serials for p in e.params}
        made = (p for e in self.optimizers.values() if (o := e.ref()) is not None
                for g in o.param_groups for p in g["params"])
        known = (p for root in self.names.roots for p, _ in root.parameters())
        return not any(p.requires_grad and id(p) not in stepped for source in (made, known) for p in source)

    def optimizer_skipped(self, optimizer, scaler):
        """GradScaler found an infinity and did not call the optimizer: a step all the same."""
        if not self.ensure_open() or self.elsewhere():
            return
        entry = self._entry(optimizer)
        entry.steps += 1
        self._evaluation = 0
        self.scaler = scaler
        try:
            self._capture(entry, optimizer, skipped=True)
        finally:
            self.scaler = None
        if not entry.ignored:
            self._stepped(entry, True)

    # Events: clipping ---------------------------------------------------------------------------------------

    def before_clipping(self):
        """Gradients before clipping (point 2), where the plan keeps a collection `gradients_before_clip`."""
        if not self._clip_wanted or self.state is not OPEN or self.elsewhere():
            return
        for entry in list(self.optimizers.values()):
            optimizer = entry.ref()
            if optimizer is None or not self._prepare(entry, optimizer) or entry.serial in self.clock.stepped:
                continue
            if any(p.grad is not None for p in entry.params) and self.clock.train():
                entry.capture_gradients(0, BEFORE_CLIP)

    def clipped(self, total_norm):
        if self.state is OPEN and threading.get_ident() == self._thread and isinstance(total_norm, torch.Tensor):
            norm = total_norm.detach()
            if not hasattr(norm, "_local_tensor"):      # a DTensor's value takes a collective
                self.context.norm = norm.clone()

    # The end ------------------------------------------------------------------------------------------------

    def finish(self, reason, message=""):
        """Closes what is open, records the final weights, seals the run. Idempotent."""
        run, opened = self.run, self.state is OPEN
        if opened:
            try:
                self._last_words(run)
            except Exception as error:
                self.guard.failed("the end of the run", error)
        self.disarm()
        if run is not None and not self._ended:    # disarmed by failures, it has an end all the same
            self._ended = True
            run.end(reason, message)

    def _last_words(self, run):
        self._close_evaluation()
        self.clock.close()
        if self.port is not run:
            self.port.drain(wait=True)
            self.port = Final(run)
        if self.plan.get("record_end", True):
            run.begin_end()
            for entry in [*self.optimizers.values(), *self.departed]:
                if entry.params and not entry.ignored:
                    entry.capture_weights()

    def disarm(self):
        """Takes hooks and patches away; the run, if open, is not touched."""
        self.state = OFF
        self.patches.undo()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.entries.remove()
        self.modules.remove()

    def forked(self):
        """In the child of a fork: it is not the run's worker. One that has not opened may still train."""
        if self.state is OPEN:
            self._ended = True
            self.run.abandon()
            self.state = OFF

    def at_exit(self):
        reason, message = "completed", ""
        # The interpreter leaves an uncaught exception here before atexit runs, whoever replaced sys.excepthook.
        error = getattr(sys, "last_value", None)
        if error is not None and not hasattr(sys, "ps1"):
            reason, message = "exception", f"{type(error).__name__}: {error}"
        try:
            self.finish(reason, message)
        except Exception as failure:
            say(f"while ending the run: {failure}")

    def _adaptor_error(self, text):
        self.lost("adaptor_error", 1, text)


def _rank():
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        try:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except ValueError:
            pass
    return 0, 1
