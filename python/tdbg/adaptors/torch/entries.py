"""The entry into a model: a hook pair on what the script calls (the root, or what wraps it), which tells training
forwards from evaluations and sees the batch. A root that is never called itself (a LightningModule) hands its hooks
down to its children.

What the script makes of a model (copies, files, scripts) has no hooks of ours: `copies.py`.
"""
from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module

from ..inert import Inert
from . import copies
from .dynamo import has_compiled, run_uncompiled
from .losses import in_backward
from .modules import is_tracing
from .names import unwrap
from .unseen import unseen

if TYPE_CHECKING:
    from ..patches import Patches
    from .names import Names
    from .session import Session

_is_compiling = torch.compiler.is_compiling
MAX_SEARCHES = 8       # for copies of a model; each looks at every object that there is


class _Depth(threading.local):
    """How many entries the calling thread is in: an actor may evaluate a model while another thread trains one."""

    now = 0


class _EntryPre(Inert):
    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if not _is_compiling() and not is_tracing():
            self.entries.entered(module, args, kwargs or {})


class _EntryPost(Inert):
    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not _is_compiling() and not is_tracing():
            self.entries.left(module, output)


# Compiled, these hooks would cost 100 us of guards at every call, and would then return at once, as if they were
# traced.
run_uncompiled(_EntryPre.__call__, _EntryPost.__call__)


class _CompiledCall:
    """What `model.compile()` left to be called, with the entry around it: the hooks of the model are traced and
    silent."""

    def __init__(self, entries: Entries, module: torch.nn.Module, original: Callable[..., Any]) -> None:
        self.entries, self.module, self.original = entries, weakref.ref(module), original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self.original, memo)    # where a class (RNNs) has a state of its own, which holds this


def _stands_for(module: torch.nn.Module) -> torch.nn.Module | None:
    """The only module inside that has parameters, and modules of its own, where `module` has no parameters itself: what
    it does is call that one."""
    if any(True for _ in module.parameters(recurse=False)):
        return None
    inside = [child for child in module.children() if any(True for _ in child.parameters())]
    return inside[0] if len(inside) == 1 and _is_called(inside[0]) and any(True for _ in inside[0].children()) else None


def _is_called(module: torch.nn.Module) -> bool:
    """No ModuleList or ModuleDict, which only hold what the module around them calls."""
    return type(module).forward is not torch.nn.Module.forward


class Entries:
    """The hook pairs on the models' outermost modules."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # id(module) -> (weakref, handles)
        self._handles: dict[int, tuple[weakref.ref[torch.nn.Module], tuple[Any, ...]]] = {}
        # id(root's entry) -> its children that are hooked until it is entered itself
        self._ahead: dict[int, list[weakref.ref[torch.nn.Module]]] = {}
        # module -> id() of what it is a child of, where that is not called itself; and which of them this evaluation
        # has called
        self._within: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        self._parts: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.twins: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet() # copies of roots that nothing trains
        self.copied, self._searches = True, 0
        # copies that were made since a training forward; the hook that looks for them
        self._fresh, self._looks = 0, None
        self._fired: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        # module -> weakly, the model that it stands for
        self._inner: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[torch.nn.Module]] = (
            weakref.WeakKeyDictionary()
        )
        self._depth = _Depth()
        self._descents = 0
        self._complete = False         # every root has been entered, or nothing is left to hook

    def patch(self, patches: Patches) -> None:
        """Models that are compiled in place after they became known."""
        entries = self
        copies.hold(self)

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def compile(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
                result = original(module, *args, **kwargs)
                try:
                    known = entries._handles.get(id(module))
                    if known is not None and known[0]() is module:
                        entries._around_compiled(module)
                except BaseException as error:
                    entries.session.guard.failed("a compiled model", error)
                return result
            return compile

        patches.replace([torch.nn.Module], "compile", make)

    @staticmethod
    def _compiled_call(module: torch.nn.Module) -> Any:
        return module.__dict__.get("_compiled_call_impl")

    def _around_compiled(self, module: torch.nn.Module) -> None:
        call = self._compiled_call(module)
        if call is not None and not isinstance(call, _CompiledCall):
            module._compiled_call_impl = _CompiledCall(self, module, call)

    def follow(self, names: Names) -> None:
        for root in names.roots:
            entry = root.entry
            if entry is not None:
                self.twins.discard(entry)
            if entry is not None and self._hook(entry) and entry is root.module and entry not in self._fired:
                self._look_ahead(entry)
            elif entry is not None and entry is not root.module and entry._modules.get("module") is root.module:
                # Many scripts evaluate by calling `ddp.module(x)`. A compiled module gets no hook: it would be traced.
                if self._compiled_call(root.module) is None and not has_compiled():
                    self._hook(root.module)

    def _look_ahead(self, root: torch.nn.Module) -> None:
        """Not every root is called: of a LightningModule, whose steps call what is in it, the first evaluation is over
        before a step shows that. So the children are hooked as well, until the root is entered."""
        if self._compiled_call(root) is None and not has_compiled():
            self._ahead[id(root)] = [weakref.ref(child) for child in root.children() if self._hook_within(child, root)]

    def _hook_within(self, child: torch.nn.Module, of: torch.nn.Module) -> bool:
        self._within[child] = id(of)
        return self._hook(child)

    def _goes_on(self, module: torch.nn.Module) -> bool:
        """Is it another part of the evaluation that runs: an encoder and then its decoder, a loss that is a module? A
        part with parameters that was called before begins the next one; what has none (a ReLU) may be called any number
        of times."""
        within = self._within.get(module)
        if module.training or within is None or not self.session.evaluations.evaluating:
            return False
        if not any(self._within.get(part) == within for part in self._parts):
            return False
        return module not in self._parts or not any(True for _ in module.parameters())

    def _find_twins(self) -> None:
        """Averaged copies of a model (EMA), which are evaluated in its place: of the same class, with the same
        parameters. At the end of the first step, and of one in which a root was copied."""
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
        def shapes(of: torch.nn.Module) -> list[Any]:
            return [(name, p.shape) for name, p in of.named_parameters()]

        return any(
            type(root) is type(module) and root is not module and shapes(root) == shapes(module) for root in roots
        )

    # A copy that is made and evaluated at once is over before the step ends. Nothing says which object a copy has
    # become, so from a deepcopy of a root until its next training forward every module that is called is looked at (1
    # us each): no hook lies in the copy before it is called in the model's place.

    def was_copied(self, module: torch.nn.Module, deeply: bool) -> None:
        self.copied = True
        if not deeply or has_compiled() or not any(root is module for root in self._roots()):
            return
        self._fresh += 1
        if self._looks is None:
            self._looks = nn_module.register_module_forward_pre_hook(self._called)

    def _called(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        try:
            if self._depth.now or id(module) in self._handles and self._handles[id(module)][0]() is module:
                return
            if _is_compiling() or is_tracing() or not self._is_twin(module, self._roots()):
                return
            self._fresh -= 1
            if self._fresh <= 0:
                self._look_no_more()
            self._hook(module)
            self.twins.add(module)
            self.entered(module, args, {})      # torch had collected its hooks before these were added
        except BaseException as error:
            self.session.guard.failed("a copy of a model", error)

    def _look_no_more(self) -> None:
        looks, self._looks, self._fresh = self._looks, None, 0
        if looks is not None:
            looks.remove()

    def _entered_first(self, module: torch.nn.Module) -> None:
        """A root that is called: its children are parts of its forward. One that stands for a model inside of it, as a
        loss that is a module does, keeps that one's entry: evaluations call it directly."""
        self._fired.add(module)
        inner = _stands_for(module)
        if inner is not None:
            self._inner[module] = weakref.ref(inner)
        for ref in self._ahead.pop(id(module), ()):
            child = ref()
            known = self._handles.pop(id(child), None) if child is not None and child is not inner else None
            for handle in known[1] if known is not None else ():
                handle.remove()

    def evaluates(self, module: torch.nn.Module) -> bool:
        """Is it, or the model that it wraps or stands for, in evaluation mode? DeepSpeed's engine and a loss that holds
        the model may stay in training mode."""
        inner = self._inner.get(module)
        inner = unwrap(module) if inner is None else inner()
        return not module.training or inner is not None and not inner.training

    def _hook(self, module: torch.nn.Module) -> bool:
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

    def step_ended(self) -> None:
        """After a step: where a root was not entered, try its children (three levels, in the first steps)."""
        self._depth.now = 0            # an exception that the script caught may have skipped `left`
        if self.copied and self._searches < MAX_SEARCHES and not has_compiled():
            self._find_twins()
        if self._complete or self._descents >= 3 or has_compiled():
            # traced hooks are silent: that a root was not entered says nothing, and a new hook would recompile
            return
        self._descents += 1
        pending = [ref() for ref, _ in list(self._handles.values())]
        # What lies inside of a module that was entered is a part of its forward, as a wrapper's model is, whose own
        # hooks stay silent where it is compiled.
        entered = {id(part) for whole in self._fired for part in whole.modules()}
        waiting = [m for m in pending if m is not None and id(m) not in entered and m not in self.twins]
        self._complete = not waiting
        for module in waiting:
            if not any(m in self._fired for m in module.modules()):
                for child in module.children():
                    self._hook_within(child, module)

    def remove(self) -> None:
        self._look_no_more()
        for ref, handles in self._handles.values():
            for handle in handles:
                handle.remove()
            module = ref()
            call = None if module is None else self._compiled_call(module)
            if module is not None and isinstance(call, _CompiledCall):
                module._compiled_call_impl = call.original
        self._handles.clear()
        copies.let_go(self)

    @unseen
    def entered(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        begun = perf_counter()
        try:
            self._depth.now += 1
            if self._looks is not None and module.training and module not in self.twins:
                self._look_no_more()
            if module not in self._fired:
                self._entered_first(module)
            trains = module.training and torch.is_grad_enabled()
            if self._depth.now == 1 and in_backward() == -1 and not self.session.elsewhere(trains=trains):
                if self._goes_on(module):
                    self.session.evaluation_goes_on()
                else:
                    self._parts.clear()
                    self.session.forward_begins(module, args, kwargs)
                self._parts.add(module)
                self.session.modules.settle()
        except BaseException as error:
            self.session.guard.failed("forward of the root", error)
        finally:
            self.session.overhead.spent += perf_counter() - begun

    @unseen
    def left(self, module: torch.nn.Module, output: Any = None) -> None:
        begun = perf_counter()
        try:
            self._depth.now = max(0, self._depth.now - 1)
            if self._depth.now == 0:
                self.session.forward_ended(output)
        except BaseException as error:
            self.session.guard.failed("end of the root's forward", error)
        finally:
            self.session.overhead.spent += perf_counter() - begun
