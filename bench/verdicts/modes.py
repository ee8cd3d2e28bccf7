"""Modes of modules, and gradients of 16 bits: written with the detectors that look at them, and so not unseen by them. What
a kind is: faults.py; what is healthy: healthy.py.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from faults import kind
from healthy import healthy
from torch import nn
from workloads import CLASSIFIERS, FAULT_AT, Work

DROPS = ["mlp", "cnn", "rnn", "resnet"]


def drop(w: Work) -> None:
    w.model.dropout = nn.Dropout(0.3)


def evaluate_in_batches(w: Work, size: int = 64) -> None:
    with torch.no_grad():
        for x, y in zip(w.held.split(size), w.held_targets.split(size)):
            w.loss(w.forward(x), y)


# Faults -------------------------------------------------------------------------------------------------------------

@kind("wiring", "evaluated_training", "F U", families=DROPS)
def eval_forgotten(w: Work) -> None:
    drop(w)
    w.evaluate = lambda: evaluate_in_batches(w)


@kind("wiring", "evaluated_training", "F", families=["resnet"])
def eval_forgotten_on_one_batch(w: Work) -> None:
    w.evaluate = lambda: evaluate_in_batches(w, 1024)


@kind("wiring", "left_evaluating", "F U", late=True, families=DROPS)
def train_forgotten(w: Work) -> None:
    drop(w)

    def evaluate() -> None:
        w.model.eval()
        evaluate_in_batches(w)
        if w.step < FAULT_AT - 1:
            w.model.train()
    w.evaluate = evaluate


@kind("numerics", "gradient_underflow", "F", families=["mlp", "cnn"], optimizers=["adam", "momentum"])
def halves_of_a_mean(w: Work) -> None:
    """A loss that is divided by the number of all pixels, in float16 and unscaled."""
    w.autocast, w.max_norm = False, 0
    w.options = {"eps": 1e-4} if w.optimizer_name == "adam" else {}
    w.model.half()
    own, loss = w.forward, w.loss
    w.forward = lambda x: own(x.half()).float()
    w.loss = lambda out, y: loss(out, y) / (512 * 512)


# Healthy ------------------------------------------------------------------------------------------------------------

@healthy
def dropout_in_training_alone(name: str) -> Work:
    w = Work(name, families=DROPS)
    drop(w)

    def evaluate() -> None:
        w.model.eval()
        evaluate_in_batches(w)
        w.model.train()
    w.evaluate = evaluate
    return w


@healthy
def fine_tuned_in_evaluation_mode(name: str) -> Work:
    """A pretrained model that is never in training mode."""
    w = Work(name, families=["mlp", "rnn"], schedules=["warmup"])
    drop(w)
    w.model.train = lambda mode=True: w.model
    w.model.training = False
    for module in w.model.modules():
        module.training = False
    return w


@healthy
def chosen_by_loss(name: str) -> Work:
    """Of twice as many samples the half with the larger losses is trained on; what is chosen from is a forward without
    gradients at each step."""
    w = Work(name, families=[f for f in CLASSIFIERS if f in DROPS])
    drop(w)

    def batch() -> Any:
        chosen = torch.cat([w.choose(), w.choose()])
        x, y = w.inputs[chosen], w.targets[chosen]
        with torch.no_grad():
            order = F.cross_entropy(w.forward(x), y, reduction="none").argsort(descending=True)
        half = order[:len(order) // 2]
        return x[half], y[half]
    w.batch = batch
    return w


@healthy
def loss_of_what_was_trained_on(name: str) -> Work:
    """A metric: the training's output is compared once more, without gradients."""
    w = Work(name, families=DROPS)
    drop(w)
    own = w.loss

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if w.step % 10 == 0 and out.requires_grad:
            with torch.no_grad():
                own(out, y)
                own(out.detach(), y)
        return own(out, y)
    w.loss = loss
    return w


@healthy
def halves_that_are_scaled(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn"], optimizers=["momentum"], schedules=["constant"])
    w.autocast, w.max_norm = False, 0
    w.model.half()
    own = w.forward
    w.forward = lambda x: own(x.half()).float()
    return w
