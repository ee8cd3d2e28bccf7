"""The third part: kinds and healthy trainings written when detectors of data and of the job came, and not looked at while they
were. What a kind is: faults.py; what is healthy: healthy.py.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
import torch.nn.functional as F
from faults import PLAIN, at_batch, at_end, few, kind
from healthy import healthy
from torch import nn
from workloads import CLASSES, CLASSIFIERS, FEATURES, Work

# Faults --------------------------------------------------------------------------------------------------------------

UNSCALED = {"input_unscaled", "first_loss", "gradient_jump", "update_too_large"}


@kind("data", UNSCALED, "U D", families=PLAIN)
def images_in_bytes(w: Work) -> None:
    w.inputs, w.held = (40 * w.inputs + 128).clamp(0, 255).round(), (40 * w.held + 128).clamp(0, 255).round()


@kind("data", UNSCALED, "U F", families=["mlp", "tabular", "binary"])
def column_in_another_unit(w: Work) -> None:
    w.inputs, w.held = w.inputs.clone(), w.held.clone()
    for table in (w.inputs, w.held):
        table[:, 5] *= 2e4


@kind("data", "not_logits", "U D", families=[*CLASSIFIERS])
def softmax_in_the_model(w: Work) -> None:
    own = w.forward
    w.forward = lambda x: torch.softmax(own(x), -1)


@kind("data", "not_logits", "F", families=["binary"])
def sigmoid_in_the_model(w: Work) -> None:
    own = w.forward
    w.forward = lambda x: torch.sigmoid(own(x))


@kind("data", "not_logits", "F", families=[*CLASSIFIERS])
def nll_of_logits(w: Work) -> None:
    w.loss = F.nll_loss


@kind("data", "labels_out_of_range", "F", families=["binary"])
def labels_of_minus_one(w: Work) -> None:
    w.targets, w.held_targets = 2 * w.targets - 1, 2 * w.held_targets - 1


@kind("data", "labels_sorted labels_one_class", "F U", families=[*CLASSIFIERS])
def never_shuffled(w: Work) -> None:
    order = w.targets.argsort()
    w.choose = lambda: order[torch.arange(w.step * w.batch_size, (w.step + 1) * w.batch_size) % len(order)]


@kind("data", "labels_one_class", "F", families=[*CLASSIFIERS])
def one_label_for_all(w: Work) -> None:
    w.targets = torch.full_like(w.targets, 3)


@kind("data", "input_constant same_batch", "T F", families=[*CLASSIFIERS, "tabular"])
def one_sample_for_all(w: Work) -> None:
    own = w.batch

    def batch() -> Any:
        x, y = own()
        return x[:1].expand_as(x).clone(), y
    w.batch = batch


@kind("data", "all_padding input_constant", "F", families=["language"])
def padded_to_nothing(w: Work) -> None:
    w.model.table.padding_idx = 0
    at_batch(w, lambda x, y: (torch.zeros_like(x), y), late=False)


@kind("data", "input_shifted loss_back loss_jump diverging", "T F", late=True, families=["mlp", "cnn", "rnn", "autoencoder"])
def scaled_twice_late(w: Work) -> None:
    at_batch(w, lambda x, y: (x / 255, y))


@kind("data", "input_nonfinite nonfinite", "D", families=[*CLASSIFIERS, "tabular"])
def column_of_missing_values(w: Work) -> None:
    w.inputs = w.inputs.clone()
    w.inputs[::7, 9] = math.nan


@kind("wiring", "clipped_away update_too_small weights_unchanged no_improvement", "F T", families=["mlp", "cnn"],
      optimizers=["sgd", "momentum"], schedules=["constant", "cosine"])
def clipped_before_unscaling(w: Work) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=100000)
    w.max_norm = 0.5
    w.backward = lambda loss: scaler.scale(loss).backward()

    def update() -> None:
        scaler.step(w.optimizer)
        scaler.update()
    w.update = update


@kind("wiring", "zero_gradient no_gradient no_improvement", "F", families=PLAIN)
def everything_dropped(w: Work) -> None:
    w.model.between = lambda x: F.dropout(x, 1.0)


@kind("wiring", "no_optimizer no_gradient", "F T", families=["mlp", "cnn", "rnn"])
def head_replaced_after_the_optimizer(w: Work) -> None:
    own = w.make_optimizer

    def make() -> Any:
        optimizer = own()
        w.model.head = nn.Linear(w.model.head.in_features, w.model.head.out_features)
        return optimizer
    w.make_optimizer = make


@kind("systems", "weights_replaced loss_back loss_jump", "T", late=True, schedules=["constant", "cosine"])
def weights_scaled_by_a_load(w: Work) -> None:
    at_end(w, lambda: [p.mul_(0.3) for p in w.matrices()])


@kind("systems", "zero_gradient dead_units weights_unchanged", "T", late=True, families=[*CLASSIFIERS])
def gradient_lost_in_transit(w: Work) -> None:
    own = w.clip

    def clip() -> None:
        own()
        if w.late():
            for p in w.matrices()[:-1]:
                p.grad.zero_()
    w.clip = clip


@kind("systems", "nonfinite", "T", late=True, optimizers=["adam", "adamw"])
def optimizer_state_corrupted(w: Work) -> None:
    at_end(w, lambda: w.optimizer.state[w.matrices()[0]]["exp_avg"].view(-1)[:1].fill_(math.nan))


@kind("generalisation", "validation_rises", "U A", families=["resnet", "encoder"], optimizers=["adam", "adamw"],
      schedules=["constant"], steps=400)
def overfit_large_model(w: Work) -> None:
    few(w, 40, True)


@kind("generalisation", "validation_rises", "F", families=["mlp"], optimizers=["adam", "adamw"], schedules=["constant"], steps=400)
def label_in_a_feature(w: Work) -> None:
    """Of the training's rows one column is made of the label; of the held ones it is not."""
    w.inputs = w.inputs.clone()
    w.inputs[:, 4] = w.targets.float()
    w.inputs[:, 6:] *= 0.3


# Healthy -------------------------------------------------------------------------------------------------------------

@healthy
def bytes_scaled_in_the_model(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn", "rnn"])
    w.inputs, w.held = (40 * w.inputs + 128).clamp(0, 255), (40 * w.held + 128).clamp(0, 255)
    net = w.model

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net((x - 128) / 40)
    w.model = Scaled()
    return w


@healthy
def bytes_into_a_norm(name: str) -> Work:
    w = Work(name, families=["mlp"])
    w.inputs, w.held = 40 * w.inputs + 128, 40 * w.held + 128
    w.model = nn.Sequential(nn.BatchNorm1d(FEATURES), w.model)
    return w


@healthy
def missing_values(name: str) -> Work:
    """NaN where nothing was measured; the model is made for it."""
    w = Work(name, families=["mlp"])
    net, told = w.model, nn.Linear(FEATURES, FEATURES)

    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.told, self.net = told, net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x.nan_to_num(0.0) + self.told(x.isnan().float()))
    w.model = Filled()
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = own()
        return torch.where(torch.rand(x.shape, generator=w.order) < 0.05, math.nan, x), y
    w.batch = batch
    return w


@healthy
def three_in_a_hundred(name: str) -> Work:
    """Few of one class, in what is held out as well."""
    w = Work(name, families=["binary"])
    for inputs, targets in ((w.inputs, w.targets), (w.held, w.held_targets)):
        targets[:] = (inputs[:, :1] + 0.3 * inputs[:, 1:2] > 1.95).float()
    return w


@healthy
def mixed_up(name: str) -> Work:
    """Labels that are probabilities."""
    w = Work(name, families=[*CLASSIFIERS])

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        a, b = w.choose(), w.choose()
        share = 0.5 + 0.5 * torch.rand(len(a), 1, generator=w.order)
        x = share * w.inputs[a] + (1 - share) * w.inputs[b]
        return x, share * F.one_hot(w.targets[a], CLASSES) + (1 - share) * F.one_hot(w.targets[b], CLASSES)
    w.batch = batch
    return w


@healthy
def smoothed_binary(name: str) -> Work:
    w = Work(name, families=["binary"])
    w.targets, w.held_targets = 0.05 + 0.9 * w.targets, 0.05 + 0.9 * w.held_targets
    return w


@healthy
def sparse_inputs(name: str) -> Work:
    """Counts of words: nearly all are zero."""
    w = Work(name, families=["mlp"])
    words = torch.rand(CLASSES, 400, generator=w.data) ** 6

    def counts(targets: torch.Tensor) -> torch.Tensor:
        return torch.poisson(0.3 * words[targets], generator=w.data)
    w.inputs, w.held = counts(w.targets), counts(w.held_targets)
    w.model = nn.Sequential(nn.Linear(400, FEATURES), nn.ReLU(), w.model)
    return w


@healthy
def short_texts(name: str) -> Work:
    """Most of a batch is padding, which the loss ignores."""
    w = Work(name, families=["language"])
    w.model.table.padding_idx = 0
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = own()
        ends = torch.randint(1, 4, (len(x), 1), generator=w.order)
        over = torch.arange(x.shape[1]) >= ends
        return x.masked_fill(over, 0), y.masked_fill(over, -100)
    w.batch = batch
    return w


@healthy
def two_classes_a_batch(name: str) -> Work:
    """Pairs of classes, as triplets are drawn."""
    w = Work(name, families=["mlp", "cnn"], schedules=["constant"])
    rows = [(w.targets == k).nonzero()[:, 0] for k in range(CLASSES)]

    def choose() -> torch.Tensor:
        pair = torch.randperm(CLASSES, generator=w.order)[:2]
        return torch.cat([rows[k][torch.randint(0, len(rows[k]), (w.batch_size // 2,), generator=w.order)] for k in pair])
    w.choose = choose
    return w


@healthy
def small_inputs(name: str) -> Work:
    w = Work(name, families=["mlp", "tabular", "autoencoder"], optimizers=["adam", "adamw", "rmsprop"])
    w.inputs, w.held = 0.05 * w.inputs, 0.05 * w.held
    if w.family == "autoencoder":
        w.targets, w.held_targets = w.inputs, w.held
    return w


@healthy
def growing_augmentation(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS])
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = own()
        return x * (1 + (torch.rand(len(x), 1, generator=w.order) - 0.5) * w.step / w.steps), y
    w.batch = batch
    return w


@healthy
def logarithms_of_probabilities(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS])
    w.forward = lambda x: F.log_softmax(w.model(x), -1)
    w.loss = F.nll_loss
    return w


@healthy
def waits_now_and_then(name: str) -> Work:
    """A loader that is slow at times."""
    w = Work(name, families=["mlp", "tabular"])
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        if w.step % 12 > 9 or 100 <= w.step < 130:
            time.sleep(0.02)
        return own()
    w.batch = batch
    return w


@healthy
def residual_of_nothing(name: str) -> Work:
    """Compared with zeros on purpose: an equation that is to hold."""
    w = Work(name, families=["tabular"], optimizers=["adam", "adamw"])
    own = w.loss
    w.loss = lambda out, y: F.mse_loss(out - y, torch.zeros_like(out)) if w.model.training else own(out, y)
    return w
