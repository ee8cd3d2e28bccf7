"""GradScaler and gradient clipping: what happens to gradients between backward and the optimizer.

GradScaler.step does not call the optimizer when it found an infinity, so no optimizer hook fires: the patched
step notices and reports the step as skipped, with the gradients as unscaling left them. Works the same for
torch.amp.GradScaler("cpu").
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .params import READER

if TYPE_CHECKING:
    from ..patches import Patches
    from .session import Session


def _watch_scale(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        if session.listening and self._enabled and not session.elsewhere():
            try:
                session.losses.scaled(outputs, result, self._scale)
            except BaseException as error:
                session.guard.failed("GradScaler.scale", error)
        return result
    return scale


def patch_sharded(session: Session) -> None:
    """Puts the scale of FSDP's GradScaler, which is its own, under watch, once it is imported. Cheap to ask again."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp.sharded_grad_scaler"), "ShardedGradScaler", None)
    if kind is not None:
        session.patches.replace([kind], "scale", lambda original: _watch_scale(original, session))


def patch(patches: Patches, session: Session) -> None:
    guard = session.guard

    def watch_step(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            before = session.optimizers.steps_of(optimizer)
            session.optimizers.scaler = self if self._enabled else None
            try:
                result = original(self, optimizer, *args, **kwargs)
            finally:
                session.optimizers.scaler = None
            try:
                if self._enabled and session.listening and session.optimizers.steps_of(optimizer) == before:
                    session.optimizers.skipped(optimizer, self)
            except BaseException as error:
                guard.failed("GradScaler.step", error)
            return result
        return step

    classes = [torch.amp.GradScaler]
    patches.replace(classes, "scale", lambda original: _watch_scale(original, session))
    patches.replace(classes, "step", watch_step)

    utils = torch.nn.utils

    def watch_clip(by_norm: bool) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def clip(parameters: Iterable[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling():
                    return original(parameters, *args, **kwargs)
                wanted = session.clip_wanted
                if wanted and not isinstance(parameters, (torch.Tensor, list, tuple)):
                    # An iterator gives them once; what it raises is the training's own.
                    parameters = list(parameters) or parameters
                try:
                    if session.listening:
                        session.context.clipped("clip_grad_norm_" if by_norm else "clip_grad_value_", args, kwargs)
                    if wanted:
                        session.before_clipping(parameters)
                except BaseException as error:
                    guard.failed("before clipping", error)
                result = original(parameters, *args, **kwargs)
                if by_norm:
                    try:
                        session.clipped(result)
                    except BaseException as error:
                        guard.failed("after clipping", error)
                return result
            return clip
        return make

    def watch_spread(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_by(parameters: Iterable[torch.Tensor], max_norm: Any, total_norm: Any, *args: Any,
                    **kwargs: Any) -> Any:
            try:
                number = READER.number(total_norm) if READER is not None and session.listening else None
                if number is not None and number.value - number.value != 0.0:
                    session.losses.origins.before_clipping(parameters)
            except BaseException as error:
                guard.failed("before clipping", error)
            return original(parameters, max_norm, total_norm, *args, **kwargs)
        return clip_by

    # What clip_grad_norm_ calls with the norm that it computed: one that is not finite makes all gradients so.
    for name in ("_clip_grads_with_norm_", "clip_grads_with_norm_"):
        if hasattr(utils.clip_grad, name):
            patches.replace([utils.clip_grad], name, watch_spread)

    # Each function has two names: if one were replaced, calls by the other would not be seen.
    patches.replace([utils.clip_grad, utils], "clip_grad_norm_", watch_clip(True))
    patches.replace([utils.clip_grad, utils], "clip_grad_value_", watch_clip(False))


def scale_of(scaler: Any) -> Any:
    """The loss scale without waiting for a device: a tensor, a number, or None."""
    scale = getattr(scaler, "_scale", None)
    return scale if scale is not None else getattr(scaler, "_init_scale", None)
