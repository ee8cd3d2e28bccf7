"""smdebug's hook for PyTorch: a step is a forward of a registered module.

    forward of a root begins   the step before ends, a step begins; parameters, as its gradients will be computed with
    forward of a module ends   its inputs, then its outputs
    backward                   gradients, as backward makes them: scaled, not accumulated, not clipped, local

Names are smdebug's. Values are read, on the host, inside the hook: what overwrites them in place comes later.
A subclass may override `forward_hook` and call `_write_inputs`, `_write_outputs`, `backward_hook`.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..adaptors.session import NOT_WANTED
from ..adaptors.torch import copies, ranks
from ..adaptors.torch.attach import stand_down
from ..adaptors.torch.forward import RootTensors
from ..adaptors.torch.losses import in_backward
from ..adaptors.torch.modules import plain_tensors
from ..adaptors.torch.names import NamedParameter, module_kind, output_unit_axis, parameter_kind, parameter_unit_axis
from ..adaptors.torch.params import Unread, dtype_name, local
from ..exceptions import SMDebugError, SMDebugTypeError
from .base import BaseHook
from .collection import Collection
from .watcher import Watcher

logger = logging.getLogger("smdebug")
_is_compiling = torch.compiler.is_compiling
_ABSENT = object()
_PROBES = 3    # numbers k of `<module>_output_<k>` that a pattern is tried on before a module is left alone


class _RootPre(Watcher):
    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        if not _is_compiling():
            self.hook._root_begins(module, inputs)


class _ModulePost(Watcher):
    def __init__(self, hook: Hook, name: str) -> None:
        super().__init__(hook)
        self.name = name

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any, outputs: Any = _ABSENT) -> None:
        if outputs is _ABSENT:
            # Quantisation has moved this hook to what replaces the module, and forgot that it asked for keyword
            # arguments.
            kwargs, outputs = None, kwargs
            if not hasattr(module, "_module_name"):
                module._module_name = self.name
        hook = self.hook
        if hook._due and not _is_compiling() and in_backward() == -1:    # else: recomputed by checkpointing
            hook._watched("output of " + getattr(module, "_module_name", "?"), hook.forward_hook, module,
                          args + tuple(kwargs.values()) if kwargs else args, outputs)


class TorchCollection(Collection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules: dict[torch.nn.Module, tuple[bool, bool]] = {}

    @property
    def modules(self) -> dict[str, Any]:
        """{module: (inputs, outputs)}, until the first step turns them into expressions."""
        return self._modules

    def add_module_tensors(self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        """Inputs and outputs of a module. It, or the model it is part of, has to be registered by the first step."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(f"add_module_tensors({type(module).__name__}): a torch.nn.Module is accepted")
        self._modules[module] = (inputs, outputs)

    def settle(self) -> None:
        """Modules become the names that registering gave them. :raises SMDebugError: one was not registered"""
        modules, self._modules = self._modules, {}
        for module, (inputs, outputs) in modules.items():
            name = getattr(module, "_module_name", None)
            if name is None:
                raise SMDebugError(
                    f"collection {self.name!r}: add_module_tensors was given a {module._get_name()} that is "
                    "in no registered model: register_module(model)"
                )
            if inputs:
                self.include(f"{name}_input_")
            if outputs:
                self.include(f"{name}_output_")


class _Root:
    """A registered module, under the names that smdebug gives."""

    def __init__(self, hook: Hook, module: torch.nn.Module) -> None:
        self.hook = hook
        self.module = weakref.ref(module)     # a model that the script drops must be freed
        self.label = module._get_name()
        self.tensors: RootTensors | None = None

    def parameters(self) -> list[tuple[Any, NamedParameter]]:
        seen: set[int] = set()
        found, module = [], self.module()
        assert module is not None       # it was called just now
        for prefix, owner in module.named_modules():
            for own, parameter in owner._parameters.items():
                if parameter is None or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                short = f"{prefix}.{own}" if prefix else own
                kind = parameter_kind(short)
                found.append((parameter, NamedParameter(
                    f"{self.label}_{short}", short, kind, module_kind(owner),
                    parameter_unit_axis(owner, kind, parameter.dim()))))
        return found

    def put(self) -> None:
        """All parameters as they are now."""
        if self.tensors is None:
            self.tensors = RootTensors(self.module, self.parameters, self.hook._run.define, self.hook._put,
                                       self.hook._unread)
        self.tensors.put(self.hook._run)


class Hook(BaseHook):
    """Saves what a PyTorch training does. Its arguments are BaseHook's.

    Threads: forwards of other threads than the first one's (replicas of DataParallel) are passed over.
    """

    framework = "pytorch"
    _collection_class = TorchCollection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # module -> _Root
        self._roots: weakref.WeakKeyDictionary[torch.nn.Module, _Root] = weakref.WeakKeyDictionary()
        self._losses: dict[int, torch.nn.Module] = {}    # id(loss module) -> it
        self._known: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()    # modules with a hook
        self._numbers: dict[tuple[str, str], int] = {}    # (name, "input") -> how many in this step
        self._unread = Unread(lambda *loss: self._run.count_dropped(*loss))
        self._gradients: dict[str, int] = {}    # gradient's name -> how many in this step
        self._thread: int | None = None
        self._watching = False
        self._handles: list[Any] = []    # of what is on the script's modules
        stand_down("the script has a hook of its own")

    # Registering ----------------------------------------------------------------------------------------------

    def register_module(self, module: torch.nn.Module) -> None:
        """Watches a model: parameters, gradients, and what its modules take and return, as far as it is saved."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(f"register_module({type(module).__name__}): a torch.nn.Module is accepted")
        if module in self._roots:
            logger.warning("register_module: %s is registered already", module._get_name())
            return
        root = self._roots[module] = _Root(self, module)
        for name, child in module.named_modules():
            child._module_name = name or root.label
        copies.hold(self)
        self._handles.append(module.register_forward_pre_hook(_RootPre(self)))
        if self._watching:
            self._watch_root(root)

    register_hook = register_module

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Watches a loss: its inputs and outputs, under the name of its class."""
        if not isinstance(loss_module, torch.nn.modules.loss._Loss):
            raise SMDebugTypeError(
                f"register_loss({type(loss_module).__name__}): a loss module of torch.nn is accepted; "
                "for a function, record_tensor_value"
            )
        if id(loss_module) in self._losses:
            return
        loss_module._module_name = loss_module._get_name()
        self._losses[id(loss_module)] = loss_module
        self._watch_module(loss_module)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """A value of the script's, such as a functional loss: saved as `<name>_output_<k>` where a collection wants
        it."""
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(f"record_tensor_value({tensor_name!r}): a torch.Tensor is accepted")
        if self._due:
            self._watched("record_tensor_value", self._write_outputs, tensor_name, tensor_value)

    @staticmethod
    def count_parameters(model: Any) -> int:
        return sum(p.numel() for p in model.parameters() if p.requires_grad)

    def close(self, reason: str = "completed", message: str = "") -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        copies.let_go(self)
        super().close(reason, message)
        self._due = False

    cleanup = close

    def _settle_collections(self) -> None:
        for collection in self.get_collections().values():
            if isinstance(collection, TorchCollection):
                collection.settle()

    # Installing, in the first step: only then is it known what is wanted ---------------------------------------

    def _start(self) -> bool:
        if self._watching or not self._ensure_run():
            return self._watching
        self._watching = True
        self._thread = threading.get_ident()
        self._run.share_threads(torch.get_num_threads())
        self._any_module = self._asks_for_numbers()
        for root in list(self._roots.values()):
            self._watch_root(root)
        return True

    def _watch_root(self, root: _Root) -> None:
        module = root.module()
        if module is None:
            return
        overridden = type(self).forward_hook is not Hook.forward_hook
        for name, child in module.named_modules():
            if overridden or self._any_module or self._wants(name or root.label, child):
                self._watch_module(child)
        for name, parameter in module.named_parameters():
            full = f"{root.label}_{name}"
            if parameter.requires_grad and self._run.wants("gradient/" + full, "gradient", "", parameter.numel()):
                self._handles.append(parameter.register_hook(self.backward_hook(full)))

    def _wants(self, name: str, module: torch.nn.Module) -> bool:
        kind, run = module_kind(module), self._run
        return any(
            run.wants(f"{name}_{what}_{k}", what, kind, 0) for what in ("input", "output") for k in range(_PROBES)
        )

    def _watch_module(self, module: torch.nn.Module) -> None:
        if module not in self._known:
            self._known.add(module)
            copies.hold(self)
            self._handles.append(module.register_forward_hook(
                _ModulePost(self, getattr(module, "_module_name", "?")), with_kwargs=True))

    # Events ---------------------------------------------------------------------------------------------------

    def _root_begins(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._closed or in_backward() != -1 or (self._thread is not None and self._thread != threading.get_ident()):
            return
        root = self._roots.get(module)
        # a shallow copy of a registered module, or DataParallel's: it has the hooks of the original
        if root is None:
            return
        self._prepare()         # what cannot be meant is raised here, in the first step
        self._watched("forward of " + root.label, self.forward_pre_hook, module, inputs)

    def forward_pre_hook(self, module: torch.nn.Module, inputs: Any) -> None:
        """A registered module is called: a step begins."""
        root = self._roots.get(module)
        if root is None or not self._start():
            return
        self._numbers.clear()
        if self._begin_step():
            self.last_saved_step = self.step
            root.put()
        self._gradients.clear()

    def forward_hook(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        """A module has returned `outputs` in a step that is saved."""
        name = module._module_name
        self._write_inputs(name, inputs)
        self._write_outputs(name, outputs)

    def backward_hook(self, tname: str) -> Callable[..., Any]:
        """What to register on a tensor so that its gradient is saved as `gradient/<tname>`."""
        name = "gradient/" + tname

        def back(grad: Any) -> None:
            if self._due:
                self._watched(name, self._write_gradient, name, grad)

        back.__torch_unserializable__ = True  # type: ignore[attr-defined]  # torch.save says nothing about it
        return back

    def _write_inputs(self, name: str, inputs: Any) -> None:
        self._write(name, "input", inputs)

    def _write_outputs(self, name: str, outputs: Any) -> None:
        self._write(name, "output", outputs)

    def _write(self, name: str, what: str, values: Any) -> None:
        key = (name, what)
        number = self._numbers.get(key, 0)
        for tensor in plain_tensors(values, functools.partial(self._unread, f"{name}_{what}")):
            spec = (name, what, number, tensor.dtype, tensor.dim())
            ident = self._ids.get(spec)
            if ident is None:
                kind = self._kind_of(name)
                role = "loss" if what == "output" and kind == "loss" else what
                full = f"{name}_{what}_{number}"
                ident = self._ids[spec] = self._run.define(
                    full, full, role, kind, dtype_name(tensor.dtype), list(tensor.shape), True,
                    output_unit_axis(kind, tensor.dim()), [], [])
            number += 1
            if ident != NOT_WANTED:
                self._put(ident, tensor)
        self._numbers[key] = number

    def _write_gradient(self, name: str, grad: Any) -> None:
        if not isinstance(grad, torch.Tensor):
            return
        grad = local(grad)
        if self._unread(name, grad):
            return
        count = self._gradients.get(name, 0)
        self._gradients[name] = count + 1
        spec = (name, grad.dtype, grad.shape)
        ident = self._ids.get(spec)
        if ident is None:
            ident = self._ids[spec] = self._run.define(
                name, name, "gradient", "", dtype_name(grad.dtype), list(grad.shape), False,
                0 if grad.dim() else -1, [], [])
        if ident != NOT_WANTED:
            self._put(ident, grad, count + 1 if count else 0)    # a second backward of this step: a place of its own

    def _write_raw_tensor_simple(self, tensor_name: str, tensor_value: Any, tensor_ref: Any = None,
                                 timestamp: Any = None) -> None:
        """Saves `tensor_value` in the open step, whatever the schedules say, in no collection but those that match."""
        self._save(tensor_name, tensor_value, [])

    def _kind_of(self, name: str) -> str:
        if not hasattr(self, "_kinds"):
            self._kinds: dict[str, str] = {}
            for root in list(self._roots.values()):
                model = root.module()
                for child in () if model is None else model.modules():
                    self._kinds[getattr(child, "_module_name", "")] = module_kind(child)
            self._kinds.update({loss._get_name(): "loss" for loss in self._losses.values()})
        return self._kinds.get(name, "")

    def _put(self, ident: int, tensor: Any, sub: int = 0) -> None:
        tensor = local(tensor).detach()
        if tensor.layout is not torch.strided or tensor.is_quantized:
            self._run.count_dropped("unsupported", 1, f"layout {tensor.layout}")
            return
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.device.type != "cpu":
            if not self._run.due(ident):    # other collections are, and a copy waits for the device
                return
            tensor = tensor.cpu()
        if tensor.numel():
            self._run.put_ptr(ident, tensor.data_ptr(), dtype_name(tensor.dtype), list(tensor.shape),
                              list(tensor.stride()), sub, 0)

    def _to_numpy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().resolve_conj().resolve_neg()
            # NumPy has neither bfloat16 nor any of the types of 8 bits.
            known = not value.is_floating_point() or value.dtype in (torch.float16, torch.float32, torch.float64)
            return (value if known else value.float()).numpy()
        return value

    # ----------------------------------------------------------------------------------------------------------

    def _rank(self) -> tuple[int, int]:
        return ranks.of_process()

    def _adaptor(self) -> str:
        return f"torch {torch.__version__}, smdebug hook"


def get_hook(json_config_path: str | None = None, create_if_not_exists: bool = False) -> Any:
    """The process's hook; with `create_if_not_exists`, one from the configuration file where there is one."""
    from .singleton import get_hook as get

    return get(Hook, json_config_path, create_if_not_exists)
