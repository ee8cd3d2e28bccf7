"""Outputs and inputs of modules, only where the plan wants them, and the entry into a model.

Entries: a hook pair on what the script calls (the root, or what wraps it), which tells training forwards from
evaluations and sees the batch. A root that is never called itself (a LightningModule) hands its hooks down to
its children.

Statistics are taken inside the hook: the next module may overwrite its input in place. Inside torch.compile a hook
only appends to a list, which the graph replays as a side effect; the list is read when the root's forward ends.
Values that a compiled graph then overwrites in place are seen after that. A compiled model loses fusion at every
hooked module (x1.13 with all of them): select blocks.

What the script makes of a model (copies, files, scripts) has no hooks of ours: `copies.py`.
"""

import copy
import functools
import sys
import weakref

import torch
from torch.nn.modules import module as nn_module

from tdbg import _capture

from ..guard import say
from ..inert import Inert
from ..structure import every
from . import copies
from .dynamo import run_uncompiled
from .losses import in_backward
from .names import module_kind, output_unit_axis, unwrap
from .params import NOT_WANTED, READER, dtype_name

_Tensor = torch.Tensor
_is_compiling = torch.compiler.is_compiling
# torch.jit.trace calls the model, twice, to compare what it saw: shapes are tensors then, and values are called what the
# variables are called that hold them. That is no forward of the training.
_is_tracing = torch._C._is_tracing

# Eager quantisation and the fusing of modules register a module's hooks again on what replaces it, and forget that they
# asked for keyword arguments: a hook is called in either form.
_ABSENT = object()
MAX_SEARCHES = 8       # for copies of a model; each looks at every object that there is


class _EntryPre(Inert):
    def __init__(self, entries):
        self.entries = entries

    def __call__(self, module, args, kwargs=None):
        if not _is_compiling() and not _is_tracing():
            self.entries.entered(module, args, kwargs or {})


class _EntryPost(Inert):
    def __init__(self, entries):
        self.entries = entries

    def __call__(self, module, args, output):
        if not _is_compiling() and not _is_tracing():
            self.entries.left(module, output)


# Else 100 us of guards at every call, for a hook that then takes itself for a traced one.
run_uncompiled(_EntryPre.__call__, _EntryPost.__call__)


class _CompiledCall:
    """What `model.compile()` left to be called, with the entry around it: the hooks of the model are traced and silent."""

    def __init__(self, entries, module, original):
        self.entries, self.module, self.original = entries, weakref.ref(module), original

    def __call__(self, *args, **kwargs):
        module = self.module()
        if module is None or _is_compiling():
            return self.original(*args, **kwargs)
        self.entries.entered(module, args, kwargs)
        output = None
        try:
            output = self.original(*args, **kwargs)
            return output
        finally:
            self.entries.left(module, output)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.original, memo)    # where a class (RNNs) has a state of its own, which holds this


class _ModuleHook(Inert):
    """Picks up one module's inputs and outputs; `armed` and `sink` are lists shared by all hooks."""

    def __init__(self, owner, name, kind, wants_input, wants_output, input_collections):
        self.owner, self.name, self.kind = owner, name, kind
        self.input_collections = input_collections
        self.wants_input, self.wants_output = wants_input, wants_output
        self.armed, self.sink = owner.armed, owner.sink
        self.keys = {what: f"{name}_{what}" for what in ("input", "output")}
        self.slots = {"input": [], "output": []}    # by number: where the tensors of one name go
        self.output_only = wants_output and not wants_input
        self.first = None                           # the slot of the first output
        self.key = self.keys["output"]

    def give_up(self):
        self.wants_input = self.wants_output = False

    def __call__(self, module, args, kwargs, output=_ABSENT):
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
        owner = self.owner
        if (owner.settled and self.first is not None and type(output) is _Tensor and self.key not in owner.counts
                and in_backward() == -1):
            try:
                if owner.put_tensor(self.first, output, owner.sub):
                    owner.counts[self.key] = 1
                    return
            except Exception:
                pass
        owner.ran(self, args, output)


def has_compiled():
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["stats"].get("unique_graphs"))


def _stands_for(module):
    """The only module inside that has parameters, and modules of its own, where `module` has no parameters itself: what it
    does is call that one."""
    if any(True for _ in module.parameters(recurse=False)):
        return None
    inside = [child for child in module.children() if any(True for _ in child.parameters())]
    return inside[0] if len(inside) == 1 and _is_called(inside[0]) and any(True for _ in inside[0].children()) else None


def _is_called(module):
    """No ModuleList or ModuleDict, which only hold what the module around them calls."""
    return type(module).forward is not torch.nn.Module.forward


def _was_compiled(root):
    """Does Dynamo have code of a class in it already? That runs, and knows nothing of hooks which come now. What else was
    compiled in the process is no matter of this model's."""
    try:
        entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        return any(entries(kind.forward.__code__) for kind in {type(module) for _, module in root.modules()})
    except Exception:       # a class without a forward in Python, or a torch that calls this something else
        return False


class Entries:
    """The hook pairs on the models' outermost modules."""

    def __init__(self, session):
        self.session = session
        self._handles = {}             # id(module) -> (weakref, handles)
        self._ahead = {}               # id(root's entry) -> its children that are hooked until it is entered itself
        self.twins = weakref.WeakSet() # copies of roots that nothing trains
        self.copied, self._searches = True, 0
        self._fresh, self._looks = 0, None      # copies that were made since a training forward; the hook that looks for them
        self._fired = weakref.WeakSet()
        self._inner = weakref.WeakKeyDictionary()      # module -> weakly, the model that it stands for
        self._depth = 0
        self._descents = 0
        self._complete = False         # every root has been entered, or nothing is left to hook

    def patch(self, patches):
        """Models that are compiled in place after they became known."""
        entries = self
        copies.hold(self)

        def make(original):
            def compile(module, *args, **kwargs):
                result = original(module, *args, **kwargs)
                try:
                    known = entries._handles.get(id(module))
                    if known is not None and known[0]() is module:
                        entries._around_compiled(module)
                except Exception as error:
                    entries.session.guard.failed("a compiled model", error)
                return result
            return compile

        patches.replace([torch.nn.Module], "compile", make)

    @staticmethod
    def _compiled_call(module):
        return module.__dict__.get("_compiled_call_impl")

    def _around_compiled(self, module):
        call = self._compiled_call(module)
        if call is not None and not isinstance(call, _CompiledCall):
            module._compiled_call_impl = _CompiledCall(self, module, call)

    def follow(self, names):
        for root in names.roots:
            entry = root.entry
            if entry is not None:
                self.twins.discard(entry)
            if entry is not None and self._hook(entry) and entry is root.module and entry not in self._fired:
                self._look_ahead(entry)
            elif entry is not None and entry is not root.module and entry._modules.get("module") is root.module:
                # `ddp.module(x)` is how many a script evaluates. What is compiled is left alone: hooks would be traced.
                if self._compiled_call(root.module) is None and not has_compiled():
                    self._hook(root.module)

    def _look_ahead(self, root):
        """Not every root is called: of a LightningModule, whose steps call what is in it, the first evaluation is over before
        a step shows that. So the children are hooked as well, until the root is entered."""
        if self._compiled_call(root) is None and not has_compiled():
            self._ahead[id(root)] = [weakref.ref(child) for child in root.children() if self._hook(child)]

    def _find_twins(self):
        """Averaged copies of a model (EMA), which are evaluated in its place: of the same class, with the same parameters. At the
        end of the first step, and of one in which a root was copied."""
        self.copied, self._searches = False, self._searches + 1
        roots = self._roots()
        inside = {id(m) for root in roots for m in root.modules()}
        for module in self.session.names.living({type(root) for root in roots}):
            if id(module) not in inside and self._is_twin(module, roots) and self._hook(module):
                self.twins.add(module)

    def _roots(self) -> list[torch.nn.Module]:
        return [root.module for root in self.session.names.roots if root.module is not None]

    @staticmethod
    def _is_twin(module: torch.nn.Module, roots: list[torch.nn.Module]) -> bool:
        def shapes(of: torch.nn.Module) -> list:
            return [(name, p.shape) for name, p in of.named_parameters()]
        return any(type(root) is type(module) and root is not module and shapes(root) == shapes(module) for root in roots)

    # A copy that is made and evaluated at once is over before the step ends. Nothing says which object a copy has become, so from
    # a deepcopy of a root until its next training forward every module that is called is looked at (1 us each): no hook lies in
    # the copy before it is called in the model's place.

    def was_copied(self, module: torch.nn.Module, deeply: bool) -> None:
        self.copied = True
        if not deeply or has_compiled() or not any(root is module for root in self._roots()):
            return
        self._fresh += 1
        if self._looks is None:
            self._looks = nn_module.register_module_forward_pre_hook(self._called)

    def _called(self, module: torch.nn.Module, args: tuple) -> None:
        try:
            if self._depth or id(module) in self._handles and self._handles[id(module)][0]() is module:
                return
            if _is_compiling() or _is_tracing() or not self._is_twin(module, self._roots()):
                return
            self._fresh -= 1
            if self._fresh <= 0:
                self._look_no_more()
            self._hook(module)
            self.twins.add(module)
            self.entered(module, args, {})      # its own hooks were gathered before there were any
        except Exception as error:
            self.session.guard.failed("a copy of a model", error)

    def _look_no_more(self) -> None:
        looks, self._looks, self._fresh = self._looks, None, 0
        if looks is not None:
            looks.remove()

    def _entered_first(self, module):
        """A root that is called: its children are parts of its forward. One that stands for a model inside of it, as a loss that
        is a module does, keeps that one's entry: evaluations call it directly."""
        self._fired.add(module)
        inner = _stands_for(module)
        if inner is not None:
            self._inner[module] = weakref.ref(inner)
        for ref in self._ahead.pop(id(module), ()):
            child = ref()
            known = self._handles.pop(id(child), None) if child is not None and child is not inner else None
            for handle in known[1] if known is not None else ():
                handle.remove()

    def evaluates(self, module):
        """Is it, or the model that it wraps or stands for, in evaluation mode? DeepSpeed's engine and a loss that holds the model may
        stay in training mode."""
        inner = self._inner.get(module)
        inner = unwrap(module) if inner is None else inner()
        return not module.training or inner is not None and not inner.training

    def _hook(self, module):
        """True if it was not hooked before."""
        known = self._handles.get(id(module))
        if known is not None and known[0]() is module:
            return False
        self._complete = False
        self._handles[id(module)] = (weakref.ref(module), (
            module.register_forward_pre_hook(_EntryPre(self), with_kwargs=True),
            module.register_forward_hook(_EntryPost(self), always_call=True)))
        self._around_compiled(module)
        return True

    def step_ended(self):
        """After a step: where a root was not entered, try its children (three levels, in the first steps)."""
        self._depth = 0                # an exception that the script caught may have skipped `left`
        if self.copied and self._searches < MAX_SEARCHES and not has_compiled():
            self._find_twins()
        if self._complete or self._descents >= 3 or has_compiled():
            return                     # traced hooks are silent: not entered says nothing, and new ones recompile
        self._descents += 1
        pending = [ref() for ref, _ in list(self._handles.values())]
        # Inside a wrapper that was entered, a compiled model's own hooks stay silent.
        entered = {id(root.module) for root in self.session.names.roots if root.entry in self._fired}
        entered |= {id(part) for whole in self._fired for part in whole.modules()}
        pending = [m for m in pending if m is not None and id(m) not in entered and m not in self.twins]
        self._complete = not pending
        for module in pending:
            if not any(m in self._fired for m in module.modules()):
                for child in module.children():
                    self._hook(child)

    def remove(self):
        self._look_no_more()
        for ref, handles in self._handles.values():
            for handle in handles:
                handle.remove()
            module = ref()
            call = None if module is None else self._compiled_call(module)
            if isinstance(call, _CompiledCall):
                module._compiled_call_impl = call.original
        self._handles.clear()
        copies.let_go(self)

    def entered(self, module, args, kwargs):
        try:
            self._depth += 1
            if self._looks is not None and module.training and module not in self.twins:
                self._look_no_more()
            if module not in self._fired:
                self._entered_first(module)
            if self._depth == 1 and in_backward() == -1:
                self.session.forward_begins(module, args, kwargs)
                self.session.modules.settle()
        except Exception as error:
            self.session.guard.failed("forward of the root", error)

    def left(self, module, output=None):
        try:
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self.session.forward_ended(output)
        except Exception as error:
            self.session.guard.failed("end of the root's forward", error)


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

    def __init__(self, session):
        self.session = session
        self.armed, self.sink = [], []
        self.active = False              # anything hooked at all
        self._handles = []
        self._hooked = weakref.WeakSet()
        self._roots = set()
        self._ids = {}
        self._hooks = {}
        self.counts = {}
        self._place, self.sub = None, 0
        self.settled = False             # `_place` is `session.place()`, and nothing happens that could change it
        self.put_tensor = None
        self.kept: Kept | None = None    # where what modules give goes instead of into the open step
        self._said = False

    def install(self, names):
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
                    self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
                    self.active = True
        if hooked and self.active and not self._said and has_compiled() and (
                self.session.compiled_before or any(map(_was_compiled, hooked))):
            self._said = True
            say("something was compiled before tdbg was attached: outputs of modules in it are not seen; run under "
                "`tdbg run`, or attach before the first call")
        if self.active and "torch._dynamo" in sys.modules:
            # Else a new instance of a class that is compiled already runs the old code, without its hooks.
            sys.modules["torch._dynamo"].config.skip_nnmodule_hook_guards = False

    def arm(self, due):
        if due and not self.armed:
            self.armed.append(True)
        elif not due:
            self.armed.clear()

    def remove(self):
        self.armed.clear()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def ran(self, hook, args, output):
        try:
            if in_backward() != -1 or _is_tracing():
                return                   # recomputed by activation checkpointing (seen before), or traced
            if hook.wants_input:
                self._put(hook, "input", args)
            if hook.wants_output:
                self._put(hook, "output", output)
        except Exception as error:
            self.session.guard.failed(f"output of {hook.name}", error, alone=hook.give_up)

    def forward_ended(self):
        """Records what compiled modules left in the list."""
        self.unsettle()
        if self.sink:
            rows = list(self.sink)
            self.sink.clear()
            for name, what, value in rows:
                hook = self._hooks.get(name)
                if hook is not None:
                    self._put(hook, what, value)

    def settle(self):
        """A root's forward begins. Until it ends (or `unsettle` is called) its modules run in one place."""
        self.put_tensor = getattr(self.session.port, "put_tensor", None)
        self.settled = bool(self.armed) and self.put_tensor is not None and self.kept is None
        if self.settled:
            self._look()

    def unsettle(self):
        """Whatever `Session.place` is made of may change now."""
        self.settled = False

    def _look(self):
        place = self.session.place()
        if self._place != place:
            self._place, self.sub = place, self.session.sub()
            self.counts.clear()

    def put_kept(self, kept: Kept, due: bool) -> None:
        """The step is there that it belongs to."""
        rows, kept.rows = kept.rows, []
        for hook, what, tensor in rows if due else ():
            self._put(hook, what, tensor)
        if kept.left_out and due:
            self.session.lost("unsupported", kept.left_out, "outputs of forwards in evaluation mode: more than wait for their step")

    def _put(self, hook, what, value):
        session = self.session
        if self.kept is not None:
            for tensor in _tensors(value, functools.partial(session.unread, hook.keys[what])):
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
        for tensor in _tensors(value, functools.partial(session.unread, key)):
            number = self.counts.get(key, 0)
            self.counts[key] = number + 1
            if put_tensor is None or number >= len(slots) or not put_tensor(slots[number], tensor, sub):
                self._put_one(hook, what, number, tensor, sub)

    def _put_one(self, hook, what, number, tensor, sub):
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
        tensor = tensor.detach()
        if session.on_device(tensor):
            session.put_device([ident], [tensor], sub, 0)
        else:
            session.port.put_ptr(ident, tensor.data_ptr(), dtype_name(tensor.dtype), list(tensor.shape),
                                 list(tensor.stride()), sub, 0)


def _tensors(value, unread):
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
