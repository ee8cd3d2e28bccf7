"""Trainings of the fourth part that are well: losses that rise as they should, weights that are put elsewhere on purpose, the same
batch at each step, hardly any labels. By the author of fourth.py, committed with it before any was judged.
"""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import architectures as a
import torch
import torch.nn.functional as F
from healthy import healthy
from torch import nn
from torch.utils.checkpoint import checkpoint
from workloads import CLASSIFIERS, FEATURES, Work


@healthy
def divergence_annealed(name: str) -> Work:
    """A code's divergence counts from nothing to all within a hundred steps, so the loss rises."""
    w = a.Vae(name, steps=400)
    w.weight = lambda: min(1.0, w.step / 100) * 2
    return w


@healthy
def diffusion_for_longer(name: str) -> Work:
    """With weights that are averaged beside it."""
    w = a.Diffusion(name, steps=800)
    mean = copy.deepcopy(w.model).requires_grad_(False)

    def after() -> None:
        with torch.no_grad():
            for old, new in zip(mean.parameters(), w.model.parameters()):
                old.lerp_(new, 0.01)
    w.after = after
    return w


@healthy
def values_that_grow(name: str) -> Work:
    """Q-learning whose rewards are of one and of ten: the loss rises as more of them is known."""
    w = a.Dqn(name, steps=600)
    own = w.batch

    def batch() -> Any:
        x, (action, reward, following, ended) = own()
        return x, (action, 10 * reward, following, ended)
    w.batch = batch
    return w


@healthy
def whole_graph_at_each_step(name: str) -> Work:
    """The same graph each time; the labels of one node in eight are known."""
    w = a.Graph(name)
    known = torch.randperm(480, generator=w.data)[:60]
    w.choose = lambda: torch.arange(480)
    own, whole = w.loss, 480
    w.loss = lambda out, y: own(out[known], y[known]) if len(y) == whole else own(out, y)
    return w


@healthy
def checkpointed(name: str) -> Work:
    """Activations are computed a second time in the backward pass."""
    w = Work(name, families=["mlp", "cnn", "encoder", "rnn"])
    w.forward = lambda x: w.model.head(w.model.between(checkpoint(w.model.features, x, use_reentrant=False)))
    return w


@healthy
def a_trainers_loop(name: str) -> Work:
    """Language, as trainers of fine-tuning do it: eight small batches a step, norms cut at one, up and then down to zero."""
    w = Work(name, families=["language"], optimizers=["adamw"], schedules=["constant"], steps=120)
    w.accumulate, w.batch_size, w.max_norm = 8, 8, 1.0
    w.factor = lambda step: min(step / 12, max(0.0, (120 - step) / 108))
    return w


@healthy
def attention_in_bfloat16(name: str) -> Work:
    w = a.Texts(name, steps=300)
    w.context = lambda: torch.autocast("cpu", torch.bfloat16)
    return w


@healthy
def range_of_rates_first(name: str) -> Work:
    """Forty steps of growing rates, the weights as they were, and then the training."""
    w = Work(name, families=["mlp", "cnn", "rnn"], optimizers=["momentum", "adam"], schedules=["constant"])
    before, own = copy.deepcopy(w.model.state_dict()), w.run
    w.factor = lambda step: 1.0

    def run() -> None:
        test = w.make_optimizer()
        for i in range(40):
            for group in test.param_groups:
                group["lr"] = w.rate * 10 ** (i / 20 - 1.7)
            x, y = w.batch()
            test.zero_grad()
            w.loss(w.forward(x), y).backward()
            test.step()
        w.model.load_state_dict(before)
        own()
    w.run = run
    return w


@healthy
def tied_tables(name: str) -> Work:
    w = a.Causal(name, steps=300)
    w.model.head = nn.Linear(w.width, 24, bias=False)
    nn.init.normal_(w.model.table.weight, 0, w.width ** -0.5)
    w.model.head.weight = w.model.table.weight
    return w


@healthy
def averaged_by_cycles(name: str) -> Work:
    """Stochastic weight averaging: rates in cycles, and at the end the mean of what they ended at, with new averages of its norms."""
    w = Work(name, families=["resnet", "cnn"], optimizers=["momentum"], schedules=["constant"], steps=300)
    w.factor = lambda step: 1.0 if step < 150 else 0.1 + 0.9 * (1 - (step % 30) / 30)
    mean, own = torch.optim.swa_utils.AveragedModel(w.model), w.run
    w.after = lambda: mean.update_parameters(w.model) if w.step >= 150 and w.step % 30 == 29 else None

    def run() -> None:
        own()
        torch.optim.swa_utils.update_bn((w.inputs[i:i + 64] for i in range(0, 1024, 64)), mean)
        with torch.no_grad():
            w.loss(mean(w.held), w.held_targets)
    w.run = run
    return w


@healthy
def thawed_layer_by_layer(name: str) -> Work:
    """Rates that are smaller the deeper a layer is, and one layer more every fifty steps."""
    w = Work(name, families=["mlp"], optimizers=["adamw"], schedules=["cosine"], steps=300)
    layers = [w.model.head, *reversed(w.model.layers)]
    w.make_optimizer = lambda: torch.optim.AdamW(
        [{"params": layer.parameters(), "lr": w.rate / 2.6 ** i} for i, layer in enumerate(layers)], weight_decay=0.01)
    for layer in layers[1:]:
        layer.requires_grad_(False)

    def after() -> None:
        if w.step % 50 == 49 and w.step // 50 + 1 < len(layers):
            layers[w.step // 50 + 1].requires_grad_(True)
    w.after = after
    return w


@healthy
def two_pixels_in_a_hundred(name: str) -> Work:
    """Segmentation of small things: nearly all is background, and the loss is small from early on."""
    w = a.Segmentation(name, steps=300)
    for x, y in ((w.inputs, w.targets), (w.held, w.held_targets)):
        small = torch.zeros_like(y)
        small[:, :, 1:3, 1:3] = 1
        x -= 1.5 * (y * (1 - small))
        y *= small
    return w


@healthy
def hinge_and_spectral_norm(name: str) -> Work:
    w = a.Minimax(name, steps=400)
    for i, module in enumerate(w.judge):
        if isinstance(module, nn.Linear):
            w.judge[i] = nn.utils.parametrizations.spectral_norm(module)
    w.of_generator = lambda said: -said.mean()
    return w


@healthy
def words_of_its_own_more_and_more(name: str) -> Work:
    """Scheduled sampling: what the decoder is given is more and more often what it said itself, and the loss rises."""
    w = a.Translate(name, steps=300)
    own = w.said

    def said(y: torch.Tensor) -> torch.Tensor:
        given = own(y)
        with torch.no_grad():
            guess = w.model(w.source, given).argmax(-1)
        mine = torch.cat([given[:, :1], guess[:, :-1]], 1)
        return torch.where(torch.rand(y.shape, generator=w.order) < w.step / w.steps, mine, given)

    def forward(x: Any) -> torch.Tensor:
        w.source = x[0]
        return w.model(x[0], said(x[1]))
    w.forward = forward
    return w


@healthy
def pupil_of_its_own_past(name: str) -> Work:
    """Two views, no negatives: a predictor, and a slowly following copy that has no gradient."""
    w = a.Views(name, optimizers=["adamw"], steps=300)
    slow = copy.deepcopy(w.model).requires_grad_(False)
    guess = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    fast = w.model
    w.model = nn.ModuleDict({"fast": fast, "guess": guess})
    w.forward = lambda x: (guess(fast(x[0])), slow(x[1]).detach())
    w.loss = lambda out, y: 2 - 2 * F.cosine_similarity(*out).mean()

    def after() -> None:
        with torch.no_grad():
            for old, new in zip(slow.parameters(), fast.parameters()):
                old.lerp_(new, 0.02)
    w.after = after
    return w


@healthy
def one_word_in_seven(name: str) -> Work:
    """Masked words are predicted; the loss ignores all others."""
    w = a.Causal(name, steps=300)
    w.model.table = nn.Embedding(25, w.width)
    w.keep, own = (lambda size: torch.ones(size, size)), w.batch

    def batch() -> Any:
        x, _ = own()
        hidden = torch.rand(x.shape, generator=w.order) < 0.15
        hidden[:, 3] = True
        return x.masked_fill(hidden, 24), x.masked_fill(~hidden, -100)
    w.batch, w.every = batch, 0
    return w


@healthy
def weighted_by_learnt_doubt(name: str) -> Work:
    """Two tasks, each weighted by a variance that is learnt: the sum falls below zero."""
    w = Work(name, families=["tabular"], optimizers=["adam", "adamw"], steps=400)
    w.targets, w.held_targets = ((torch.cat([y, torch.tanh(2 * y)], 1)) for y in (w.targets, w.held_targets))
    w.model.head = nn.Linear(w.model.head.in_features, 2)
    w.model.doubt = nn.Parameter(torch.zeros(2))

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        each = torch.stack([F.mse_loss(out[:, i], y[:, i]) for i in range(2)])
        return (each * torch.exp(-w.model.doubt) + w.model.doubt).sum()
    w.loss = loss
    return w


@healthy
def flow(name: str) -> Work:
    """The logarithm of a density, which may be above zero as well as below: affine couplings."""
    w = Work(name, families=["autoencoder"], optimizers=["adam"], schedules=["constant", "cosine"], steps=400)
    w.autocast, half = False, FEATURES // 2
    nets = nn.ModuleList(nn.Sequential(nn.Linear(half, 48), nn.ReLU(), nn.Linear(48, FEATURES)) for _ in range(4))
    for net in nets:
        nn.init.zeros_(net[2].weight)
        nn.init.zeros_(net[2].bias)
    w.model = nn.ModuleDict({"couplings": nets})

    def forward(x: torch.Tensor) -> Any:
        total = torch.zeros(len(x))
        for net in nets:
            kept, other = x.chunk(2, 1)
            scale, shift = net(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            x, total = torch.cat([other * scale.exp() + shift, kept], 1), total + scale.sum(1)
        return x, total
    w.forward = forward
    w.loss = lambda out, y: (0.5 * (out[0] ** 2).sum(1) + 0.5 * FEATURES * math.log(2 * math.pi) - out[1]).mean()
    return w


@healthy
def sharpness_aware(name: str) -> Work:
    """Two passes a step: the weights are moved up the slope, and back again before the update."""
    w = Work(name, families=["mlp", "cnn"], optimizers=["momentum", "adamw"])
    w.max_norm, w.autocast = 0, False

    def update() -> None:
        ways = [(p, p.grad.clone()) for p in w.parameters()]
        scale = 0.05 / (sum(float((g * g).sum()) for _, g in ways) ** 0.5 + 1e-12)
        with torch.no_grad():
            for p, g in ways:
                p.add_(g, alpha=scale)
        w.optimizer.zero_grad()
        w.loss(w.forward(w.last[0]), w.last[1]).backward()
        with torch.no_grad():
            for p, g in ways:
                p.sub_(g, alpha=scale)
        w.optimizer.step()
    own = w.batch

    def batch() -> Any:
        w.last = own()
        return w.last
    w.batch, w.update = batch, update
    return w


@healthy
def steps_in_random_depth(name: str) -> Work:
    """Blocks are left out at random, which then have no gradient in that step."""
    w = Work(name, families=["resnet"], optimizers=["momentum", "adamw"])
    blocks = w.model.blocks
    for _ in range(3):
        blocks.append(copy.deepcopy(blocks[0]))

    class Sometimes(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x) if not self.training or torch.rand(()) < 0.6 else torch.zeros_like(x)
    w.model.blocks = nn.ModuleList(Sometimes(block) for block in blocks)
    return w


@healthy
def letters_of_a_sound(name: str) -> Work:
    """CTC: the loss begins at some tens, falls fast, and then waits where all is blank."""
    w = Work(name, families=["rnn"], optimizers=["adam"], schedules=["constant"], steps=300)
    net = w.model
    net.head = nn.Linear(net.head.in_features, CLASSES_AND_BLANK)
    shapes = torch.randn(CLASSES_AND_BLANK - 1, 4, generator=w.data)
    said = torch.randint(0, CLASSES_AND_BLANK - 1, (1280, 4), generator=w.data)
    sound = shapes[said].repeat_interleave(4, 1) + 0.3 * torch.randn(1280, 16, 4, generator=w.data)
    w.inputs, w.targets, w.held, w.held_targets = sound[:1024], said[:1024] + 1, sound[1024:], said[1024:] + 1
    w.forward = lambda x: F.log_softmax(net.head(net.cell(x)[0]), -1).transpose(0, 1)
    w.loss = lambda out, y: F.ctc_loss(out, y, torch.full((len(y),), 16), torch.full((len(y),), 4), zero_infinity=True)
    for p in net.layers.parameters():
        p.requires_grad_(False)
    return w


CLASSES_AND_BLANK = 6


@healthy
def trained_on_one_class_at_a_time(name: str) -> Work:
    """A stream of tasks with a memory: three of four samples are of two classes, which change every sixty steps."""
    w = Work(name, families=[f for f in CLASSIFIERS if f != "resnet"], schedules=["constant"])
    rows = [(w.targets // 2 == k).nonzero()[:, 0] for k in range(4)]

    def choose() -> torch.Tensor:
        now, size = rows[min(w.step // 60, 3)], w.batch_size
        new = now[torch.randint(0, len(now), (size - size // 4,), generator=w.order)]
        return torch.cat([new, torch.randint(0, len(w.inputs), (size // 4,), generator=w.order)])
    w.choose = choose
    return w


@healthy
def sums_in_double(name: str) -> Work:
    """A regression in double precision with targets of a million."""
    w = Work(name, families=["tabular"], optimizers=["adam"], schedules=["warmup", "cosine"], steps=300)
    w.autocast, w.context = False, contextlib.nullcontext
    w.model.double()
    scale = 1e6
    w.inputs, w.held = w.inputs.double(), w.held.double()
    w.targets, w.held_targets = scale * w.targets.double(), scale * w.held_targets.double()
    w.loss = lambda out, y: F.smooth_l1_loss(scale * out, y) / scale
    return w
