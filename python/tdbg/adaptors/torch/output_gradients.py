"""Gradients of modules' outputs, only where the plan wants them: what arrives at an output in backward.

A hook on the output's own tensor sees the gradient before whatever made the output computes its own, and returns
nothing, so that backward goes on with the same tensor. It stands under the sub-key that the output has: that of its
micro-step. Where activation checkpointing recomputes in backward, either what was computed first has a gradient or what
is recomputed, never both. A compiled region computes its gradients inside, and nobody is told of them: the run says so
before the first step, of the modules that are in it. In a CUDA graph that the script captures a hook's launch is
captured, too, and each replay delivers.

On a GPU autograd calls these hooks in threads of its own, one for each device, while the training's waits for them.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from tdbg import _capture

from ..inert import Inert
from ..session import NOT_WANTED
from ..steps import TRAIN
from .losses import in_backward
from .modules import is_tracing, plain_tensors
from .names import module_kind, output_unit_axis
from .params import READER
from .unseen import unseen

if TYPE_CHECKING:
    from .names import Names, Root
    from .session import Session

PREFIX = "output_gradient/"


class _OutputHook(Inert):
    """On a module: hooks each tensor that its forward gives and that backward will reach."""

    def __init__(self, owner: OutputGradients, name: str, kind: str) -> None:
        self.owner, self.name, self.kind = owner, name, kind
        self.given_up = False
        self.slots: dict[tuple[Any, ...], tuple[int, Any]] = {}   # (number, dtype, rank) -> id, slot of the reader

    def give_up(self) -> None:
        self.given_up = True

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        owner = self.owner
        if not owner.armed or self.given_up or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        try:
            # What is recomputed in backward is, in autograd's thread for a device.
            if not is_tracing() and (in_backward() != -1 or not owner.session.elsewhere()):
                owner.gave(self, output)
        except BaseException as error:
            owner.session.guard.failed(f"output of {self.name}", error, alone=self.give_up)


class OutputGradients:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.armed: list[bool] = session.modules.armed
        self._handles: list[Any] = []
        self._hooked: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._roots: set[Any] = set()
        self._place: Any = None
        self._counts: dict[str, int] = {}
        self._seen = False              # any
        self._said = False              # why there are none of some modules

    def install(self, names: Names) -> bool:
        """Hooks the modules that the plan wants this of, of roots that were not looked at. Is there any?"""
        for root in names.roots:
            if root.label in self._roots or root.module is None:
                continue
            self._roots.add(root.label)
            hooked = []
            for name, module in root.modules():
                kind = module_kind(module)
                wanted = self.session.run.wants(f"{PREFIX}{name}_output_0", "output_gradient", kind, 0)
                if wanted and module not in self._hooked:
                    self._hooked.add(module)
                    self._handles.append(module.register_forward_hook(_OutputHook(self, name, kind)))
                    hooked.append(name)
            if hooked:
                self._say_compiled(root, hooked)
        return bool(self._handles)

    def _say_compiled(self, root: Root, hooked: list[str]) -> None:
        compiled = root.compiled()
        inside = [name for name in hooked
                  if any(c in (name, root.label) or name.startswith(c + ".") for c in compiled)]
        if inside:
            self._said = True
            few = ", ".join(inside[:3]) + (", ..." if len(inside) > 3 else "")
            self.session.lost(
                "unsupported",
                len(inside),
                f"gradients of outputs inside of a compiled graph, which tells nobody of them ({few}); what is not "
                "compiled has its own",
            )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def ended(self) -> None:
        """The training is over."""
        if self._handles and not self._seen and not self._said and self.session.has_trained:
            self.session.lost(
                "unsupported",
                1,
                "gradients of outputs: none was seen; a compiled model computes them inside of its graph",
            )

    @unseen
    def gave(self, hook: _OutputHook, output: Any) -> None:
        """A module gave `output` in a training forward whose step is due."""
        place = self.session.place()
        if self._place != place:        # numbered as outputs are: within a micro-step
            self._place = place
            self._counts.clear()
        for tensor in plain_tensors(output, functools.partial(self.session.unread, PREFIX + hook.name)):
            number = self._counts.get(hook.name, 0)
            self._counts[hook.name] = number + 1
            if tensor.grad_fn is not None:
                arrives: Any = functools.partial(self._arrived, hook, number, place[0])
                arrives.__torch_unserializable__ = True     # torch.save of an output says nothing of it
                tensor.register_hook(arrives)

    @unseen
    def _arrived(self, hook: _OutputHook, number: int, step: int, gradient: Any) -> None:
        """`step`: how many had closed when the output was given."""
        session = self.session
        if hook.given_up or session.open_mode != TRAIN or session.steps_closed != step or not session.listening:
            return
        self._seen = True
        try:
            for tensor in plain_tensors(gradient, functools.partial(session.unread, PREFIX + hook.name)):
                self._put(hook, number, tensor.detach())
        except BaseException as error:
            session.guard.failed(f"gradient of the output of {hook.name}", error, alone=hook.give_up)

    def _put(self, hook: _OutputHook, number: int, tensor: torch.Tensor) -> None:
        session = self.session
        # backward() has been counted by now, and the output was given before it was.
        sub = session.losses.passes if session.losses.passes > 1 else 0
        key = number, tensor.dtype, tensor.dim()
        ident, slot = hook.slots.get(key, (None, None))
        if ident is None:
            name = f"{PREFIX}{hook.name}_output_{number}"
            ident = session.define(name, name, "output_gradient", hook.kind, tensor.dtype, tensor.shape, True,
                                   output_unit_axis(hook.kind, tensor.dim()), (), ())
            slot = _capture.TensorSlot(READER) if READER is not None else None
            hook.slots[key] = ident, slot
        if ident == NOT_WANTED or not tensor.numel():
            return
        put_tensor = getattr(session.port, "put_tensor", None)
        if slot is not None and put_tensor is not None:
            slot.remember(ident, tensor)
            if put_tensor(slot, tensor, sub):
                return
        session.put_value(ident, tensor, sub)
