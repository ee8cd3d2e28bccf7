"""Optimizers: the clock of a training, and the place where its tensors are final.

Before an optimizer's update, gradients are accumulated, unscaled, clipped and reduced, and weights are those they were
computed with: everything of a step is taken here, in one go. A step that takes a closure runs forward and backward
inside; then the moment is when the closure returns.
"""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ..steps import TRAIN
from . import deepspeed, huggingface
from . import scaler as _scaler
from .by_hand import HandWritten, living_optimizers
from .dynamo import breaks_graph
from .params import OptimizerTensors, own_count
from .unseen import hidden, unseen

if TYPE_CHECKING:
    from .session import Session

_is_traced = torch.compiler.is_dynamo_compiling   # costs less than is_compiling()
KEEP_AFTER_DEATH = 64 << 20   # bytes of a dead optimizer's parameters that may wait for the end of the run


def _is_closure(value: Any, said: bool) -> bool:
    """Is it what a step calls for forward and backward? A step of the script's own may take a model, which can be
    called too."""
    return said and callable(value) and not isinstance(value, torch.nn.Module)


class _Closure:
    """The closure that a step is given, called through us. In all else it is the script's own: it may count its calls
    in an attribute, or be asked what class it is."""

    __slots__ = "_own", "_call"

    def __init__(self, own: Any, call: Any) -> None:
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "_call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_own"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_own"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_own"), name)


class Optimizers:
    """Every optimizer that was made or has stepped, and what happens around their steps."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # id(optimizer) -> OptimizerTensors. Whoever goes through them takes a list first: an optimizer that its
        # scheduler holds dies when the garbage is collected, at any object that is made meanwhile.
        self.entries: dict[int, OptimizerTensors] = {}
        self._departed: list[Any] = []    # of optimizers that died since the last one was made, if small
        self.scaler: Any = None    # the GradScaler whose step() is running
        self._inside: Any = None    # the optimizer that is stepping
        self.turn: Any = None    # of a step that is made group by group (deepspeed.py)
        self._closures = 0             # closures running inside its step()
        self._serial = 0
        self.stepped = 0               # steps of all of them
        self._by_hand: Any = None
        self._said_at = 0              # and when the script last said that a step ends
        self._labels: dict[str, int] = {}

    def with_tensors(self) -> list[OptimizerTensors]:
        """What there is to record when the run ends."""
        return [e for e in [*self.entries.values(), *self._departed] if e.params and not e.ignored]

    @unseen
    def made(self, optimizer: torch.optim.Optimizer) -> OptimizerTensors | None:
        """Knows the model from here on, so that its first forward is seen already."""
        if not self.session.listening or torch.utils.data.get_worker_info() is not None:
            return None
        self.session.unknown.forget()
        entry = self.entry_of(optimizer)
        params = [p for g in optimizer.param_groups for p in g["params"]]
        self.session.names.resolve(params, search=not self.session.explicit)
        if not self.session.explicit or any(map(self.session.names.named, params)):
            self.session.clock.knows(entry.serial)
        self.session.entries.follow(self.session.names)
        if self.session.run is not None:
            self.session.modules.install(self.session.names)
        return entry

    def find(self) -> None:
        """Those that were made before the watch began and have a parameter of the models that were handed over."""
        for optimizer in living_optimizers():
            params = [p for g in optimizer.param_groups for p in g["params"]]
            if any(map(self.session.names.named, params)):
                self.made(optimizer)

    def step_ends(self) -> None:
        """The script says so. Where no optimizer has stepped since it last did, it updates by hand."""
        if self.stepped == self._said_at:
            self._record_by_hand()
        self._said_at = self.stepped

    def _record_by_hand(self) -> None:
        if self._by_hand is None:
            self._by_hand = HandWritten()
        if not self._by_hand.look(self.session.names):
            self.session.lost(
                "unsupported",
                1,
                "tdbg.step(): no optimizer has stepped, and no model with gradients is known: "
                "tdbg.attach(model) says which one it is",
            )
            return
        entry = self.entry_of(self._by_hand)
        entry.count(self._by_hand)
        self._capture(entry, self._by_hand)
        self._stepped(entry, False)

    def entry_of(self, optimizer: torch.optim.Optimizer) -> OptimizerTensors:
        entry = self.entries.get(id(optimizer))
        if entry is not None and entry.ref() is optimizer:
            return entry
        huggingface.patch(self.session)
        deepspeed.patch(self.session)
        _scaler.patch_sharded(self.session)
        base = type(optimizer).__name__
        used = self._labels.get(base, 0)
        self._labels[base] = used + 1
        self._serial += 1
        entry = OptimizerTensors(self.session, self._serial, base if used == 0 else f"{base}_{used}")
        key = id(optimizer)
        entry.ref = weakref.ref(optimizer, lambda _: self._died(key))
        self.entries[key] = entry
        self._departed = []
        return entry

    def _died(self, key: int) -> None:
        # Training in a function that returns leaves nothing to record the final weights from at exit. Small
        # models may wait for it; a large one is not kept in memory for our sake.
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.session.clock.gone(entry.serial)
            self.session.losses.forget(entry.serial)
        if (
            entry is not None
            and entry.params
            and entry.total_bytes <= KEEP_AFTER_DEATH
            and self.session.run is not None
        ):
            self._departed.append(entry)

    def own_count(self) -> tuple[int, str] | None:
        """(how often the one that was stepped most has been, its label), as their own states say; None: none keeps a
        count."""
        found = [(count, entry.label) for entry in list(self.entries.values())
                 if (optimizer := entry.ref()) is not None and (count := own_count(optimizer)) is not None]
        return max(found, default=None)

    def steps_of(self, optimizer: torch.optim.Optimizer) -> int:
        entry = self.entries.get(id(optimizer))
        return entry.steps if entry is not None else 0

    @breaks_graph
    def pre(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _is_traced() or not self.session.listening or self.session.trains_elsewhere():
            return None
        begun = perf_counter()
        try:
            return self._before_step(optimizer, args, kwargs)
        except BaseException as error:
            self.session.guard.failed("optimizer step", error)
            return None
        finally:
            self.session.overhead.spent += perf_counter() - begun

    @unseen
    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.session.ensure_open():
            return None
        entry = self.entry_of(optimizer)
        if self.turn is not None:
            self._before_turn(entry, optimizer)
            return None
        if self._is_nested(entry, optimizer):
            entry.nested += 1
            if self._inside is not entry:
                self.session.clock.gone(entry.serial)      # steps with the other one, and never by itself
            return None
        entry.count(optimizer)
        entry.nested = 0
        self._inside = entry
        closure = kwargs["closure"] if "closure" in kwargs else args[1] if len(args) > 1 else None
        if closure is None or not _is_closure(closure, "closure" in kwargs or entry.takes_closure(optimizer)):
            self._capture(entry, optimizer)
            return None
        # LBFGS, and Lightning with every optimizer, run forward and backward inside step(): gradients exist
        # only when the closure returns, and the weights are still those they were computed with.
        if self.session.forward is None and self.prepare(entry, optimizer):
            self.session.clock.about_to_step(entry.serial)

        def watched(*a: Any, **k: Any) -> Any:
            self._closures += 1
            try:
                loss = closure(*a, **k)
            finally:
                self._closures -= 1
            begun = perf_counter()
            try:
                if self.session.listening and self._inside is entry:
                    with hidden():
                        self._capture(entry, optimizer, closure=True)
            except BaseException as error:
                self.session.guard.failed("optimizer closure", error)
            self.session.overhead.spent += perf_counter() - begun
            return loss

        given = _Closure(closure, watched)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": given}
        return (args[0], given, *args[2:]), kwargs

    def _before_turn(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer) -> None:
        """One group of several steps, by itself: all are one step, and only now this one's gradients are there."""
        self._inside, entry.nested = entry, 0
        entry.whole = self.turn.groups
        if self.turn.is_first:
            entry.count(optimizer)
            self._capture(entry, optimizer)
        elif self.session.forward is None and self.session.clock.due and entry.serial in self.session.clock.begun:
            entry.capture_pieces(optimizer)

    def _is_nested(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer) -> bool:
        """An optimizer inside another's step (Lookahead), or a subclass's step() that calls its parent's."""
        outer = self._inside
        if outer is None or outer is entry:
            return outer is not None
        entry.refresh(optimizer)
        return bool(entry.params) and {id(p) for p in entry.params} <= {id(p) for p in outer.params}

    @property
    def runs_closure(self) -> bool:
        """Is a step open whose optimizer has called the script's closure?"""
        return self._closures > 0

    def left_by_exception(self) -> None:
        # Forward or backward outside a closure: whatever step() we think we are in has been left.
        if not self._closures:
            self._inside = None

    def prepare(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer) -> bool:
        if entry.ignored:
            return False
        self.session.evaluations.close()
        if entry.shape_key is None and self.session.explicit:
            params = [p for g in optimizer.param_groups for p in g["params"]]
            self.session.names.resolve(params, search=False)
            if not any(self.session.names.named(p) for p in params):
                entry.ignored = True
                return False
        entry.refresh(optimizer)
        return True

    def _capture(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer, closure: bool = False,
                 skipped: bool = False) -> None:
        self.session.modules.unsettle()
        if self.session.forward is not None:
            self.session.forward.optimizer_steps(entry, optimizer, skipped)
            return
        if not self.prepare(entry, optimizer):
            return
        unscale, found = None, getattr(optimizer, "found_inf", None)
        if isinstance(found, torch.Tensor):
            # A fused optimizer under GradScaler unscales and skips by itself, with the gradients still scaled here.
            unscale = getattr(optimizer, "grad_scale", None)
            skipped = skipped or (not self.session.on_device(found) and bool(found))
        entry.skipped = skipped
        if not skipped and len(self.entries) == 1 and self._has_no_gradient(entry):
            self.session.context.uncounted += 1
        if closure:
            due = self.session.clock.train()
        else:
            due = self.session.clock.about_to_step(entry.serial)
        if self.session.evaluations.held:
            self.session.evaluations.between_optimizers()
        if not due:
            self.session.losses.discard()
            self.session.context.discard()
            self.session.context.forget_batch()
            return
        with self.session.gathering():
            self._put(entry, optimizer, unscale, found, skipped)
        self.session.black_box.before_update(entry.params)

    @staticmethod
    def _has_no_gradient(entry: OptimizerTensors) -> bool:
        """A bad batch was left out, say: the optimizer does nothing, and does not count the step."""
        return bool(entry.params) and not entry.flat and all(p.grad is None for p in entry.params)

    def _put(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer, unscale: torch.Tensor | None,
             found: torch.Tensor, skipped: bool) -> None:
        """Everything of a step that is due."""
        micro = self.session.losses.led_to(entry.serial)
        repeated = entry.times(self.session.steps_closed)
        losses = self.session.losses.flush_train(entry.serial, repeated)
        sub = repeated + 1 if repeated else 0
        absent = entry.capture(sub, unscale, losses)
        if entry.flat:
            entry.capture_own(sub)
            absent = absent + entry.capture_pieces(optimizer, sub)
        if not repeated:
            if self.session.modules.active and not skipped:
                self.session.modules.about_to_step(entry.params)
            self.session.untrained.capture(sub)
            if self.session.state_wanted:
                entry.capture_state(optimizer)
            self.session.context.optimizer_step(entry, optimizer, micro, absent, skipped)
            scale = _scaler.scale_of(self.scaler) if self.scaler is not None else None
            if scale is not None:
                self.session.context.add("context/loss_scale", scale, every_step=True)
        self.session.context.flush()
        if isinstance(found, torch.Tensor) and self.session.on_device(found):
            self.session.skipped_if(found)

    @breaks_graph
    def post(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_traced() or self.session.run is None or not self.session.listening or self.session.elsewhere():
            return
        begun = perf_counter()
        try:
            entry = self.entries.get(id(optimizer))
            if entry is None or entry.ignored:
                return
            if entry.nested:
                entry.nested -= 1
                return
            if self.turn is not None and not self.turn.is_last:
                self._inside = None
                return
            self._stepped(entry, entry.skipped)
        except BaseException as error:
            self.session.guard.failed("after an optimizer step", error)
        finally:
            self.session.overhead.spent += perf_counter() - begun

    @unseen
    def _stepped(self, entry: OptimizerTensors, skipped: bool) -> None:
        self._inside = None
        self.stepped += 1
        self.session.black_box.stepped(alone=len(self.entries) == 1)
        self.session.context.updated(entry.serial, entry.params, alone=len(self.entries) == 1)
        if self.session.clock.mode != TRAIN or self.session.forward is not None:
            return                          # nothing was captured: an error, counted already
        alone = self.session.clock.previous is None and self._nobody_left(entry)
        if not self.session.clock.has_stepped(entry.serial, skipped, alone):
            self.session.losses.numbering.next_optimizer(entry.serial)

    def _nobody_left(self, entry: OptimizerTensors) -> bool:
        """Before the first step has closed: has every trainable parameter we know of been stepped?"""
        serials = self.session.clock.stepped | {entry.serial}
        stepped = {id(p) for e in list(self.entries.values()) if e.serial in serials for p in e.members()}
        watched = () if self.session.explicit else list(self.entries.values())
        # Frozen or not: a discriminator may be just while it is the generator's turn.
        made = (p for e in watched if (o := e.ref()) is not None for g in e.groups(o) for p in g["params"])
        known = (p for root in self.session.names.roots for p, _ in root.parameters() if p.requires_grad)
        return not any(id(p) not in stepped for source in (made, known) for p in source)

    def owners_to_be(self) -> dict[int, set[int]]:
        """By id() of a parameter: the optimizers that may step in the open step and have not. Empty where there are no
        two."""
        if len(self.entries) < 2:
            return {}
        found: dict[int, set[int]] = {}
        clock, serials = self.session.clock, set()
        for entry in list(self.entries.values()):
            optimizer = entry.ref()
            if optimizer is None or entry.ignored or not clock.may_step(entry.serial):
                continue
            params = entry.members() if entry.pieces else [p for g in optimizer.param_groups for p in g["params"]]
            for parameter in params:
                found.setdefault(id(parameter), set()).add(entry.serial)
                serials.add(entry.serial)
        return found if len(serials) > 1 else {}

    def covered(self, serial: int, stepped: set[int]) -> bool:
        """Have the optimizers that stepped updated all that this one could? (One inside another, one that replaced
        another.)"""
        entries = list(self.entries.values())
        mine = next((e.ref() for e in entries if e.serial == serial), None)
        done = {id(p) for e in entries if e.serial in stepped for p in e.params}
        return mine is None or all(id(p) in done for g in mine.param_groups for p in g["params"])

    @unseen
    def skipped(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        """GradScaler found an infinity and did not call the optimizer: a step all the same."""
        if not self.session.ensure_open() or self.session.elsewhere():
            return
        entry = self.entry_of(optimizer)
        entry.count(optimizer)
        self.scaler = scaler
        try:
            self._capture(entry, optimizer, skipped=True)
        finally:
            self.scaler = None
        if not entry.ignored:
            self._stepped(entry, True)
