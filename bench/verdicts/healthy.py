"""Trainings that are well, and look as if they were not: what a verdict must not be given of."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from workloads import CLASSES, CLASSIFIERS, FEATURES, Gan, Policy, Work

HEALTHY: dict[str, Callable[[str], Work]] = {}


def healthy(make: Callable[[str], Work]) -> Callable[[str], Work]:
    HEALTHY[make.__name__] = make
    return make


@healthy
def warmup_from_zero(name: str) -> Work:
    w = Work(name, schedules=["constant"])
    w.factor = lambda step: min(1.0, step / 120)
    return w


@healthy
def frozen_backbone(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS])
    for n, p in w.model.named_parameters():
        p.requires_grad_(n.startswith(("head", "layers")))
    return w


@healthy
def adapters(name: str) -> Work:
    """Low-rank adapters: the second factor begins at zero."""
    w = Work(name, families=["mlp"])
    for p in w.model.parameters():
        p.requires_grad_(False)

    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.down = base, nn.Linear(base.in_features, 4, bias=False)
            self.up = nn.Linear(4, base.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    w.model.layers = nn.ModuleList(Adapter(layer) for layer in w.model.layers)
    w.model.head = Adapter(w.model.head)
    return w


@healthy
def accumulation(name: str) -> Work:
    w = Work(name)
    w.accumulate, w.steps = 4, 100
    return w


@healthy
def two_optimizers(name: str) -> Work:
    w = Work(name, families=["cnn", "rnn"], optimizers=["adam"])
    first = [p for n, p in w.model.named_parameters() if not n.startswith("head")]
    second = [p for n, p in w.model.named_parameters() if n.startswith("head")]
    other = torch.optim.SGD(second, 0.05)
    w.parameters = lambda: first
    own = w.update

    def update() -> None:
        own()
        other.step()
        other.zero_grad()
    w.update = update
    return w


@healthy
def moving_average(name: str) -> Work:
    w = Work(name)
    mean = copy.deepcopy(w.model).requires_grad_(False)

    def after() -> None:
        with torch.no_grad():
            for a, b in zip(mean.parameters(), w.model.parameters()):
                a.lerp_(b, 0.05)
            if w.step % 20 == 19:
                mean(w.held)
    w.after = after
    return w


@healthy
def label_smoothing(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS])
    w.loss = lambda out, y: F.cross_entropy(out, y, label_smoothing=0.2)
    return w


@healthy
def large_targets(name: str) -> Work:
    w = Work(name, families=["tabular"], optimizers=["adam", "adamw", "rmsprop"])
    w.targets, w.held_targets = 300 * w.targets + 1000, 300 * w.held_targets + 1000
    return w


@healthy
def sparse_tables(name: str) -> Work:
    """Words of which a batch has few."""
    w = Work(name, families=["mlp"], optimizers=["adam", "adagrad"])
    table, head = nn.Embedding(2000, 32), w.model
    w.model = nn.ModuleDict({"table": table, "net": head})
    words = torch.randint(0, 2000, (16640, 6), generator=w.data)
    meaning = torch.randn(2000, CLASSES, generator=w.data)
    targets = meaning[words].sum(1).argmax(1)
    w.inputs, w.targets, w.held, w.held_targets = words[:16384], targets[:16384], words[16384:], targets[16384:]
    w.forward = lambda x: head(table(x).mean(1))
    return w


@healthy
def few_units(name: str) -> Work:
    """A small network of which units die."""
    w = Work(name, families=["mlp"])
    w.model.layers = nn.ModuleList([nn.Linear(FEATURES, 10), nn.Linear(10, 10)])
    w.model.head, w.model.activation = nn.Linear(10, CLASSES), nn.ReLU()
    w.model.layers[0].bias.data[:4] -= 20
    return w


@healthy
def curriculum(name: str) -> Work:
    """From easy to hard, at step 80 and 160."""
    w = Work(name, families=[*CLASSIFIERS], schedules=["constant"])
    g = torch.Generator().manual_seed(w.seed)
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = own()
        return x + (w.step // 80) * 1.0 * torch.randn(x.shape, generator=g), y
    w.batch = batch
    return w


@healthy
def batches_of_two(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn", "rnn", "tabular", "language"])
    w.batch_size = 2
    return w


@healthy
def late_start(name: str) -> Work:
    """A plateau: nothing for a while, then all at once (the sign of a product)."""
    w = Work(name, families=["binary"], optimizers=["adam"], schedules=["constant"], steps=700)
    for inputs, targets in ((w.inputs, w.targets), (w.held, w.held_targets)):
        targets[:] = ((inputs[:, 0] * inputs[:, 1]) > 0).float()[:, None]
    return w


@healthy
def gan(name: str) -> Work:
    return Gan(name, steps=500)


@healthy
def gan_with_clipped_weights(name: str) -> Work:
    w = Gan(name, steps=250)

    def after() -> None:
        with torch.no_grad():
            for p in w.judge.parameters():
                p.clamp_(-0.1, 0.1)
    w.after = after
    return w


@healthy
def policy(name: str) -> Work:
    return Policy(name)


@healthy
def policy_with_seldom_rewards(name: str) -> Work:
    w = Policy(name, steps=200)
    w.reward = lambda reward: (reward > 0.9).float() * 5
    return w


@healthy
def twenty_steps(name: str) -> Work:
    return Work(name, steps=20)


@healthy
def three_thousand_steps(name: str) -> Work:
    w = Work(name, families=["mlp", "tabular"], steps=3000)
    w.every = 200
    return w


@healthy
def warm_restarts(name: str) -> Work:
    w = Work(name, schedules=["constant"], steps=400)
    w.factor = lambda step: 0.5 * (1 + math.cos(math.pi * (step % 100) / 100))
    return w


@healthy
def half_dropped(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn"])
    w.model.dropout = nn.Dropout(0.5)
    return w


@healthy
def thawed_later(name: str) -> Work:
    """The head first; then all of it, with an optimizer of its own."""
    w = Work(name, families=["cnn", "rnn", "mlp"], optimizers=["adam"], schedules=["constant"], steps=120)
    for n, p in w.model.named_parameters():
        p.requires_grad_(n.startswith("head"))
    own = w.run

    def run() -> None:
        own()
        for p in w.model.parameters():
            p.requires_grad_(True)
        w.rate /= 3
        own()
    w.run = run
    return w


@healthy
def learnt_by_heart(name: str) -> Work:
    """A loss of next to nothing, on purpose and without a validation."""
    w = Work(name, families=["mlp", "cnn"], optimizers=["adam"], schedules=["constant"], steps=600)
    w.inputs, w.targets, w.every = w.inputs[:32], w.targets[:32], 0
    return w


@healthy
def variational(name: str) -> Work:
    w = Work(name, families=["autoencoder"], optimizers=["adam", "adamw"])
    mean, spread, decode = nn.Linear(FEATURES, 8), nn.Linear(FEATURES, 8), w.model
    into = nn.Linear(8, FEATURES)
    w.model = nn.ModuleDict({"mean": mean, "spread": spread, "into": into, "decode": decode})

    def forward(x: torch.Tensor) -> torch.Tensor:
        m, s = mean(x), spread(x)
        w.divergence = 0.5 * (m * m + s.exp() - s - 1).sum(1).mean()
        return decode(into(m + torch.exp(0.5 * s) * torch.randn(m.shape)))
    own = w.loss
    w.forward, w.loss = forward, lambda out, y: FEATURES * own(out, y) + 0.1 * w.divergence
    return w


@healthy
def contrastive(name: str) -> Work:
    """Cross entropy over the batch, not over the last layer's units."""
    w = Work(name, families=["mlp"], optimizers=["adam", "adamw"], schedules=["warmup", "cosine"])

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = F.normalize(out, dim=1).chunk(2)
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x = w.inputs[w.choose()]
        return torch.cat([x + 0.3 * torch.randn(x.shape), x + 0.3 * torch.randn(x.shape)]), x
    w.loss, w.batch, w.every = loss, batch, 0
    return w


@healthy
def triplets(name: str) -> Work:
    """A loss that is exactly zero at many steps."""
    w = Work(name, families=["mlp", "cnn"], schedules=["constant"])
    w.batch_size, w.every = 12, 0

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        near = [next((j for j in range(len(y)) if j != i and y[j] == y[i]), i) for i in range(len(y))]
        far = [next((j for j in range(len(y)) if y[j] != y[i]), i) for i in range(len(y))]
        return F.triplet_margin_loss(out, out[near], out[far], margin=0.5)
    w.loss = loss
    return w


@healthy
def one_in_twenty(name: str) -> Work:
    w = Work(name, families=["binary"])
    seldom = torch.rand(w.targets.shape, generator=w.data) < 0.9
    w.targets = torch.where(seldom, torch.zeros(()), w.targets)
    return w


@healthy
def distillation(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn"])
    teacher = copy.deepcopy(w.model).eval()
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(1.3)
    w.loss = lambda out, y: F.kl_div(F.log_softmax(out, -1), y, reduction="batchmean")
    own = w.batch

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, _ = own()
        with torch.no_grad():
            return x, F.softmax(2 * teacher(x), -1)
    w.batch, w.every = batch, 0
    return w


@healthy
def two_tasks_in_turn(name: str) -> Work:
    """At each step one of two heads has no gradient."""
    w = Work(name, families=["mlp", "cnn"])
    other = w.model.second = nn.Linear(w.model.head.in_features, 2)
    own = w.loss

    def forward(x: torch.Tensor) -> torch.Tensor:
        return other(w.model.features(x)) if w.step % 3 == 1 else w.model(x)
    w.forward = forward
    w.loss = lambda out, y: F.cross_entropy(out, y % 2) if w.step % 3 == 1 else own(out, y)
    return w


@healthy
def experts(name: str) -> Work:
    """Experts that few inputs are routed to."""
    w = Work(name, families=["mlp"], optimizers=["adam", "adamw"])
    crowd = w.model.experts = nn.ModuleList(nn.Linear(w.model.head.in_features, w.model.head.in_features) for _ in range(6))
    gate = w.model.gate = nn.Linear(w.model.head.in_features, 6)

    def between(x: torch.Tensor) -> torch.Tensor:
        share, chosen = gate(x).softmax(-1).max(-1)
        out = x.clone()
        for i, expert in enumerate(crowd):
            rows = (chosen == i).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, torch.relu(expert(x[rows])) * share[rows, None])
        return out
    w.model.between = between
    return w


@healthy
def sum_over_batch(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS], optimizers=["adam", "adamw"])
    w.loss = lambda out, y: F.cross_entropy(out, y, reduction="sum")
    return w


@healthy
def last_layer_from_zero(name: str) -> Work:
    w = Work(name, families=[*CLASSIFIERS])
    nn.init.zeros_(w.model.head.weight)
    nn.init.zeros_(w.model.head.bias)
    return w


@healthy
def one_batch_on_purpose(name: str) -> Work:
    w = Work(name, families=["mlp", "cnn"], optimizers=["adam"])
    w.choose = lambda: torch.arange(16)
    w.every = 0
    return w


@healthy
def target_network(name: str) -> Work:
    """Temporal differences: the targets move, and a second network is copied over from time to time."""
    w = Work(name, families=["mlp"], optimizers=["adam"], schedules=["constant"], steps=400)
    target = copy.deepcopy(w.model).requires_grad_(False)
    w.loss = lambda out, y: F.smooth_l1_loss(out.gather(1, w.chosen), y)
    w.every = 0

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x = w.inputs[w.choose()]
        w.chosen = torch.randint(0, CLASSES, (len(x), 1), generator=w.order)
        gain = (w.chosen == 3).float() + 0.5 * torch.randn(w.chosen.shape, generator=w.order)
        with torch.no_grad():
            return x, gain + 0.95 * target(x.roll(1, 0)).max(1, keepdim=True)[0]

    def after() -> None:
        if w.step % 50 == 49:
            target.load_state_dict(w.model.state_dict())
    w.batch, w.after = batch, after
    return w


@healthy
def norm_frozen_on_purpose(name: str) -> Work:
    """Fine-tuning with the running averages of a pretrained network: it stays in evaluation mode."""
    w = Work(name, families=["resnet"], schedules=["warmup"])
    for module in w.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.requires_grad_(False)
            module.train = lambda mode=True, module=module: module
            module.training = False
    return w


@healthy
def rate_on_plateau(name: str) -> Work:
    w = Work(name, schedules=["constant"])
    w.factor = lambda step: 0.3 ** (step // 60)
    return w


@healthy
def line_search(name: str) -> Work:
    """L-BFGS: several evaluations in a step."""
    w = Work(name, families=["tabular"], schedules=["constant"], steps=30)

    def run() -> None:
        w.optimizer = torch.optim.LBFGS(w.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        for step in range(w.steps):
            w.step = step
            def closure() -> torch.Tensor:
                w.optimizer.zero_grad()
                loss = w.loss(w.forward(w.inputs), w.targets)
                loss.backward()
                return loss
            w.optimizer.step(closure)
    w.run = run
    return w
