"""How a training is set: numbers that its modules, its loss functions and its clipping were given.

    topic settings      [{"of": "dropout", "setting": "p", "value": 0.1, "count": 24, "where": ["Net_drop", ...]}, ...]

One entry for each value that a setting has, MOST at most, with SHOWN of the modules that have it. Those of modules are
read once, before the first backward, and only of modules in training mode of models of which something is trained;
those of functions at their calls in the first LOOKS steps. What any of them means is judged where runs are read
(src/rules/profile/settings.cc). Options of optimizers have topics of their own (context.py).

`of` is: dropout, drop_path, recurrent, attention, batch_norm, norm, leaky_relu, elu, embedding; "own" for a number that
a script's module keeps under a name of a dropout's; the name of a loss function or of a clipping function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from .params import is_plain, unreadable

if TYPE_CHECKING:
    from .session import Session

LOOKS = 3
MOST = 64               # entries
SHOWN = 4               # modules of each
CLASSES = 64            # weights that are told one by one

_DROPS_PATHS = ("DropPath", "StochasticDepth")
#: What a script's own module calls the share that it drops with a functional. What drops what it is fed, as a part of
#: the method (patches, conditions, tokens), has its name from that.
_DROPS = re.compile(r"(\w*_)?(layer)?(drop|dropout)(_?path)?(_?(p|prob|probability|rate|ratio))?")
_OF_INPUTS = re.compile("patch|token|mask|input|cond|class|label|context|text|modal|feat|frame|edge|node|word|keep")

_NORMS = tuple(kind for name in ("LayerNorm", "GroupNorm", "RMSNorm")
               if (kind := getattr(torch.nn, name, None)) is not None)

#: Where a loss function takes what, by position.
LOSSES: dict[str, dict[str, int]] = {
    "cross_entropy": {"weight": 2, "ignore_index": 4, "label_smoothing": 7},
    "nll_loss": {"weight": 2, "ignore_index": 4},
    "binary_cross_entropy": {"weight": 2},
    "binary_cross_entropy_with_logits": {"weight": 2, "pos_weight": 6},
}
CLIPPING = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}
_USUAL = {"label_smoothing": 0.0, "ignore_index": -100}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _of_norm(module: Any) -> Iterator[tuple[str, str, Any]]:
    yield "norm", "eps", getattr(module, "eps", None)
    shape = getattr(module, "normalized_shape", None)
    if isinstance(shape, (tuple, list)):
        size = 1
        for length in shape:
            size *= length
        yield "norm", "elements", size if size == 1 else None


def _of_batch_norm(module: Any) -> Iterator[tuple[str, str, Any]]:
    yield "batch_norm", "eps", module.eps
    mean, scale = module.running_mean, module.weight
    if mean is None or module.momentum is None or (scale is not None and not scale.requires_grad):
        return
    # Averages that never move are a pretrained norm's as well; these are still what they were made with.
    if module.momentum != 0:
        yield "batch_norm", "momentum", module.momentum
    elif is_plain(mean) and not bool(mean.any()):
        yield "batch_norm", "momentum", 0.0


def _of_script(module: Any) -> Iterator[tuple[str, str, Any]]:
    for key, value in vars(module).items():
        if type(value) is float and _DROPS.fullmatch(key) and not _OF_INPUTS.search(key):
            yield "own", key, value


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, str, Any]]:
    if isinstance(module, _DropoutNd):
        yield "dropout", "p", module.p
    elif isinstance(module, _BatchNorm):
        yield from _of_batch_norm(module)
    elif isinstance(module, (_InstanceNorm, *_NORMS)):
        yield from _of_norm(module)
    elif isinstance(module, torch.nn.RNNBase):
        yield "recurrent", "dropout", module.dropout if module.num_layers > 1 else None
    elif isinstance(module, torch.nn.MultiheadAttention):
        yield "attention", "dropout", module.dropout
    elif isinstance(module, torch.nn.LeakyReLU):
        yield "leaky_relu", "negative_slope", module.negative_slope
    elif isinstance(module, (torch.nn.ELU, torch.nn.CELU)):
        yield "elu", "alpha", module.alpha
    elif isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        yield "embedding", "max_norm", module.max_norm
    elif type(module).__name__.endswith(_DROPS_PATHS):
        yield "drop_path", "p", getattr(module, "drop_prob", getattr(module, "p", None))
    elif not type(module).__module__.startswith("torch."):
        yield from _of_script(module)


class Settings:
    """Of one session. `due`: calls of this step are looked at."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.due = True
        self._reads_modules = True
        self._steps = 0
        self._entries: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._told = 0

    def give_up(self) -> None:
        self.due = self._reads_modules = False

    def differentiated(self) -> None:
        """A backward is about to run."""
        if self._reads_modules:
            self._reads_modules = False
            self._modules()

    def compared(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A loss function was given these in a training."""
        for setting, position in LOSSES.get(function, {}).items():
            value = args[position] if len(args) > position else kwargs.get(setting)
            if isinstance(value, torch.Tensor):
                self._weights(function, setting, value)
            elif value is not None and value != _USUAL.get(setting):
                self._put(function, setting, _number(value))

    def clipped(self, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Gradients are clipped by `function`, which is given these behind the parameters."""
        setting = CLIPPING[function]
        self._put(function, setting, _number(args[0] if args else kwargs.get(setting)))

    def step_ends(self) -> None:
        """An optimizer is about to step."""
        self._steps += 1
        self.due = self._steps < LOOKS
        if self._told != len(self._entries):
            self._told = len(self._entries)
            self._session.context.topic("settings", [dict(entry) for entry in self._entries.values()])

    # How ----------------------------------------------------------------------------------------------------

    def _modules(self) -> None:
        for root in self._session.names.roots:
            top = root.module
            if top is None or not any(parameter.requires_grad for parameter in top.parameters()):
                continue
            for name, module in root.modules():
                if not module.training:
                    continue
                where = root.label if module is top else f"{root.label}_{name}"
                for of, setting, value in _of_module(module):
                    number = _number(value)
                    if number is not None:
                        self._put(of, setting, number, where)

    def _weights(self, function: str, setting: str, weight: torch.Tensor) -> None:
        """Of classes, or of elements. Those on a device are not looked at: that would wait for it."""
        if unreadable(weight) is not None or not is_plain(weight.detach()) or not weight.numel():
            return
        values = weight.detach()
        low, high = values.min().item(), values.max().item()        # NaN where there is one
        entry = self._put(function, setting + "_least", low)
        self._put(function, setting + "_most", high)
        if entry is not None and setting == "weight" and values.dim() == 1 and values.numel() <= CLASSES:
            entry["all"] = values.tolist()

    def _put(self, of: str, setting: str, value: float | None, where: str = "") -> dict[str, Any] | None:
        """The entry, if it is a new one."""
        if value is None:
            return None
        known = self._entries.get((of, setting, value))
        if known is not None:
            known["count"] += 1
            if where and len(known["where"]) < SHOWN:
                known["where"].append(where)
            return None
        if len(self._entries) >= MOST:
            return None
        # JSON has no NaN.
        told = value if value - value == 0 else str(value)
        entry = self._entries[of, setting, value] = {
            "of": of, "setting": setting, "value": told, "count": 1, "where": [where] if where else []}
        return entry
