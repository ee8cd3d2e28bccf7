"""Trainings of the fifth part that are well: hardly anything to be learnt, gradients that are held still on purpose, steps that are left
out, settings that are odd and meant. By the author of fifth.py, committed with it before any was judged.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import applications as ap
import architectures as a
import texts as t
import torch
import torch.nn.functional as F
from healthy import healthy
from torch import nn
from torch.nn.utils import prune
from workloads import CLASSES, CLASSIFIERS, FEATURES, Work


# Hardly anything to be learnt, numbers of other sizes --------------------------------------------------------------------

@healthy
def returns_of_tomorrow(name: str) -> Work:
    """What is known explains two parts in a hundred of what is asked, and no training finds more."""
    w = Work(name, families=["tabular"], optimizers=["adamw"], schedules=["constant", "cosine"], steps=400)
    w.count = 8192
    w.make_data()
    for y in (w.targets, w.held_targets):
        y.mul_(0.14).add_(torch.randn(y.shape, generator=w.data))
    w.rate, w.batch_size = w.rate / 10, 64
    return w


@healthy
def prices_in_thousands(name: str) -> Work:
    """As they are, in thousands of dollars; the last layer begins at their mean."""
    w = ap.Prices(name, optimizers=["adam"], steps=400)
    thousands = w.dollars / 1000
    w.targets, w.held_targets = thousands[:-ap.HELD], thousands[-ap.HELD:]
    w.model.net[-1].bias.data.fill_(float(w.targets.mean()))
    w.rate, w.loss = 5 * w.rate, F.l1_loss
    return w


@healthy
def four_labels_in_ten_are_wrong(name: str) -> Work:
    """The loss stays high, and so it should."""
    w = Work(name, families=[*CLASSIFIERS], optimizers=["adam", "momentum"], steps=300)
    w.count = 8192
    w.make_data()
    for y in (w.targets, w.held_targets):
        wrong = torch.rand(y.shape, generator=w.data) < 0.4
        y[wrong] = torch.randint(0, CLASSES, (int(wrong.sum()),), generator=w.data)
    return w


@healthy
def counts_by_their_likelihood(name: str) -> Work:
    """Without the part that the model cannot change: below zero as well as above."""
    return ap.Counts(name, steps=400)


@healthy
def three_quantiles(name: str) -> Work:
    """Three predictions for one number: shapes that differ on purpose."""
    w = ap.Prices(name, steps=400)
    w.model.net[-1] = nn.Linear(w.width, 3)
    share = torch.tensor([0.1, 0.5, 0.9])
    w.loss = lambda out, y: torch.maximum(share * (y - out), (share - 1) * (y - out)).mean()
    return w


@healthy
def sensors_that_rest(name: str) -> Work:
    """Nearly all columns are always zero, in what is trained on and in what is held out; few are not."""
    w = Work(name, families=["mlp", "tabular"], steps=300)
    for x in (w.inputs, w.held):
        x[:, 14:] = 0
    return w


@healthy
def seldom_tags(name: str) -> Work:
    """Twenty-four labels that may each be there or not, three in a hundred of them are."""
    w = Work(name, families=["mlp"], optimizers=["adam", "adamw"], steps=300)
    w.autocast = False
    w.model.head = nn.Linear(w.model.head.in_features, 24)
    ways = torch.randn(FEATURES, 24, generator=w.data)
    x = torch.randn(4096 + 256, FEATURES, generator=w.data)
    y = (x @ ways / FEATURES ** 0.5 > 1.9).float()
    w.inputs, w.targets, w.held, w.held_targets = x[:4096], y[:4096], x[4096:], y[4096:]
    w.loss = F.binary_cross_entropy_with_logits
    return w


@healthy
def seldom_claims(name: str) -> Work:
    """One row in twenty, which weighs nineteen times as much."""
    w = ap.Claims(name, steps=300)
    w.rate /= 2
    return w


# Gradients held still, odd paths --------------------------------------------------------------------------------------

@healthy
def codes_of_a_table(name: str) -> Work:
    """A gradient that jumps over a table; codes that no sample uses."""
    return ap.Codes(name, steps=400)


@healthy
def guess_of_the_other_view(name: str) -> Work:
    """A siamese network without negatives: one side is held still; the loss is below zero."""
    return ap.Siam(name, optimizers=["adam"], steps=400)


@healthy
def taught_by_a_mean(name: str) -> Work:
    """A mean teacher: few labels, and what a slow copy says of the rest counts more and more, so the loss rises for a while."""
    w = Work(name, families=["mlp", "cnn"], optimizers=["adam"], schedules=["constant"], steps=300)
    w.autocast = False
    teacher = copy.deepcopy(w.model).requires_grad_(False)
    own, labelled = w.batch, 512

    def batch() -> Any:
        x = own()[0]
        chosen = torch.randint(0, labelled, (len(x),), generator=w.order)
        return torch.cat([w.inputs[chosen] + 0.7 * torch.randn(x.shape), x]), w.targets[chosen]

    def forward(x: torch.Tensor) -> Any:
        out = w.model(x)
        if not w.model.training:
            return out
        half = len(x) // 2
        with torch.no_grad():
            said = teacher(x[half:] + 0.1 * torch.randn(x[half:].shape)).softmax(1)
        w.unlike = F.mse_loss(out[half:].softmax(1), said)
        return out[:half]

    def after() -> None:
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), w.model.parameters()):
                old.lerp_(new, 0.02)
    loss = w.loss
    w.loss = lambda out, y: loss(out, y) + (30 * min(1.0, w.step / 150) * w.unlike if w.model.training else 0)
    w.batch, w.forward, w.after = batch, forward, after
    return w


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -0.3 * gradient


@healthy
def domains_that_are_not_to_be_told(name: str) -> Work:
    """A second head learns where a sample is from, and the trunk, by a gradient of the other sign, that it cannot: its loss does
    not fall."""
    w = Work(name, families=["mlp"], optimizers=["adam"], schedules=["constant", "cosine"], steps=300)
    w.autocast = False
    domain = w.model.domain = nn.Linear(w.model.head.in_features, 2)
    where = torch.randint(0, 2, (len(w.inputs),), generator=w.data)
    w.inputs = w.inputs + where[:, None] * torch.randn(FEATURES, generator=w.data)
    loss = w.loss

    def batch() -> Any:
        chosen = w.choose()
        w.where = where[chosen]
        return w.inputs[chosen], w.targets[chosen]

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen = w.model.features(x)
        if w.model.training:
            w.told = F.cross_entropy(domain(Turned.apply(seen)), w.where)
        return w.model.head(seen)
    w.batch, w.forward = batch, forward
    w.loss = lambda out, y: loss(out, y) + (w.told if w.model.training else 0)
    return w


@healthy
def choices_that_are_nearly_hard(name: str) -> Work:
    """A code of sixteen choices by Gumbel's noise; the temperature falls, and choices become harder."""
    w = Work(name, families=["autoencoder"], optimizers=["adam"], schedules=["constant"], steps=400)
    w.autocast = False
    w.model = nn.ModuleDict({"into": ap.stack(FEATURES, 48, 64), "out": ap.stack(64, 48, FEATURES)})

    def forward(x: torch.Tensor) -> torch.Tensor:
        chosen = F.gumbel_softmax(w.model["into"](x).view(len(x), 16, 4), tau=max(0.5, math.exp(-w.step / 300)), hard=True)
        return w.model["out"](chosen.flatten(1))
    w.forward = forward
    return w


@healthy
def equation_that_is_to_hold(name: str) -> Work:
    """No data at all: a derivative of the network is in its loss."""
    return ap.Equation(name, steps=400)


@healthy
def energies(name: str) -> Work:
    """Samples are to have less energy than what is found by walking down from noise: the loss is about zero, and says little."""
    w = a.Vae(name, optimizers=["adam"], schedules=["constant"], steps=200)
    w.family, w.every = "energy", 0
    net = w.model = ap.stack(64, 48, 48, 1, act=nn.SiLU)

    def walked(size: int) -> torch.Tensor:
        x = torch.rand(size, 64)
        for _ in range(12):
            x.requires_grad_()
            slope, = torch.autograd.grad(net(x).sum(), x)
            x = (x - 2 * slope.clamp(-0.1, 0.1) + 0.01 * torch.randn(x.shape)).detach().clamp(0, 1)
        return x
    w.forward = lambda x: (net(x), net(walked(len(x))))
    w.loss = lambda out, y: out[0].mean() - out[1].mean() + 0.1 * (out[0] ** 2 + out[1] ** 2).mean()
    w.rate /= 4
    return w


# Settings that are odd and meant --------------------------------------------------------------------------------------

@healthy
def epsilon_of_a_tenth(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn", "rnn", "tabular"], optimizers=["adam"], steps=400)
    w.options, w.rate = {"eps": 0.1}, 10 * w.rate
    return w


class Penalised(a.Minimax):
    """A Wasserstein critic whose slope is to be one."""

    def run(self) -> None:
        of_generator, of_judge = (torch.optim.Adam(n.parameters(), 1e-3, betas=(0.0, 0.9)) for n in (self.generator, self.judge))
        centres = torch.randn(4, 8, generator=self.data)
        for step in range(self.steps):
            self.step = step
            real = centres[torch.randint(0, 4, (self.batch_size,), generator=self.order)] + 0.2 * torch.randn(self.batch_size, 8)
            fake = self.generator(torch.randn(self.batch_size, 8))
            between = torch.lerp(real, fake.detach(), torch.rand(self.batch_size, 1)).requires_grad_()
            slope, = torch.autograd.grad(self.judge(between).sum(), between, create_graph=True)
            of_judge.zero_grad()
            (self.judge(fake.detach()).mean() - self.judge(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()).backward()
            of_judge.step()
            if step % 3 == 2:
                of_generator.zero_grad()
                (-self.judge(fake).mean()).backward()
                of_generator.step()


@healthy
def slope_of_one(name: str) -> Work:
    """Betas of zero and 0.9, and a penalty whose gradient is of a gradient."""
    return Penalised(name, steps=400)


@healthy
def decay_by_groups(name: str) -> Work:
    """A strong decay for matrices, none for the rest, and a rate of its own for the tables."""
    w = Work(name, families=["encoder", "language", "resnet"], optimizers=["adamw"], schedules=["warmup", "cosine"], steps=300)

    def make() -> torch.optim.Optimizer:
        tables = [p for n, p in w.model.named_parameters() if "table" in n or "place" in n]
        named = {id(p) for p in tables}
        rest = [p for p in w.parameters() if id(p) not in named]
        groups = [{"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.3},
                  {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0},
                  {"params": tables, "weight_decay": 0.0, "lr": 3 * w.rate}]
        return torch.optim.AdamW([group for group in groups if group["params"]], lr=w.rate)
    w.make_optimizer = make
    return w


@healthy
def rates_in_circles(name: str) -> Work:
    """From a twentieth up to the whole and down again, every sixty steps."""
    w = Work(name, optimizers=["momentum", "sgd"], schedules=["constant"], steps=360)
    w.factor = lambda step: 0.05 + 0.95 * (1 - abs((step % 60) / 30 - 1))
    return w


@healthy
def signs_of_a_mean(name: str) -> Work:
    """An optimizer of one's own, of which each step is as large as the other: the sign of a mean of gradients."""
    class Signs(torch.optim.Optimizer):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    p.mul_(1 - 0.1 * group["lr"]).sub_(torch.lerp(p.grad, mean, 0.9).sign_(), alpha=group["lr"])
                    mean.lerp_(p.grad, 0.01)
    w = Work(name, families=["mlp", "cnn", "encoder", "language"], optimizers=["adamw"], schedules=["cosine"], steps=300)
    w.make_optimizer = lambda: Signs(w.parameters(), w.rate / 8)
    return w


@healthy
def three_parts_in_four_hidden(name: str) -> Work:
    """An autoencoder that is given a quarter of its input, and asked for the rest."""
    w = Work(name, families=["autoencoder"], optimizers=["adamw"], schedules=["warmup", "cosine"], steps=400)
    own = w.batch

    def batch() -> Any:
        x, y = own()
        return x * (torch.rand(x.shape, generator=w.order) < 0.25), y
    w.batch = batch
    w.evaluate = lambda: None
    return w


# Steps that are left out, put back, or uneven -------------------------------------------------------------------------

@healthy
def uneven_windows(name: str) -> Work:
    """As many batches as make up a number of words: between one and six a step."""
    w = Work(name, families=["language", "mlp", "cnn"], optimizers=["adam", "adamw"], steps=120)
    own, w.batch_size = w.zero, 16

    def zero() -> None:
        own()
        w.accumulate = 1 + int(torch.randint(0, 6, (), generator=w.order))
    w.zero = zero
    return w


@healthy
def steep_steps_left_out(name: str) -> Work:
    """A step whose gradient is much larger than is usual is not made; each ninth batch is noisy."""
    w = Work(name, families=["mlp", "cnn", "rnn"], optimizers=["momentum", "adam"], schedules=["constant", "cosine"])
    w.max_norm, norms = 0, []
    own, update = w.batch, w.update

    def batch() -> Any:
        x, y = own()
        return (x + 6 * torch.randn(x.shape, generator=w.data) if w.step % 9 == 8 else x), y

    def unless_steep() -> None:
        norm = float(nn.utils.get_total_norm([p.grad for p in w.parameters()]))
        usual = sorted(norms[-30:])[len(norms[-30:]) // 2] if norms else norm
        norms.append(norm)
        if norm <= 2.5 * usual:
            update()
    w.batch, w.update = batch, unless_steep
    return w


@healthy
def slow_weights(name: str) -> Work:
    """Look ahead for five steps, and go half the way: the weights are put elsewhere at each fifth."""
    w = Work(name, optimizers=["adam", "momentum"], steps=300)
    slow = [p.detach().clone() for p in w.model.parameters()]

    def after() -> None:
        if w.step % 5 == 4:
            with torch.no_grad():
                for kept, p in zip(slow, w.model.parameters()):
                    kept.lerp_(p, 0.5)
                    p.copy_(kept)
    w.after = after
    return w


@healthy
def learning_to_learn(name: str) -> Work:
    """Reptile: eight steps on one task, and back again half the way; each task begins where the last did."""
    w = Work(name, families=["mlp"], optimizers=["sgd"], schedules=["constant"], steps=320)
    w.autocast, w.every, w.rate, own = False, 0, 2 * w.rate, w.batch
    kept, tasks = [p.detach().clone() for p in w.model.parameters()], 0.8 * torch.randn(5, FEATURES, generator=w.data)

    def batch() -> Any:
        x, y = own()
        return x + tasks[w.step // 8 % 5], y

    def after() -> None:
        if w.step % 8 == 7:
            with torch.no_grad():
                for start, p in zip(kept, w.model.parameters()):
                    start.lerp_(p, 0.5)
                    p.copy_(start)
    w.batch, w.after = batch, after
    return w


@healthy
def private_steps(name: str) -> Work:
    """Gradients are cut to a small norm, and noise is added to each."""
    w = Work(name, families=["mlp"], optimizers=["momentum"], schedules=["constant"], steps=300)
    w.autocast, w.batch_size = False, 64

    def clip() -> None:
        nn.utils.clip_grad_norm_(w.parameters(), 0.5)
        for p in w.parameters():
            p.grad += 0.01 * torch.randn(p.shape, generator=w.data)
    w.clip = clip
    return w


@healthy
def four_weights_in_five_cut(name: str) -> Work:
    """Pruned in two goes, at step 100 and 150, and trained on."""
    w = Work(name, families=["mlp", "cnn"], optimizers=["adam"], schedules=["constant"], steps=300)
    w.autocast = False

    def after() -> None:
        if w.step in (100, 150):
            for layer in w.model.layers:
                prune.l1_unstructured(layer, "weight", 0.55)
    w.after = after
    return w


@healthy
def larger_and_larger_pictures(name: str) -> Work:
    """Pictures of four, eight and twelve rows, one after the other."""
    w = ap.Boxes(name, optimizers=["adam"], steps=240)
    w.model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                            nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 3))

    def forward(x: Any) -> torch.Tensor:
        size = 12 if not w.model.training else (6, 8, 12)[min(2, w.step // 80)]
        return w.model(F.interpolate(x[0], size=(size, size), mode="bilinear"))
    w.forward, w.loss = forward, lambda out, y: F.cross_entropy(out, y[:, 0].long())
    return w


@healthy
def batches_of_one_length(name: str) -> Work:
    """Texts of about the same length come together, from the short ones to the long."""
    w = t.Reviews(name, optimizers=["adam"], schedules=["cosine"])
    w.rate /= 2
    order = w.inputs[1].argsort()

    def choose() -> torch.Tensor:
        first = int(torch.randint(0, len(order) - w.batch_size, (), generator=w.order))
        return order[first:first + w.batch_size]
    w.choose = choose
    return w


# Other tasks ----------------------------------------------------------------------------------------------------------

@healthy
def masked_words(name: str) -> Work:
    return t.Masked(name, steps=300)


@healthy
def answers_alone(name: str) -> Work:
    """Two words in three have no label, and what is before them is padding."""
    return t.Answers(name, steps=240)


@healthy
def pictures_and_captions(name: str) -> Work:
    """With a temperature that is learnt and bounded."""
    w = ap.Captions(name, optimizers=["adamw"], steps=300)
    w.after = lambda: w.model.scale.data.clamp_(0, math.log(100))
    return w


@healthy
def ratings_with_seldom_rows(name: str) -> Work:
    """Tables whose gradients are sparse, with an optimizer of their own."""
    w = ap.Ratings(name, steps=400)
    w.model.users, w.model.items = nn.Embedding(60, 12, sparse=True), nn.Embedding(80, 12, sparse=True)
    tables = [*w.model.users.parameters(), *w.model.items.parameters()]
    second, w.max_norm = torch.optim.SparseAdam(tables, w.rate), 0
    own_zero, own_update = w.zero, w.update

    def zero() -> None:
        own_zero()
        second.zero_grad()

    def update() -> None:
        own_update()
        second.step()
    w.parameters = lambda: [p for n, p in w.model.named_parameters() if n.startswith("of_")]
    w.zero, w.update = zero, update
    return w


@healthy
def experts_in_balance(name: str) -> Work:
    """What each expert is given is to be even; the best two of eight are asked."""
    w = ap.Experts(name, steps=400)
    own = w.loss

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gate = w.model.gate(w.seen).softmax(1)
        share = F.one_hot(gate.argmax(1), 8).float().mean(0)
        return own(out, y) + 0.01 * 8 * (share * gate.mean(0)).sum()

    def forward(x: Any) -> torch.Tensor:
        w.seen = x[0]
        return w.model(x[0])
    w.forward, w.loss = forward, loss
    return w


@healthy
def which_and_where(name: str) -> Work:
    return ap.Boxes(name, steps=300)


@healthy
def proximal_policy(name: str) -> Work:
    """Its loss rises and falls about nothing while what is won grows."""
    return ap.Proximal(name, steps=400)


@healthy
def tuned_with_a_tiny_rate(name: str) -> Work:
    """A network that knows its task already is trained on, at a hundredth of the rate and with hardly a change."""
    w = Work(name, families=["mlp", "cnn", "rnn"], optimizers=["adamw"], schedules=["warmup", "cosine"], steps=240)
    w.autocast = False
    before = torch.optim.Adam(w.model.parameters(), 2e-3)
    for _ in range(150):
        x, y = w.batch()
        before.zero_grad()
        w.loss(w.forward(x), y).backward()
        before.step()
    w.model.zero_grad()
    w.rate /= 100
    return w


@healthy
def one_of_two_is_the_better(name: str) -> Work:
    """A ranking: of two rows one is to score higher. The label is always one."""
    w = ap.Prices(name, steps=300)
    w.every = 0

    def batch() -> Any:
        one, other = w.choose(), w.choose()
        more = (w.targets[one] >= w.targets[other])[:, 0]
        high, low = torch.where(more, one, other), torch.where(more, other, one)
        return tuple(torch.cat([x[high], x[low]]) for x in w.inputs), torch.ones(len(one), 1)

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        high, low = out.chunk(2)
        return F.margin_ranking_loss(high, low, y, margin=0.2)
    w.batch, w.loss = batch, loss
    return w
