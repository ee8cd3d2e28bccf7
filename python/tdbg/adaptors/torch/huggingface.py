"""Hugging Face's cross entropy, as a mean.

Its Trainer gives a model the number of tokens in all micro-batches of a step, and the model's loss function then takes
cross_entropy's sum and divides by that number. As a loss, the sum says nothing: it grows with the batch, and the
batches of training and evaluation differ. What is recorded is the mean over the tokens of the call itself, which is
what the function returns when it is not given a number, in training and in evaluation. `backward_loss` has what was
trained on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .unseen import hidden

if TYPE_CHECKING:
    from .session import Session

_NAME = "CrossEntropyLoss"


def patch(session: Session) -> None:
    """Puts transformers' loss function under watch, once it is imported. Cheap to ask again."""
    module = sys.modules.get("transformers.loss.loss_utils")
    if module is not None:
        session.patches.replace([module], "fixed_cross_entropy", lambda original: _watch(original, session))
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    if trainer is not None:
        session.patches.replace([trainer], "evaluation_loop", lambda original: _watch_evaluation(original, session))


def _watch_evaluation(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    """Losses that a Trainer computes by itself (label smoothing, DPO's): what its prediction_step returns, whoever
    overrode it."""
    def evaluation_loop(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        own = trainer.prediction_step
        replaced = trainer.__dict__.get("prediction_step")

        @functools.wraps(own)
        def prediction_step(*a: Any, **k: Any) -> Any:
            result = own(*a, **k)
            if session.listening and session.evaluations.evaluating:
                session.guarded("a Trainer's evaluation", session.losses.of_evaluation, result[0], False)
            return result

        trainer.prediction_step = prediction_step
        try:
            return original(trainer, *args, **kwargs)
        finally:
            if replaced is None:
                del trainer.prediction_step
            else:
                trainer.prediction_step = replaced
    return evaluation_loop


def _watch(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def fixed_cross_entropy(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not session.listening or session.elsewhere():
            return original(*args, **kwargs)
        losses = session.losses
        losses.muted = True
        try:
            result = original(*args, **kwargs)
        finally:
            losses.muted = False
        try:
            labels = args[1] if len(args) > 1 else kwargs.get("target")
            with hidden():
                losses.returned(_NAME, result, lambda: _share(result, *args, **kwargs), labels)
        except BaseException as error:
            session.guard.failed("transformers' loss function", error)
        return result
    return fixed_cross_entropy


def _share(result: torch.Tensor, source: Any, target: Any, num_items_in_batch: Any = None, ignore_index: int = -100,
           **_: Any) -> Any:
    """What `result` is multiplied by to be the mean over this call's targets; None: it is that."""
    if num_items_in_batch is None:
        return None
    if torch.is_tensor(num_items_in_batch):
        num_items_in_batch = num_items_in_batch.to(result.device)
    return num_items_in_batch / (target != ignore_index).sum().clamp(min=1)
