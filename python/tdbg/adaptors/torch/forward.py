"""`step_by: forward`: a step is a forward of a root, as smdebug counts (docs/semantics.md, "What a step is").

    forward of a root begins   the open step ends, the next one begins; parameters, as they are now
    its modules, its losses    where the plan wants them
    backward                   gradients as backward makes them: scaled, not accumulated, not clipped, local
    an optimizer steps         learning rates and the like, in the step that is open; it ends nothing

Modes: TRAIN is a forward in training mode with gradients, PREDICT one in torch's inference mode, anything else EVAL; or
what the script said (Attached.set_mode).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..session import NOT_WANTED
from ..steps import EVAL, PREDICT, TRAIN
from .params import dtype_name, is_plain, local
from .unseen import unseen

if TYPE_CHECKING:
    from .names import NamedParameter, Root
    from .params import OptimizerTensors, Unread
    from .session import Session

_data_ptr = torch.Tensor.data_ptr


def mode_of(module: torch.nn.Module) -> int:
    if module.training and torch.is_grad_enabled():
        return TRAIN
    return PREDICT if torch.is_inference_mode_enabled() and not module.training else EVAL


class RootTensors:
    """A root's parameters, handed over in one call per step.

    :param module: () -> the root
    :param parameters: () -> [(parameter, NamedParameter)]
    :param define: Run.define, or what takes the same arguments
    :param put_odd: called with (id, parameter) for what is no plain host memory
    :param unread: called with (name, parameter): is there no reading of it?
    """

    def __init__(self, module: Callable[[], Any],
                 parameters: Callable[[], list[tuple[torch.Tensor, NamedParameter]]], define: Callable[..., Any],
                 put_odd: Callable[..., Any], unread: Unread) -> None:
        self.module, self.parameters, self.define, self.put_odd = module, parameters, define, put_odd
        self.unread = unread
        self.ptrs: list[int] | None = None
        self.held: list[int] | None = None      # id()s of what the modules hold; those that are wanted live as long

    def put(self, port: Any) -> None:
        """All parameters as they are now. Defines them again where one has been replaced (`load_state_dict` with
        assign=True, a new head), or its memory."""
        held = [id(parameter) for m in self.module().modules() for parameter in m._parameters.values()]
        if self.ptrs is None or held != self.held or list(map(_data_ptr, self.fast)) != self.ptrs:
            self._define(held)
        if self.fast:
            port.put_many(self.ids, self.ptrs, 0, 0)
        for ident, parameter in self.odd:
            self.put_odd(ident, parameter)

    def _define(self, held: list[int]) -> None:
        self.fast: list[torch.Tensor] = []
        self.ids: list[int] = []
        self.odd: list[tuple[int, torch.Tensor]] = []
        self.held = held
        for parameter, named in self.parameters():
            tensor = local(parameter)
            if self.unread(named.name, tensor):
                continue
            ident = self.define(
                named.name,
                named.short_name,
                named.kind,
                named.module_kind,
                dtype_name(tensor.dtype),
                list(tensor.shape),
                False,
                named.unit_axis,
                named.aliases,
                [],
            )
            if ident == NOT_WANTED:
                continue
            if is_plain(parameter):
                self.fast.append(parameter)
                self.ids.append(ident)
            else:
                self.odd.append((ident, parameter))
        self.ptrs = list(map(_data_ptr, self.fast))


class ForwardSteps:
    """Drives a session's clock by forwards."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._roots: dict[str, RootTensors] = {}    # label -> RootTensors
        # Parameters with a gradient hook, by id(): that of one that died is another's later.
        self._hooked: dict[int, weakref.ref[torch.Tensor]] = {}
        self._handles: list[Any] = []
        self._ids: dict[tuple[str, Any, Any], int] = {}
        self._counts: dict[str, int] = {}

    def begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root is called: the next step."""
        session = self.session
        self.close()
        mode = session.mode_wanted or mode_of(module)
        session.evaluations.evaluating = mode != TRAIN
        self._counts.clear()
        due = session.clock.forward(mode)
        session.modules.arm(due)
        roots = [r for r in session.names.roots if module in (r.entry, r.module)] or session.names.roots
        for root in roots:
            if mode == TRAIN:
                self._hook_gradients(root)
            if due:
                self._tensors_of(root).put(session.port)
        if due and session.buffers_wanted:      # smdebug records none
            session.untrained.capture()
        if due:
            session.context.saw_batch(args, kwargs)
            session.context.add_batch()

    def _tensors_of(self, root: Root) -> RootTensors:
        tensors = self._roots.get(root.label)
        if tensors is None:
            def put(ident: int, parameter: torch.Tensor) -> None:
                self.session.put_value(ident, parameter.detach())

            tensors = self._roots[root.label] = RootTensors(lambda: root.module, root.parameters,
                                                            self._define, put, self.session.unread)
        return tensors

    def _define(self, name: str, short_name: str, kind: str, module_kind: str, dtype: str, *rest: Any) -> int:
        """Run.define's arguments, for a session that keeps sizes, too."""
        return self.session.define(name, short_name, kind, module_kind, getattr(torch, dtype), *rest)

    def _hook_gradients(self, root: Root) -> None:
        for parameter, named in root.parameters():
            known = self._hooked.get(id(parameter))
            if not parameter.requires_grad or known is not None and known() is parameter:
                continue
            self._hooked[id(parameter)] = weakref.ref(parameter)
            if self.session.run.wants("gradient/" + named.name, "gradient", named.module_kind, parameter.numel()):
                self._handles.append(parameter.register_hook(self._gradient_hook(named)))

    def _gradient_hook(self, named: NamedParameter) -> Callable[..., Any]:
        wanted = [True]

        def back(grad: torch.Tensor) -> None:
            session = self.session
            if wanted and session.listening and session.clock.due:
                try:
                    self._gradient(named, grad)
                except BaseException as error:
                    session.guard.failed("gradient/" + named.name, error, alone=wanted.clear)

        back.__torch_unserializable__ = True  # type: ignore[attr-defined]
        return back

    @unseen
    def _gradient(self, named: NamedParameter, grad: torch.Tensor) -> None:
        grad = local(grad).detach()
        key = (named.name, grad.dtype, grad.shape)
        ident = self._ids.get(key)
        if ident is None:
            ident = self._ids[key] = self._define(
                "gradient/" + named.name, "gradient/" + named.short_name, "gradient", named.module_kind,
                dtype_name(grad.dtype), list(grad.shape), False, named.unit_axis,
                ["gradient/" + a for a in named.aliases], [])
        count = self._counts.get(named.name, 0)
        self._counts[named.name] = count + 1
        if ident != NOT_WANTED and grad.numel() and grad.layout is torch.strided and not grad.is_meta:
            sub = count + 1 if count else 0
            if self.session.on_device(grad):
                self.session.put_device([ident], [grad], sub)
                return
            self.session.port.put_ptr(ident, grad.data_ptr(), dtype_name(grad.dtype), list(grad.shape),
                                      list(grad.stride()), sub, 0)

    def optimizer_steps(self, entry: OptimizerTensors, optimizer: torch.optim.Optimizer, skipped: bool) -> None:
        """An optimizer is about to step, in whatever step is open."""
        session = self.session
        if not session.clock.due:
            return
        session.clock.skipped |= skipped
        entry.refresh(optimizer)
        absent = [named.name for p, named in zip(entry.params, entry.named) if p.grad is None]
        session.context.optimizer_step(entry, optimizer, session.losses.micro, absent, skipped)

    def close(self) -> None:
        """Ends the open step, with the losses that came up in it."""
        session = self.session
        if session.clock.mode is None:
            return
        if session.clock.due:
            ids, pointers, keep = session.losses.flush_train()
            if ids:
                session.port.put_many(ids, pointers, 0, 0)
            session.losses.put_eval(session.losses.take_eval())
            session.context.flush()
            del keep                     # the values lived until here
        session.losses.discard()
        session.losses.eval.clear()
        session.context.discard()
        session.clock.close()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
