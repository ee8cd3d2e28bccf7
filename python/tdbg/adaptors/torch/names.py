"""What things are called: smdebug's names for parameters and modules, their kinds and unit axes.

Names come from the module tree as it is at the first step, not from construction-time hooks: those miss
models made by copy.deepcopy or torch.load, and parameters that FSDP or a parametrization replaced. The
tree is found by one walk over the garbage collector's objects (some 10 ms per 100,000 objects, once per
new set of parameters), so a script need not hand its model over.
"""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

# Attribute under which a wrapper keeps the module that the user wrote.
_WRAPPERS = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "DeepSpeedEngine": "module",
    "_FabricModule": "_forward_module",
}
_PREFIX = re.compile(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module|_forward_module)(?=\.|$)")


def is_wrapper(module: Any) -> bool:
    return type(module).__name__ in _WRAPPERS


def unwrap(module: Any) -> torch.nn.Module:
    """The user's module inside DDP, torch.compile and the like."""
    while (attribute := _WRAPPERS.get(type(module).__name__)) and hasattr(module, attribute):
        module = getattr(module, attribute)
    return module


def strip(dotted: str) -> str:
    """A parameter's or module's path without the parts that wrappers added."""
    return _PREFIX.sub("", dotted).lstrip(".")


def class_name(module: Any) -> str:
    """smdebug's C. FSDP2 renames the class of what it shards: TF becomes FSDPTF."""
    name: str = module._get_name()
    if name.startswith("FSDP") and any(c.__name__ == "FSDPModule" for c in type(module).__mro__):
        return name[4:]
    return name


def parameter_kind(name: str) -> str:
    return "bias" if "bias" in name.rsplit(".", 1)[-1] else "weight"


_KINDS_BY_NAME = {
    "ReLU": "relu", "ReLU6": "relu", "LeakyReLU": "leaky_relu", "PReLU": "leaky_relu", "RReLU": "leaky_relu",
    "Tanh": "tanh", "Hardtanh": "tanh", "Sigmoid": "sigmoid", "LogSigmoid": "sigmoid", "Hardsigmoid": "sigmoid",
    "GELU": "gelu", "SiLU": "silu", "Mish": "mish", "ELU": "elu", "SELU": "elu", "CELU": "elu",
    "Softmax": "softmax", "LogSoftmax": "softmax", "Linear": "linear", "Bilinear": "linear", "LazyLinear": "linear",
    "Embedding": "embedding", "EmbeddingBag": "embedding", "MultiheadAttention": "attention",
}


def module_kind(module: Any) -> str:
    """relu, tanh, sigmoid, conv, linear, attention, norm, ... or "" where we have no word for it."""
    for cls in type(module).__mro__:
        name = cls.__name__
        if name in _KINDS_BY_NAME:
            return _KINDS_BY_NAME[name]
        if name == "_ConvNd":
            return "conv"
        if name in ("_NormBase", "LayerNorm", "GroupNorm", "RMSNorm"):
            return "norm"
        if name in ("_DropoutNd",):
            return "dropout"
        if name in ("RNNBase", "RNNCellBase"):
            return "rnn"
        if name in ("_MaxPoolNd", "_AvgPoolNd", "_AdaptiveAvgPoolNd", "_AdaptiveMaxPoolNd"):
            return "pool"
        if name == "_Loss":
            return "loss"
    name = type(module).__name__
    if "Attention" in name:
        return "attention"
    if name.endswith("Loss"):
        return "loss"
    return ""


def output_unit_axis(kind: str, rank: int) -> int:
    """Which axis of an output numbers the units (channels, features); -1: none.

    An activation does not know what fed it. Four and more axes are images and volumes, channels first; three are
    tokens with their features last, more often than a one-dimensional convolution's channels.
    """
    if rank < 2:
        return -1
    if kind in ("conv", "pool"):
        return 1
    if kind in ("linear", "embedding", "attention", "rnn"):
        return rank - 1
    return 1 if rank >= 4 else rank - 1


def parameter_unit_axis(module: Any, kind: str, rank: int) -> int:
    """Weights and gradients: the axis of the output units."""
    if rank == 0:
        return -1
    if "Transpose" in type(module).__name__ and kind == "weight" and rank > 2:
        return 1
    return 0


class NamedParameter:
    """One parameter under its canonical name. `module_kind` and `unit_axis` are those of the owning module."""

    __slots__ = ("name", "short_name", "kind", "module_kind", "unit_axis", "aliases")

    def __init__(self, name: str, short_name: str, kind: str, module_kind: str = "", unit_axis: int = -1,
                 aliases: Sequence[str] = ()) -> None:
        self.name, self.short_name, self.kind = name, short_name, kind
        self.module_kind, self.unit_axis, self.aliases = module_kind, unit_axis, list(aliases)


class Root:
    """A module tree under the name that its tensors carry.

    `entry` is the outermost wrapper (what the script calls), `module` the user's module inside it.
    """

    def __init__(self, entry: torch.nn.Module, label: str) -> None:
        self._entry = weakref.ref(entry)      # weak: a model that the script drops must be freed
        self._module = weakref.ref(unwrap(entry))
        self.label = label

    @property
    def entry(self) -> torch.nn.Module | None:
        return self._entry()

    @property
    def module(self) -> torch.nn.Module | None:
        return self._module()

    def enter_through(self, entry: torch.nn.Module) -> None:
        self._entry = weakref.ref(entry)

    def parameters(self) -> list[tuple[torch.Tensor, NamedParameter]]:
        """[(parameter, NamedParameter)], tied weights once, with their other names as aliases."""
        return [(tensor, named) for _, table, _, tensor, named in self.tensors() if table == "_parameters"]

    def buffers(self) -> list[tuple[torch.Tensor, NamedParameter]]:
        """[(buffer, NamedParameter)] of those of floating point, complex ones too; kind "buffer"."""
        return [(tensor, named) for _, table, _, tensor, named in self.tensors() if table == "_buffers"]

    def tensors(self) -> list[tuple[torch.nn.Module, str, str, torch.Tensor, NamedParameter]]:
        """[(module, "_parameters" or "_buffers", its key there, tensor, NamedParameter)]: parameters, and buffers of
        floating point. Each tensor once, with its other names as aliases."""
        found: dict[int, tuple[torch.nn.Module, str, str, torch.Tensor, NamedParameter]] = {}
        top = self.module
        for prefix, module in (top.named_modules(remove_duplicate=False) if top is not None else ()):
            for table, own, tensor in _own_tensors(module):
                raw = f"{prefix}.{own}" if prefix else own
                short = strip(raw)
                full = f"{self.label}_{short}"
                if id(tensor) in found:
                    entry = found[id(tensor)][-1]
                    if full != entry.name and full not in entry.aliases:
                        entry.aliases.append(full)
                    continue
                kind = "buffer" if table == "_buffers" else parameter_kind(short)
                lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
                axis = -1 if lazy else parameter_unit_axis(module, kind, tensor.dim())
                aliases = [] if raw == short else [raw]
                found[id(tensor)] = (
                    module, table, own, tensor, NamedParameter(full, short, kind, module_kind(module), axis, aliases))
        return list(found.values())

    def modules(self) -> list[tuple[str, torch.nn.Module]]:
        """[(tensor name prefix, module)]: the root under its class, others under their dotted names."""
        result, seen, top = [], set(), self.module
        for dotted, module in (top.named_modules() if top is not None else ()):
            if is_wrapper(module) and module is not top:
                continue
            name = strip(dotted) if dotted else self.label
            if name in seen:
                continue
            seen.add(name)
            result.append((name, module))
        return result


    def compiled(self) -> list[str]:
        """Names, as in `modules`, of those that torch.compile makes a graph of, with all that is in them."""
        wrapper = self.entry
        while wrapper is not None and (attribute := _WRAPPERS.get(type(wrapper).__name__)):
            if attribute == "_orig_mod":
                return [self.label]
            wrapper = getattr(wrapper, attribute, None)
        found, top = [], self.module
        for dotted, module in (top.named_modules() if top is not None else ()):
            if module.__dict__.get("_compiled_call_impl") or _WRAPPERS.get(type(module).__name__) == "_orig_mod":
                found.append(strip(dotted) if dotted else self.label)
        return found


def _own_tensors(module: Any) -> Iterator[tuple[str, str, torch.Tensor]]:
    for own, parameter in module._parameters.items():
        if parameter is not None:
            yield "_parameters", own, parameter
    for own, buffer in module._buffers.items():
        if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
            yield "_buffers", own, buffer


def live_modules() -> list[torch.nn.Module]:
    # type() and not isinstance(): lazy proxies answer __class__ by importing or raising.
    Module = torch.nn.Module
    return [o for o in gc.get_objects() if issubclass(type(o), Module) and "_parameters" in o.__dict__]


def discover(parameters: Sequence[torch.Tensor],
             modules: Iterable[torch.nn.Module] | None = None) -> list[torch.nn.Module]:
    """The outermost modules that own `parameters` (a list), in the order of the parameters.

    A parameter reachable from several trees (a module held by its loss as well) goes to the tree that owns most of
    the list, and among those to the smallest.
    """
    modules = live_modules() if modules is None else modules
    owners: dict[int, list[torch.nn.Module]] = {}
    parents: dict[int, list[torch.nn.Module]] = {}
    for module in modules:
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(module)
        for child in module._modules.values():
            if child is not None:
                parents.setdefault(id(child), []).append(module)

    def tops(module: Any) -> list[torch.nn.Module]:
        todo, seen, found = [module], set(), []
        while todo:
            current = todo.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            above = parents.get(id(current))
            if above:
                todo.extend(above)
            else:
                found.append(current)
        return found

    cache: dict[int, list[torch.nn.Module]] = {}
    candidates: dict[int, torch.nn.Module] = {}
    owned: dict[int, set[int]] = {}
    for parameter in parameters:
        for owner in owners.get(id(parameter), ()):
            if id(owner) not in cache:
                cache[id(owner)] = tops(owner)
            for top in cache[id(owner)]:
                candidates[id(top)] = top
                owned.setdefault(id(top), set()).add(id(parameter))
    size = {key: sum(1 for _ in top.modules()) for key, top in candidates.items()}
    ranked = sorted(candidates, key=lambda key: (-len(owned[key]), size[key]))
    chosen: list[int] = []
    covered: set[int] = set()
    for key in ranked:
        if owned[key] - covered:
            chosen.append(key)
            covered |= owned[key]
    first: dict[int, int] = {}
    for position, parameter in enumerate(parameters):
        for key in chosen:
            if id(parameter) in owned[key]:
                first.setdefault(key, position)
    return [candidates[key] for key in sorted(chosen, key=lambda key: first[key])]


class Names:
    """The names given so far; labels of roots are made unique (QNetwork, QNetwork_1)."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self._labels: dict[str, int] = {}
        self._by_id: dict[int, NamedParameter] = {}    # id(parameter) -> NamedParameter, refreshed by `resolve`
        self._loose: dict[int, str] = {}
        self._search_seconds_left = 2.0   # a script that builds a thousand models is not searched a thousand times

    def add_root(self, entry: torch.nn.Module) -> Root:
        inner = unwrap(entry)
        for root in self.roots:
            if root.module is inner:
                if entry is not inner or root.entry is None:
                    root.enter_through(entry)
                return root
        base = class_name(inner)
        used = self._labels.setdefault(base, 0)
        self._labels[base] = used + 1
        root = Root(entry, base if used == 0 else f"{base}_{used}")
        self.roots.append(root)
        return root

    def resolve(self, parameters: Sequence[torch.Tensor], search: bool = True) -> list[NamedParameter]:
        """NamedParameter for each of `parameters`; finds their roots if they are not known yet."""
        self._refresh()
        missing = [p for p in parameters if id(p) not in self._by_id]
        if missing and search and self._search_seconds_left > 0:
            began = time.thread_time()
            for top in discover(missing):
                self.add_root(top)
            self._search_seconds_left -= time.thread_time() - began
            self._refresh()
        return [self._by_id.get(id(p)) or self._loose_name(p) for p in parameters]

    def living(self, kinds: set[type]) -> list[torch.nn.Module]:
        """The modules that there are of exactly these classes, while there is time to search."""
        if self._search_seconds_left <= 0:
            return []
        began = time.thread_time()
        found = [o for o in gc.get_objects() if type(o) in kinds and "_parameters" in o.__dict__]
        self._search_seconds_left -= time.thread_time() - began
        return found

    def _refresh(self) -> None:
        self._by_id = {}
        for root in self.roots:
            for parameter, named in root.parameters():
                self._by_id.setdefault(id(parameter), named)

    def _loose_name(self, parameter: torch.Tensor) -> NamedParameter:
        # A tensor that no module owns (w = torch.zeros(3, requires_grad=True)): numbered in the order in which they are
        # seen.
        name = self._loose.get(id(parameter))
        if name is None:
            name = self._loose[id(parameter)] = f"parameter_{len(self._loose)}"
        return NamedParameter(name, name, "weight", "", 0 if parameter.dim() else -1)

    def named(self, parameter: torch.Tensor) -> NamedParameter | None:
        return self._by_id.get(id(parameter))
