"""Trainings that faults are put into: what is trained is drawn at random from a name, and the same name draws the same.

A `Work` is one supervised training in small steps that a fault may replace one by one (`work.forward = ...`); a GAN and
a policy gradient have loops of their own. One to three seconds of processor time each.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 8
FEATURES = 32
TOKENS = 24
FAULT_AT = 60  # the step of faults that begin later than the first one


class Mlp(nn.Module):
    def __init__(self, r: random.Random, out: int = CLASSES) -> None:
        super().__init__()
        width, depth = r.choice([24, 32, 48, 64]), r.choice([2, 3, 4])
        sizes = [FEATURES] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.activation = r.choice([nn.ReLU, nn.GELU, nn.Tanh])()
        self.dropout = nn.Dropout(r.choice([0.0, 0.1]))
        self.head = nn.Linear(width, out)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return self.dropout(x)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.between(self.features(x)))


class Tabular(Mlp):
    """Numbers and two categorical columns, which are made of the first two features."""

    def __init__(self, r: random.Random, out: int = 1) -> None:
        super().__init__(r, out)
        self.tables = nn.ModuleList(nn.Embedding(8, FEATURES) for _ in range(2))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        bins = (x[:, :2].nan_to_num(0, 4, -4).clamp(-3.9, 3.9) + 4).long()
        return super().features(x + 0.3 * sum(t(bins[:, i]) for i, t in enumerate(self.tables)))


class Cnn(Mlp):
    def __init__(self, r: random.Random, out: int = CLASSES) -> None:
        super().__init__(r, out)
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, r.choice([8, 16]), 3, padding=1)
        self.layers = nn.ModuleList([nn.Linear(self.conv.out_channels * FEATURES, self.head.in_features)])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.conv(self.activation(self.stem(x.view(-1, 1, 4, 8)))))
        return super().features(x.flatten(1))


class ResNet(Mlp):
    def __init__(self, r: random.Random, out: int = CLASSES) -> None:
        super().__init__(r, out)
        width = r.choice([8, 12])
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                          nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
            for _ in range(r.choice([1, 2])))
        self.layers = nn.ModuleList([nn.Linear(width * FEATURES, self.head.in_features)])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x.view(-1, 1, 4, 8))))
        for block in self.blocks:
            x = F.relu(x + block(x))
        return super().features(x.flatten(1))


class Rnn(Mlp):
    def __init__(self, r: random.Random, out: int = CLASSES) -> None:
        super().__init__(r, out)
        self.cell = r.choice([nn.LSTM, nn.GRU])(4, self.head.in_features, batch_first=True)
        self.layers = nn.ModuleList([nn.Linear(self.head.in_features, self.head.in_features)])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return super().features(self.cell(x.view(-1, 8, 4))[0][:, -1])


class Encoder(Mlp):
    """A transformer over eight pieces of the input."""

    def __init__(self, r: random.Random, out: int = CLASSES) -> None:
        super().__init__(r, out)
        self.embed = nn.Linear(4, 32)
        self.place = nn.Parameter(torch.zeros(8, 32))
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
                                     for _ in range(r.choice([1, 2])))
        self.layers = nn.ModuleList([nn.Linear(32, self.head.in_features)])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x.view(-1, 8, 4)) + self.place
        for layer in self.encoder:
            x = layer(x)
        return super().features(x.mean(1))


class Language(nn.Module):
    """A causal transformer over tokens."""

    def __init__(self, r: random.Random, out: int = TOKENS) -> None:
        super().__init__()
        width = r.choice([32, 48])
        self.table, self.place = nn.Embedding(TOKENS, width), nn.Embedding(16, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True,
                                                               norm_first=True) for _ in range(r.choice([1, 2])))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, out, bias=False)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.table(x) + self.place(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.norm(x)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.between(self.features(x)))


class Auto(Mlp):
    def __init__(self, r: random.Random, out: int = FEATURES) -> None:
        super().__init__(r, FEATURES)


CLASSIFIERS = {"mlp": Mlp, "cnn": Cnn, "resnet": ResNet, "rnn": Rnn, "encoder": Encoder}
FAMILIES = {**CLASSIFIERS, "language": Language, "tabular": Tabular, "binary": Tabular, "autoencoder": Auto}


def optimizer_of(name: str, parameters: Any, rate: float, **more: Any) -> torch.optim.Optimizer:
    return {
        "sgd": lambda: torch.optim.SGD(parameters, rate, **more),
        "momentum": lambda: torch.optim.SGD(parameters, rate, **{"momentum": 0.9, "weight_decay": 1e-4, **more}),
        "adam": lambda: torch.optim.Adam(parameters, rate, **more),
        "adamw": lambda: torch.optim.AdamW(parameters, rate, **{"weight_decay": 0.01, **more}),
        "adagrad": lambda: torch.optim.Adagrad(parameters, rate, **more),
        "rmsprop": lambda: torch.optim.RMSprop(parameters, rate, **more),
    }[name]()


RATES = {"sgd": 0.1, "momentum": 0.03, "adam": 2e-3, "adamw": 2e-3, "adagrad": 0.02, "rmsprop": 1e-3}


class Work:
    """One training. Everything of it may be replaced before `run`."""

    def __init__(self, name: str, families: Any = None, optimizers: Any = None, schedules: Any = None, steps: int = 240) -> None:
        r = self.r = random.Random(name)
        self.seed = r.randrange(1 << 30)
        torch.manual_seed(self.seed)
        self.family = r.choice(sorted(families or FAMILIES))
        self.optimizer_name = r.choice(sorted(optimizers or RATES))
        self.schedule_name = r.choice(schedules or ["constant", "cosine", "warmup", "step", "one_cycle"])
        self.batch_size = r.choice([16, 32, 64])
        self.rate = RATES[self.optimizer_name] * r.choice([0.5, 1, 1.5])
        self.autocast = r.random() < 0.2 and self.family in ("mlp", "tabular", "binary", "autoencoder")
        self.max_norm = r.choice([0, 0, 0, 1.0, 5.0])
        self.steps, self.every, self.count = steps, 20, 1024
        self.model: nn.Module = FAMILIES[self.family](r)
        self.options: dict[str, Any] = {}     # of the optimizer
        self.optimizer: torch.optim.Optimizer | None = None
        self.accumulate = 1
        self.step = 0
        self.order = torch.Generator().manual_seed(self.seed)
        self.make_data()

    def __str__(self) -> str:
        return (f"{self.family} {self.optimizer_name} {self.rate:g} {self.schedule_name} b{self.batch_size}"
                f"{' bf16' if self.autocast else ''}{f' clip {self.max_norm:g}' if self.max_norm else ''}")

    # Data: classes are clusters, near enough to take some hundred steps; numbers are a function of the inputs.
    def make_data(self) -> None:
        g = self.data = torch.Generator().manual_seed(self.seed + 1)
        n, held = self.count, 256
        if self.family == "language":
            table = torch.randint(0, TOKENS, (TOKENS, 3), generator=g)
            x = torch.zeros(n + held, 17, dtype=torch.long)
            x[:, 0] = torch.randint(0, TOKENS, (n + held,), generator=g)
            for i in range(1, 17):
                x[:, i] = table[x[:, i - 1], torch.randint(0, 3, (n + held,), generator=g)]
            inputs, targets = x[:, :-1], x[:, 1:]
        elif self.family in CLASSIFIERS:
            centres = torch.randn(CLASSES, FEATURES, generator=g)
            targets = torch.randint(0, CLASSES, (n + held,), generator=g)
            inputs = centres[targets] + 1.2 * torch.randn(n + held, FEATURES, generator=g)
        else:
            inputs = torch.randn(n + held, FEATURES, generator=g)
            direction = torch.randn(FEATURES, 1, generator=g) / math.sqrt(FEATURES)
            score = inputs @ direction + 0.5 * torch.tanh(inputs[:, :1]) + 0.1 * torch.randn(n + held, 1, generator=g)
            targets = score if self.family == "tabular" else (score > 0).float()
            if self.family == "autoencoder":
                inputs = torch.tanh(inputs[:, :6] @ torch.randn(6, FEATURES, generator=g) / 2)
                inputs = targets = inputs + 0.05 * torch.randn(n + held, FEATURES, generator=g)
        self.inputs, self.targets = inputs[:n], targets[:n]
        self.held, self.held_targets = inputs[n:], targets[n:]

    def choose(self) -> torch.Tensor:
        return torch.randint(0, len(self.inputs), (min(self.batch_size, len(self.inputs)),), generator=self.order)

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self.choose()
        return self.inputs[chosen], self.targets[chosen]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.family == "language":
            return F.cross_entropy(out.reshape(-1, TOKENS), y.reshape(-1))
        if self.family in CLASSIFIERS:
            return F.cross_entropy(out, y)
        return F.binary_cross_entropy_with_logits(out, y) if self.family == "binary" else F.mse_loss(out, y)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def zero(self) -> None:
        self.optimizer.zero_grad()

    def clip(self) -> None:
        if self.max_norm:
            nn.utils.clip_grad_norm_(self.parameters(), self.max_norm)

    def update(self) -> None:
        self.optimizer.step()

    def after(self) -> None:
        """At the end of each step."""

    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def make_optimizer(self) -> torch.optim.Optimizer:
        return optimizer_of(self.optimizer_name, self.parameters(), self.rate, **self.options)

    def factor(self, step: int) -> float:
        """Of the learning rate."""
        at = step / self.steps
        if self.schedule_name == "cosine":
            return 0.5 * (1 + math.cos(math.pi * at))
        if self.schedule_name == "warmup":
            return min(1.0, step / 30)
        if self.schedule_name == "step":
            return 0.1 ** int(3 * at)
        if self.schedule_name == "one_cycle":
            return 0.04 + 0.96 * at / 0.3 if at < 0.3 else 0.5 * (1 + math.cos(math.pi * (at - 0.3) / 0.7))
        return 1.0

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.loss(self.forward(self.held), self.held_targets)
        self.model.train()

    def context(self) -> Any:
        return torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext()

    def run(self) -> None:
        self.optimizer = self.make_optimizer()
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: self.factor(step))
        self.model.train()
        for step in range(self.steps):
            self.step = step
            self.zero()
            for _ in range(self.accumulate):
                x, y = self.batch()
                with self.context():
                    loss = self.loss(self.forward(x), y) / self.accumulate
                self.backward(loss)
            self.clip()
            self.update()
            schedule.step()
            self.after()
            if self.every and self.step % self.every == self.every - 1:
                self.evaluate()

    def matrices(self) -> list[nn.Parameter]:
        return [p for n, p in self.model.named_parameters() if p.dim() > 1 and "table" not in n and "place" not in n]

    def late(self) -> bool:
        return self.step >= FAULT_AT


class Gan(Work):
    """Two networks, two optimizers: a Gaussian mixture in eight dimensions."""

    def __init__(self, name: str, steps: int = 200) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adam", "rmsprop"], schedules=["constant"], steps=steps)
        self.family, width = "gan", self.r.choice([32, 64])
        self.generator = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))
        self.judge = nn.Sequential(nn.Linear(8, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
                                   nn.Linear(width, 1))
        self.rate = 1e-3
        self.wait: Callable[[torch.Tensor], torch.Tensor] = lambda fake: fake

    def run(self) -> None:
        make = {"adam": lambda p: torch.optim.Adam(p, self.rate, betas=(0.5, 0.999)),
                "rmsprop": lambda p: torch.optim.RMSprop(p, self.rate / 2)}[self.optimizer_name]
        of_generator, of_judge = make(self.generator.parameters()), make(self.judge.parameters())
        self.optimizer = of_generator
        centres = torch.randn(4, 8, generator=self.data)
        for step in range(self.steps):
            self.step = step
            real = centres[torch.randint(0, 4, (self.batch_size,), generator=self.order)] + 0.2 * torch.randn(self.batch_size, 8)
            noise, ones, zeros = torch.randn(self.batch_size, 8), torch.ones(self.batch_size, 1), torch.zeros(self.batch_size, 1)
            of_judge.zero_grad()
            fake = self.generator(noise)
            loss = F.binary_cross_entropy_with_logits(self.judge(real), ones) \
                + F.binary_cross_entropy_with_logits(self.judge(fake.detach()), zeros)
            loss.backward()
            of_judge.step()
            of_generator.zero_grad()
            F.binary_cross_entropy_with_logits(self.judge(self.wait(fake)), ones).backward()
            of_generator.step()
            self.after()


class Policy(Work):
    """A policy gradient with a learnt baseline on a corridor: rewards are noisy and seldom."""

    def __init__(self, name: str, steps: int = 150) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adam", "rmsprop"], schedules=["constant"], steps=steps)
        self.family, width = "policy", self.r.choice([32, 64])
        self.body = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, 2), nn.Linear(width, 1)
        self.model = nn.ModuleDict({"body": self.body, "actor": self.actor, "critic": self.critic})
        self.reward: Callable[[torch.Tensor], torch.Tensor] = lambda reward: reward

    def run(self) -> None:
        self.optimizer = self.make_optimizer()
        for step in range(self.steps):
            self.step = step
            place, logs, values, rewards = torch.zeros(16, dtype=torch.long), [], [], []
            for _ in range(12):
                seen = self.body(F.one_hot(place, 8).float())
                choice = torch.distributions.Categorical(logits=self.actor(seen))
                action = choice.sample()
                place = (place + 2 * action - 1).clamp(0, 7)
                logs.append(choice.log_prob(action))
                values.append(self.critic(seen).squeeze(1))
                rewards.append((place == 7).float() + 0.1 * torch.randn(16))
            gains, total = [], torch.zeros(16)
            for reward in reversed(rewards):
                total = self.reward(reward) + 0.95 * total
                gains.insert(0, total)
            gain, value = torch.stack(gains), torch.stack(values)
            advantage = gain - value.detach()
            loss = -(torch.stack(logs) * advantage).mean() + 0.5 * F.mse_loss(value, gain)
            self.zero()
            self.backward(loss)
            self.clip()
            self.update()
            self.after()
