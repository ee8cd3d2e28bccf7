"""Outputs and inputs of modules, only where the plan wants them. (Gradients of outputs: output_gradients.py.)

Statistics are taken inside the hook: the next module may overwrite its input in place. Inside torch.compile a hook
only appends to a list, which the graph replays as a side effect; the list is read when the root's forward ends.
Values that a compiled graph then overwrites in place are seen after that. A compiled model loses fusion at every
hooked module (x1.13 with all of them): select blocks.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from ..guard import pass_on, say
from ..inert import Inert
from ..session import NOT_WANTED
from ..structure import every
from .dynamo import calls_compiled, has_compiled, was_compiled
from .losses import in_backward
from .names import module_kind, output_unit_axis
from .params import READER
from .uncalled import Uncalled
from .unseen import unseen

if TYPE_CHECKING:
    from .names import Names
    from .session import Session

_Tensor = torch.Tensor
_is_compiling = torch.compiler.is_compiling
# torch.jit.trace calls the model, twice, to compare what it saw: shapes are tensors then, and values are called what
# the variables are called that hold them. That is no forward of the training.
is_tracing = torch._C._is_tracing

# Eager quantisation and the fusing of modules register a module's hooks again on what replaces it, and forget that they
# asked for keyword arguments: a hook is called in either form.
_ABSENT = object()


class _ModuleHook(Inert):
    """Picks up one module's inputs and outputs. `armed` (empty: no, else yes) and `sink` are lists that all hooks
    share, so a call while nothing is due looks up one attribute, and none of the owner's."""

    def __init__(self, owner: Any, name: str, kind: str, wants_input: bool, wants_output: bool,
                 input_collections: Sequence[str]) -> None:
        self.owner, self.name, self.kind = owner, name, kind
        self.input_collections = input_collections
        self.wants_input, self.wants_output = wants_input, wants_output
        self.armed, self.sink = owner.armed, owner.sink
        self.keys = {what: f"{name}_{what}" for what in ("input", "output")}
        self.slots: dict[str, list[Any]] = {"input": [], "output": []}    # by number: where the tensors of one name go
        self.output_only = wants_output and not wants_input
        self.first: Any = None    # the slot of the first output
        self.key = self.keys["output"]

    def give_up(self) -> None:
        self.wants_input = self.wants_output = False

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any = _ABSENT) -> None:
        if not self.armed:
            return
        if output is _ABSENT:
            kwargs, output = None, kwargs
        if kwargs:                       # Hugging Face's models are called with nothing else
            args = (args, kwargs)
        if _is_compiling():
            if self.wants_input:
                self.sink.append((self.name, "input", args))
            if self.wants_output:
                self.sink.append((self.name, "output", output))
            return
        # One tensor, once per forward, into the slot that took it the last time: nearly every call. All else, and
        # whatever goes wrong here, is `ran`'s.
        owner, begun = self.owner, perf_counter()
        if (owner.settled and self.first is not None and type(output) is _Tensor and self.key not in owner.counts
                and in_backward() == -1 and not owner.session.elsewhere()):
            try:
                if owner.put_tensor(self.first, output, owner.sub):
                    owner.counts[self.key] = 1
                    owner.session.overhead.spent += perf_counter() - begun
                    return
            except Exception as error:
                pass_on(error)
        owner.ran(self, module, args, output)
        owner.session.overhead.spent += perf_counter() - begun


class Kept:
    """Copies of what modules gave or took, of a forward whose step is not there yet.

    :param total: [bytes of all such copies]
    :param most: that there may be
    """

    def __init__(self, total: list[int], most: int) -> None:
        self.rows: list[tuple[_ModuleHook, str, torch.Tensor]] = []
        self.left_out = self._bytes = 0
        self._total, self._most = total, most

    def add(self, hook: _ModuleHook, what: str, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        if self._total[0] + size > self._most:
            self.left_out += 1
            return
        self._bytes += size
        self._total[0] += size
        self.rows.append((hook, what, tensor.detach().clone()))

    def __del__(self) -> None:
        self._total[0] -= self._bytes


class ModuleTensors:
    """Hooks on the modules whose outputs or inputs the plan wants."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.armed: list[bool] = []
        self.sink: list[tuple[str, str, Any]] = []
        self.active = False              # anything hooked at all
        self._handles: list[Any] = []
        self._hooked: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._roots: set[Any] = set()
        self._ids: dict[Any, int] = {}
        self._hooks: dict[Any, Any] = {}
        self.counts: dict[Any, int] = {}
        self._place: tuple[int, int | None, int] | None = None
        self.sub = 0
        self.settled = False             # `_place` is `session.place()`, and nothing happens that could change it
        self.put_tensor: Any = None
        self.kept: Kept | None = None    # where what modules give goes instead of into the open step
        self._said = self._said_replicas = False
        self.uncalled = Uncalled(session)

    def install(self, names: Names) -> None:
        """Hooks what is wanted of the roots that are known. Before the first compiled call, or it is ignored."""
        run, hooked = self.session.run, []
        for root in names.roots:
            if root.label in self._roots or root.module is None:
                continue
            self._roots.add(root.label)
            hooked.append(root)
            first_embedding = True
            for name, module in root.modules():
                kind = module_kind(module)
                # What rules about a model's data look at: positions and segments are embedded later than words.
                said = ["model_input"] if module is root.module else []
                if kind == "embedding" and first_embedding:
                    first_embedding = False
                    said.append("embedding_input")
                wants_input = run.wants(f"{name}_input_0", "input", kind, 0, said)
                wants_output = run.wants(f"{name}_output_0", "output", kind, 0)
                if (wants_input or wants_output) and module not in self._hooked:
                    hook = _ModuleHook(self, name, kind, wants_input, wants_output, said)
                    self._hooked.add(module)
                    self._hooks[name] = hook
                    self.uncalled.wants(hook.keys["output" if wants_output else "input"], name, module)
                    self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
                    self.active = True
        if self.session.output_gradients.install(names):
            self.active = True
        if self.active and hooked and not self._said and has_compiled() and (any(map(was_compiled, hooked)) or (
                self.session.compiled_before and any(calls_compiled(root.module) for root in hooked))):
            self._said = True
            say("something was compiled before tdbg was attached: outputs of modules in it are not seen; run under "
                "`tdbg run`, or attach before the first call")
        if self.active and "torch._dynamo" in sys.modules:
            # Without this, a new instance of a class that was compiled before runs the old code, which knows no hooks.
            sys.modules["torch._dynamo"].config.skip_nnmodule_hook_guards = False

    def arm(self, due: bool) -> None:
        if due and not self.armed:
            self.armed.append(True)
        elif not due:
            self.armed.clear()

    def remove(self) -> None:
        self.armed.clear()
        self.uncalled.remove()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.session.output_gradients.remove()

    @unseen
    def ran(self, hook: _ModuleHook, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        try:
            if in_backward() != -1 or is_tracing():
                return                   # recomputed by activation checkpointing (seen before), or traced
            if self.session.elsewhere():
                self._ran_elsewhere(module)
                return
            if hook.wants_input:
                self._put(hook, "input", args)
            if hook.wants_output:
                self._put(hook, "output", output)
        except BaseException as error:
            self.session.guard.failed(f"output of {hook.name}", error, alone=hook.give_up)

    def _ran_elsewhere(self, module: torch.nn.Module) -> None:
        """In another thread than the training's. What evaluates a model beside it (an actor) is no part of the step
        that is open; of DataParallel's replicas it is said that they are not seen."""
        if getattr(module, "_is_replica", False) and not self._said_replicas:
            self.uncalled.stop()
            self._said_replicas = True
            self.session.lost("unsupported", 1, "outputs of DataParallel's replicas, which run in threads of their own")

    def about_to_step(self, parameters: list[torch.Tensor]) -> None:
        """An optimizer is about to update these, in a step that is due."""
        if self._place is not None:
            self.uncalled.saw(self.counts, self._place[0])
        self.uncalled.about_to_step(parameters)

    def forward_ended(self) -> None:
        """Records what compiled modules left in the list."""
        self.unsettle()
        if self.sink:
            rows = list(self.sink)
            self.sink.clear()
            for name, what, value in rows:
                hook = self._hooks.get(name)
                if hook is not None:
                    self._put(hook, what, value)

    def settle(self) -> None:
        """A root's forward begins. Until it ends (or `unsettle` is called) its modules run in one place."""
        self.put_tensor = getattr(self.session.port, "put_tensor", None)
        self.settled = bool(self.armed) and self.put_tensor is not None and self.kept is None
        if self.settled:
            self._look()

    def unsettle(self) -> None:
        """Whatever `Session.place` is made of may change now."""
        self.settled = False

    def _look(self) -> None:
        place = self.session.place()
        if self._place != place:
            if self._place is not None:
                self.uncalled.saw(self.counts, self._place[0])
            self._place, self.sub = place, self.session.sub()
            self.counts.clear()

    def put_kept(self, kept: Kept, due: bool) -> None:
        """The step is there that it belongs to."""
        rows, kept.rows = kept.rows, []
        for hook, what, tensor in rows if due else ():
            self._put(hook, what, tensor)
        if kept.left_out and due:
            self.session.lost(
                "unsupported", kept.left_out, "outputs of forwards in evaluation mode: more than wait for their step"
            )

    def _put(self, hook: _ModuleHook, what: str, value: Any) -> None:
        session = self.session
        if self.kept is not None:
            self.uncalled.saw((hook.keys[what],), session.steps_closed)
            for tensor in plain_tensors(value, functools.partial(session.unread, hook.keys[what])):
                self.kept.add(hook, what, tensor)
            return
        self._look()
        sub, key, slots = self.sub, hook.keys[what], hook.slots[what]
        put_tensor = getattr(session.port, "put_tensor", None)
        if put_tensor is not None and type(value) is torch.Tensor:
            number = self.counts.get(key, 0)
            if number < len(slots) and put_tensor(slots[number], value, sub):
                self.counts[key] = number + 1
                return
        for tensor in plain_tensors(value, functools.partial(session.unread, key)):
            number = self.counts.get(key, 0)
            self.counts[key] = number + 1
            if put_tensor is None or number >= len(slots) or not put_tensor(slots[number], tensor, sub):
                self._put_one(hook, what, number, tensor, sub)

    def _put_one(self, hook: _ModuleHook, what: str, number: Any, tensor: torch.Tensor, sub: int) -> None:
        session, rank = self.session, tensor.dim()
        spec = (hook.keys[what], number, tensor.dtype, rank)
        ident = self._ids.get(spec)
        if ident is None:
            name = f"{hook.name}_{what}_{number}"
            axis = output_unit_axis(hook.kind, rank)
            ident = self._ids[spec] = session.define(
                name, name, what, hook.kind, tensor.dtype, tensor.shape, True, axis, (),
                hook.input_collections if what == "input" else ())
        if READER is not None:
            slots = hook.slots[what]
            while len(slots) <= number:
                slots.append(_capture.TensorSlot(READER))
            slots[number].remember(ident, tensor)
            if hook.output_only:
                hook.first = hook.slots["output"][0]
        if ident == NOT_WANTED or not tensor.numel():
            return
        session.put_value(ident, tensor.detach(), sub)


def plain_tensors(value: Any, unread: Callable[..., bool]) -> Iterator[torch.Tensor]:
    """The plain tensors in what a module took or returned: nested tuples, lists, dicts (ModelOutput), in order.
    `unread`: called with (tensor, why) of what there is no reading of."""
    for tensor in every(torch.Tensor, value, cut=lambda: unread(None, "more than we look through")):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            continue
        if tensor.layout is not torch.strided or tensor.is_quantized:
            unread(tensor, f"layout {tensor.layout}")
        elif tensor.is_conj() or tensor.is_neg():
            unread(tensor, "a conjugate or negated view")
        elif not unread(tensor):
            yield tensor
