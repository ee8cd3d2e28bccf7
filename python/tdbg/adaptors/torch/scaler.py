"""GradScaler and gradient clipping: what happens to gradients between backward and the optimizer.

GradScaler.step does not call the optimizer when it found an infinity, so no optimizer hook fires: the patched
step notices and reports the step as skipped, with the gradients as unscaling left them. Works the same for
torch.amp.GradScaler("cpu").
"""

import torch

from .params import READER


def patch(patches, session):
    guard = session.guard

    def watch_scale(original):
        def scale(self, outputs):
            result = original(self, outputs)
            if session.listening and self._enabled:
                try:
                    session.losses.scaled(outputs, result, self._scale)
                except Exception as error:
                    guard.failed("GradScaler.scale", error)
            return result
        return scale

    def watch_step(original):
        def step(self, optimizer, *args, **kwargs):
            before = session.optimizers.steps_of(optimizer)
            session.optimizers.scaler = self if self._enabled else None
            try:
                result = original(self, optimizer, *args, **kwargs)
            finally:
                session.optimizers.scaler = None
            try:
                if self._enabled and session.listening and session.optimizers.steps_of(optimizer) == before:
                    session.optimizers.skipped(optimizer, self)
            except Exception as error:
                guard.failed("GradScaler.step", error)
            return result
        return step

    classes = [torch.amp.GradScaler]
    patches.replace(classes, "scale", watch_scale)
    patches.replace(classes, "step", watch_step)

    utils = torch.nn.utils

    def watch_clip(by_norm):
        def make(original):
            def clip(parameters, *args, **kwargs):
                if torch.compiler.is_compiling():
                    return original(parameters, *args, **kwargs)
                try:
                    session.before_clipping()
                except Exception as error:
                    guard.failed("before clipping", error)
                result = original(parameters, *args, **kwargs)
                if by_norm:
                    try:
                        session.clipped(result)
                    except Exception as error:
                        guard.failed("after clipping", error)
                return result
            return clip
        return make

    def watch_spread(original):
        def clip_by(parameters, max_norm, total_norm, *args, **kwargs):
            try:
                number = READER.number(total_norm) if READER is not None and session.listening else None
                if number is not None and number.value - number.value != 0.0:
                    session.losses.origins.before_clipping(parameters)
            except Exception as error:
                guard.failed("before clipping", error)
            return original(parameters, max_norm, total_norm, *args, **kwargs)
        return clip_by

    # Between a norm and what clip_grad_norm_ makes of it: one that is not finite makes all gradients so.
    for name in ("_clip_grads_with_norm_", "clip_grads_with_norm_"):
        if hasattr(utils.clip_grad, name):
            patches.replace([utils.clip_grad], name, watch_spread)

    # Two names for one function each: replacing one leaves those who call the other unseen.
    patches.replace([utils.clip_grad, utils], "clip_grad_norm_", watch_clip(True))
    patches.replace([utils.clip_grad, utils], "clip_grad_value_", watch_clip(False))


def scale_of(scaler):
    """The loss scale without waiting for a device: a tensor, a number, or None."""
    scale = getattr(scaler, "_scale", None)
    return scale if scale is not None else getattr(scaler, "_init_scale", None)
