"""Modules whose outputs are wanted, and that a training uses without calling them: `net.forward(x)`,
`block.forward(h)`, a weight that another module takes. torch runs no hook then, so there is no output; it is said once.

Looked at in the 1st, 2nd, 4th, 8th ... of the due steps in which a wanted module was not called, and in the next ones.
That it is trained all the same is no guess: the graph of a loss says which parameters lie in it. A module with others
inside of it may be a mere container, whose forward is not meant to be called (a Sequential that is indexed,
Lightning's): it counts only if its forward is seen to run, on the stack of a module inside of it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..inert import Inert
from ..steps import TRAIN
from .dynamo import has_compiled
from .graph import leaves

if TYPE_CHECKING:
    from .session import Session

MOST_FRAMES = 200
MOST_LOOKS = 32           # modules inside of one from which its forward is looked for on the stack
CONVINCED = 2             # looks at a module without others inside that found it trained and not called


DIRECTLY = "its forward() is called directly, so no hook runs: call the module"
DIRECTLY_OR_BY_OTHERS = ("its forward() is called directly, or another module uses its parameters, so no hook runs: "
                         "call the module")
COMPILED = "they are computed inside of something that is compiled, and no hook runs there"
COMPILED_BEFORE = ("they are computed inside of something that was compiled before tdbg was attached: run under `tdbg "
                   "run`, or attach before the first call")

_CALLS = torch.nn.Module._call_impl.__code__.co_filename


def _is_first(module: torch.nn.Module, frame: Any) -> bool:
    """Is it the first argument of the function that the frame executes, a decorator's (*args, **kwargs) included?"""
    names = frame.f_code.co_varnames
    first = frame.f_locals.get(names[0]) if names else None
    return first is module or isinstance(first, tuple) and bool(first) and first[0] is module


class _Called(Inert):
    """Runs before a module that seems not to be called: it is, and nobody wanted its output then."""

    def __init__(self, owner: Uncalled, key: str) -> None:
        self.owner, self.key = owner, key

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        self.owner.called(self.key)


class _Inside(Inert):
    """Runs before a module that lies inside of one that seems not to be called."""

    def __init__(self, owner: Uncalled, name: str) -> None:
        self.owner, self.name = owner, name

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        try:
            self.owner.look(self.name)
        except BaseException as error:
            self.owner.session.guard.failed("a module that is not called", error, alone=self.owner.stop)


class Uncalled:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ran: set[str] = set()      # keys of what hooks gave in a step,
        self._at = -1                   # before which so many had closed
        self._wanted: dict[str, tuple[str, weakref.ref[torch.nn.Module]]] = {}   # key -> name, module
        # name -> since which TRAIN step it was missing whenever that was looked at, and how often it was trained then
        self._since: dict[str, list[int]] = {}
        self._watched: set[str] = set()             # keys of those that have a `_Called` in this step
        self._asks = False              # which parameters the next step's losses are computed with
        self._reached: set[int] = set()
        self._looks: list[Any] = []                 # handles of `_Inside`
        self._forwards: dict[str, tuple[Any, weakref.ref[torch.nn.Module]]] = {}    # name -> its forward's code, module
        self._seen = 0                              # due steps in which one was missing
        self._stopped = False

    def wants(self, key: str, name: str, module: torch.nn.Module) -> None:
        """`key`: under which its hook counts what it gave. Inside of a script there are no hooks, and attention has a
        layer for the sake of its parameters, whose output is its own."""
        if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "NonDynamicallyQuantizableLinear":
            return
        self._wanted[key] = name, weakref.ref(module)

    def stop(self) -> None:
        """For good: hooks say nothing any more, as in what is compiled or replayed."""
        self._stopped = True
        self._look_no_more()

    def saw(self, keys: Iterable[str], at: int) -> None:
        """Hooks gave these when so many steps had closed."""
        if self._at != at:
            self._at = at
            self.ran.clear()
        self.ran.update(keys)

    def about_to_step(self, parameters: Iterable[torch.Tensor]) -> None:
        """An optimizer is about to update these, in a step whose outputs are due."""
        if self._stopped:
            return
        watched = self._watched
        self._look_no_more()
        self.saw((), self.session.steps_closed)
        missing = self._wanted.keys() - self.ran
        reached, self._reached = self._reached, set()
        if not missing:
            self._asks = False
            return
        if has_compiled() and not self.session.modules.armed:       # another hook would recompile
            return
        self._seen += 1
        if self._asks or not self._seen & (self._seen - 1):
            self._look_at(missing, watched, reached & set(map(id, parameters)))

    def differentiated(self, tensors: Iterable[torch.Tensor]) -> None:
        """backward is about to run on these."""
        if self._asks:
            self._reached.update(id(leaf) for leaf in leaves(tensors))

    def called(self, key: str) -> None:
        """It is called as a module, and has no outputs for another reason: its forward is not what the step began
        with, say."""
        self._wanted.pop(key, None)

    def _look_at(self, missing: set[str], watched: set[str], trained: set[int]) -> None:
        """`watched`: of which it would have been seen if they had been called. `trained`: id()s of the parameters that
        the step's losses were computed with, where that was asked."""
        asked, self._asks = self._asks, True
        compiled = has_compiled()
        called: set[int] = set()
        for key in self._wanted.keys() & self.ran:
            name, ref = self._wanted[key]
            self._since.pop(name, None)
            module = ref()
            called.update(map(id, module.parameters(recurse=False)) if module is not None else ())
        step = self.session.next_step(TRAIN) - 1
        alone: list[str] = []
        found = False
        for key in sorted(missing):
            name, ref = self._wanted[key]
            module = ref()
            if module is None:
                del self._wanted[key]
                continue
            seemed = self._since.setdefault(name, [step, 0])
            if next(module.children(), None) is not None:
                if not compiled and any(id(p) in trained for p in module.parameters()):
                    found = True
                    self._look_inside(name, module)
            elif any(id(p) in trained and id(p) not in called for p in module.parameters()):
                found = True
                seemed[1] += compiled or key in watched
                if seemed[1] == CONVINCED:
                    del self._wanted[key]
                    alone.append(name)
                elif not compiled:
                    self._watched.add(key)
                    self._looks.append(module.register_forward_pre_hook(_Called(self, key)))
        if asked:
            self._asks = found
        if alone:
            self._tell(alone, COMPILED_BEFORE if compiled and self.session.compiled_before else
                       COMPILED if compiled else DIRECTLY_OR_BY_OTHERS)

    def _look_inside(self, name: str, module: torch.nn.Module) -> None:
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        if code is None or type(module).forward is torch.nn.Module.forward:
            return
        self._forwards[name] = code, weakref.ref(module)
        hook = _Inside(self, name)
        inside = [m for m in module.modules() if m is not module][:MOST_LOOKS]
        self._looks += [child.register_forward_pre_hook(hook) for child in inside]

    def _look_no_more(self) -> None:
        for handle in self._looks:
            handle.remove()
        self._looks.clear()
        self._watched = set()
        self._forwards.clear()

    def look(self, name: str) -> None:
        """Is its forward on the stack, and its call, which runs hooks, is not?"""
        code, ref = self._forwards.get(name, (None, lambda: None))
        module = ref()
        if code is None or module is None:
            return
        frame: Any = sys._getframe(1)
        for _ in range(MOST_FRAMES):
            if frame is None:
                return
            if frame.f_code is code and _is_first(module, frame):
                break
            frame = frame.f_back
        else:
            return
        called = frame.f_back is not None and frame.f_back.f_code.co_filename == _CALLS
        del self._forwards[name]
        if not called:
            key = next((k for k, (known, _) in self._wanted.items() if known == name), None)
            if key is not None:
                del self._wanted[key]
                self._tell([name], DIRECTLY)

    def _tell(self, names: list[str], why: str) -> None:
        since = min(self._since[name][0] for name in names)
        few = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        self.session.lost("unsupported", len(names),
                          f"outputs of {few}: {why}. From step {since} on")

    def remove(self) -> None:
        self._look_no_more()


