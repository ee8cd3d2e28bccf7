"""Small trainings of architectures that workloads.py has not: an autoencoder with a sampled code, a diffusion model, pairs, views,
translation, attention over texts of several lengths, graphs, segmentation, Q-learning, adapters. One to three seconds each.

Each is a `Work`: what a fault changes is a method or an attribute of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from workloads import CLASSES, FEATURES, RATES, Mlp, Work

PAD, START = 0, 1


class Own(Work):
    """What the classes below have in common: a rate and a batch that are drawn, a model and data of their own."""

    family_name = ""

    def __init__(self, name: str, optimizers: Any = ("adam", "adamw"), schedules: Any = ("constant", "cosine", "warmup"),
                 steps: int = 240) -> None:
        super().__init__(name, families=["mlp"], optimizers=optimizers, schedules=list(schedules), steps=steps)
        self.family, self.autocast, self.width = self.family_name, False, self.r.choice([32, 48, 64])
        self.build()

    def build(self) -> None:
        raise NotImplementedError


class Vae(Own):
    """Small pictures of four causes; `divergence` is the term that keeps the code near a normal distribution."""

    family_name = "vae"

    def build(self) -> None:
        w, g = self.width, self.data
        causes = torch.randn(1280, 4, generator=g) @ torch.randn(4, 64, generator=g)
        pictures = torch.sigmoid(2 * causes)
        self.inputs = self.targets = pictures[:1024]
        self.held = self.held_targets = pictures[1024:]
        self.model = nn.ModuleDict({
            "encoder": nn.Sequential(nn.Linear(64, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU()),
            "mean": nn.Linear(w, 8), "spread": nn.Linear(w, 8),
            "decoder": nn.Sequential(nn.Linear(8, w), nn.ReLU(), nn.Linear(w, 64))})
        self.weight: Callable[[], float] = lambda: 1.0

    def sample(self, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        return mean + torch.exp(0.5 * spread) * torch.randn(mean.shape)

    def divergence(self, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        return 0.5 * (mean * mean + spread.exp() - spread - 1).sum(1).mean()

    def forward(self, x: torch.Tensor) -> Any:
        seen = self.model["encoder"](x)
        mean, spread = self.model["mean"](seen), self.model["spread"](seen)
        return self.model["decoder"](self.sample(mean, spread)), mean, spread

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        made, mean, spread = out
        return F.binary_cross_entropy_with_logits(made, y, reduction="sum") / len(y) + self.weight() * self.divergence(mean, spread)


class Denoiser(nn.Module):
    def __init__(self, width: int, size: int = 16) -> None:
        super().__init__()
        self.time, self.into = nn.Embedding(100, width), nn.Linear(size, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.SiLU(), nn.Linear(width, width)) for _ in range(3))
        self.out = nn.Linear(width, size)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.into(x) + self.time(t)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


class Diffusion(Own):
    """Noise is added to points in a hundred degrees, and predicted."""

    family_name = "diffusion"

    def build(self) -> None:
        centres = 2 * torch.randn(6, 16, generator=self.data)
        points = centres[torch.randint(0, 6, (1280,), generator=self.data)] + 0.2 * torch.randn(1280, 16, generator=self.data)
        self.inputs = self.targets = points[:1024]
        self.held = self.held_targets = points[1024:]
        self.model, self.betas = Denoiser(self.width), torch.linspace(1e-3, 0.08, 100)

    def noise_like(self, noise: torch.Tensor) -> torch.Tensor:
        """What the model is to predict."""
        return noise

    def time_of(self, t: torch.Tensor) -> torch.Tensor:
        """What the model is told."""
        return t

    def forward(self, x: torch.Tensor) -> Any:
        left = torch.cumprod(1 - self.betas, 0)
        t, noise = torch.randint(0, 100, (len(x),)), torch.randn(x.shape)
        share = left[t][:, None]
        return self.model(share.sqrt() * x + (1 - share).sqrt() * noise, self.time_of(t)), self.noise_like(noise)

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(*out)


def embedder(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16))


class Pairs(Own):
    """A siamese network: are two of one class?"""

    family_name = "siamese"

    def build(self) -> None:
        self.model = embedder(self.width)

    def alike(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a == b

    def pair(self, inputs: torch.Tensor, targets: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> Any:
        same = self.alike(targets[one], targets[other])
        return torch.stack([inputs[one], inputs[other]]), 2.0 * same - 1

    def batch(self) -> Any:
        one, other = self.choose(), self.choose()
        near = torch.stack([(self.targets == self.targets[i]).nonzero()[int(j) % 100, 0] for i, j in zip(one, other)])
        return self.pair(self.inputs, self.targets, one, torch.where(torch.arange(len(one)) % 2 == 0, near, other))

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x[0]), self.model(x[1])

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        return F.cosine_embedding_loss(*out, y, margin=0.3)

    def evaluate(self) -> None:
        with torch.no_grad():
            self.loss(*(lambda x, y: (self.forward(x), y))(*self.pair(
                self.held, self.held_targets, torch.arange(256), torch.arange(256).roll(1))))


class Views(Own):
    """Two noisy views of each sample of a batch, which are to find each other."""

    family_name = "views"

    def build(self) -> None:
        self.model, self.every, self.batch_size = embedder(self.width), 0, max(32, self.batch_size)
        self.temperature: Callable[[torch.Tensor], torch.Tensor] = lambda likeness: likeness / 0.1

    def batch(self) -> Any:
        x = self.inputs[self.choose()]
        return torch.stack([x + 0.3 * torch.randn(x.shape), x + 0.3 * torch.randn(x.shape)]), torch.arange(len(x))

    def normalise(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=1, keepdim=True).clamp_min(1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.temperature(self.normalise(self.model(x[0])) @ self.normalise(self.model(x[1])).T)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, y)


class Translator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(12, width, padding_idx=PAD), nn.Embedding(12, width, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 12)

    def forward(self, x: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        return self.head(self.decoder(self.target(said), self.encoder(self.source(x))[1])[0])


class Translate(Own):
    """Three to eight digits, each of which is to become its follower; evaluated on what it says by itself."""

    family_name = "translation"

    def build(self) -> None:
        x = torch.randint(2, 12, (1280, 8), generator=self.data)
        over = torch.arange(8) >= torch.randint(3, 9, (1280, 1), generator=self.data)
        x, y = x.masked_fill(over, PAD), (2 + (x - 1) % 10).masked_fill(over, PAD)
        self.inputs, self.targets, self.held, self.held_targets = x[:1024], y[:1024], x[1024:], y[1024:]
        self.model, self.ignored, self.rate = Translator(self.width), PAD, 2 * self.rate

    def said(self, y: torch.Tensor) -> torch.Tensor:
        """What the decoder is given while it learns: the target, one later."""
        return torch.cat([torch.full((len(y), 1), START), y[:, :-1]], 1)

    def batch(self) -> Any:
        x, y = super().batch()
        return (x, y), y

    def forward(self, x: Any) -> torch.Tensor:
        return self.model(x[0], self.said(x[1]))

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.reshape(-1, 12), y.reshape(-1), ignore_index=self.ignored)

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            said = torch.full((len(self.held), 1), START)
            for _ in range(8):
                out = self.model(self.held, said)
                said = torch.cat([said, out[:, -1:].argmax(-1)], 1)
            self.loss(out, self.held_targets)
        self.model.train()


class Attention(nn.Module):
    """By hand, as tutorials have it. `keep` is one where a token may be looked at."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        near = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        return self.norm(x + near.masked_fill(keep == 0, -math.inf).softmax(-1) @ self.value(x))


class Reader(nn.Module):
    def __init__(self, width: int, words: int, out: int, depth: int = 2) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(words, width), nn.Embedding(16, width)
        self.layers = nn.ModuleList(Attention(width) for _ in range(depth))
        self.head = nn.Linear(width, out)

    def features(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        h = self.table(x) + self.place(torch.arange(x.shape[1]))
        for layer in self.layers:
            h = layer(h, keep)
        return h


class Texts(Own):
    """Texts of 4 to 16 words of four topics; the first token is what the class is read from."""

    family_name = "texts"

    def build(self) -> None:
        g, n = self.data, 1280
        topic = torch.randint(0, 4, (n,), generator=g)
        own, any_word = 2 + 10 * topic[:, None] + torch.randint(0, 10, (n, 16), generator=g), torch.randint(2, 42, (n, 16), generator=g)
        x = torch.where(torch.rand(n, 16, generator=g) < 0.4, own, any_word)
        x[:, 0] = START
        x = x.masked_fill(torch.arange(16) >= torch.randint(4, 17, (n, 1), generator=g), PAD)
        self.inputs, self.targets, self.held, self.held_targets = x[:1024], topic[:1024], x[1024:], topic[1024:]
        self.model = Reader(self.width, 42, 4)

    def keep(self, x: torch.Tensor) -> torch.Tensor:
        return (x != PAD)[:, None, :]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.head(self.model.features(x, self.keep(x))[:, 0])

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, y)


class Causal(Own):
    """The next token, with a mask by hand."""

    family_name = "causal"

    def build(self) -> None:
        g = self.data
        table, x = torch.randint(0, 24, (24, 3), generator=g), torch.randint(0, 24, (1280, 17), generator=g)
        for i in range(1, 17):
            x[:, i] = table[x[:, i - 1], torch.randint(0, 3, (1280,), generator=g)]
        self.inputs, self.targets, self.held, self.held_targets = x[:1024, :-1], x[:1024, 1:], x[1024:, :-1], x[1024:, 1:]
        self.model = Reader(self.width, 24, 24)

    def keep(self, size: int) -> torch.Tensor:
        return torch.ones(size, size).tril()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.head(self.model.features(x, self.keep(x.shape[1])))

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.reshape(-1, 24), y.reshape(-1))


class Graph(Own):
    """The class of each node, of its own noisy features and of its neighbours'. A batch is a part of the graph."""

    family_name = "graph"

    def build(self) -> None:
        g, n = self.data, 600
        self.targets = torch.randint(0, 4, (n,), generator=g)
        self.inputs = torch.randn(4, 16, generator=g)[self.targets] + 1.5 * torch.randn(n, 16, generator=g)
        near = (self.targets[:, None] == self.targets[None, :]).float() * 0.25 + 0.03
        edges = (torch.rand(n, n, generator=g) < near).float().triu(1)
        self.edges, self.batch_size = edges + edges.T, 128
        self.max_norm, sizes = 0, [16, self.width, self.width, self.width]
        self.model = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])),
                                    "head": nn.Linear(self.width, 4)})

    def choose(self) -> torch.Tensor:
        return torch.randperm(480, generator=self.order)[:self.batch_size]

    def part(self, chosen: torch.Tensor) -> Any:
        return (self.inputs[chosen], self.edges[chosen][:, chosen]), self.targets[chosen]

    def batch(self) -> Any:
        return self.part(self.choose())

    def weighted(self, edges: torch.Tensor) -> torch.Tensor:
        """Each edge by the degrees of both its nodes, with an edge of each node to itself."""
        edges = edges + torch.eye(len(edges))
        root = edges.sum(1).rsqrt()
        return root[:, None] * edges * root[None, :]

    def forward(self, x: Any) -> torch.Tensor:
        h, edges = x[0], self.weighted(x[1])
        for layer in self.model["layers"]:
            h = torch.relu(edges @ layer(h))
        return self.model["head"](h)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, y)

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            x, y = self.part(torch.arange(480, 600))
            self.loss(self.forward(x), y)
        self.model.train()


class Outline(nn.Module):
    """A U of two sizes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.down = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.deep, self.out = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(2 * width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = torch.relu(self.into(x))
        deep = torch.relu(self.deep(torch.relu(self.down(high))))
        return self.out(torch.cat([high, F.interpolate(deep, scale_factor=2)], 1))


class Segmentation(Own):
    """A bright rectangle in the upper left half of a noisy picture, and where it is; pictures are turned at random."""

    family_name = "segmentation"

    def build(self) -> None:
        g, n = self.data, 640
        y, size = torch.zeros(n, 1, 12, 12), torch.randint(2, 6, (n, 4), generator=g)
        for i, (top, left, height, width) in enumerate(size.tolist()):
            y[i, 0, top - 2:top - 2 + height, left - 2:left - 2 + width] = 1
        x = 1.5 * y + 0.8 * torch.randn(n, 1, 12, 12, generator=g)
        self.inputs, self.targets, self.held, self.held_targets = x[:512], y[:512], x[512:], y[512:]
        self.model = Outline(8)

    def turned(self, x: torch.Tensor, turns: int, is_mask: bool) -> torch.Tensor:
        return torch.rot90(x, turns, (2, 3))

    def batch(self) -> Any:
        x, y = super().batch()
        turns = int(torch.randint(0, 4, (), generator=self.order))
        return self.turned(x, turns, False), self.turned(y, turns, True)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out, y)


class Dqn(Own):
    """Q-learning on a corridor of ten places with a memory and a second network, which is a copy from time to time."""

    family_name = "dqn"

    def build(self) -> None:
        w = self.width
        self.model = nn.Sequential(nn.Linear(10, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 2))
        self.target, self.discount, self.every = copy.deepcopy(self.model), 0.9, 0
        self.place, self.kept = torch.zeros(16, dtype=torch.long), []

    def live(self) -> None:
        seen = F.one_hot(self.place, 10).float()
        with torch.no_grad():
            best = self.model(seen).argmax(1)
        free = torch.rand(16, generator=self.order) < max(0.1, 1 - self.step / 120)
        action = torch.where(free, torch.randint(0, 2, (16,), generator=self.order), best)
        place = (self.place + 2 * action - 1).clamp(0, 9)
        ended = place == 9
        self.kept = [*self.kept[-300:], (seen, action, ended.float(), F.one_hot(place, 10).float(), ended.float())]
        self.place = torch.where(ended, torch.zeros_like(place), place)

    def follow(self) -> None:
        """The second network becomes a copy of the first."""
        self.target.load_state_dict(self.model.state_dict())

    def value_of(self, following: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.target(following).max(1)[0]

    def batch(self) -> Any:
        self.live()
        chosen = torch.randint(0, len(self.kept), (4,), generator=self.order)
        parts = [torch.cat(part) for part in zip(*(self.kept[i] for i in chosen))]
        return parts[0], parts[1:]

    def loss(self, out: torch.Tensor, y: Any) -> torch.Tensor:
        action, reward, following, ended = y
        goal = reward + self.discount * (1 - ended) * self.value_of(following)
        return F.smooth_l1_loss(out.gather(1, action[:, None])[:, 0], goal)

    def after(self) -> None:
        if self.step % 20 == 19:
            self.follow()


class Minimax(Own):
    """A generator that begins far from what it is to make, and a judge that soon knows."""

    family_name = "minimax"

    def build(self) -> None:
        w = self.width
        self.generator = nn.Sequential(nn.Linear(8, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 8))
        self.judge = nn.Sequential(nn.Linear(8, w), nn.LeakyReLU(0.2), nn.Linear(w, w), nn.LeakyReLU(0.2), nn.Linear(w, 1))
        self.of_generator: Callable[[torch.Tensor], torch.Tensor] = \
            lambda said: F.binary_cross_entropy_with_logits(said, torch.ones_like(said))

    def run(self) -> None:
        of_generator, of_judge = (torch.optim.Adam(n.parameters(), rate, betas=(0.5, 0.999))
                                  for n, rate in ((self.generator, 5e-4), (self.judge, 5e-3)))
        centre = 6 * torch.randn(8, generator=self.data)
        for step in range(self.steps):
            self.step = step
            real, fake = centre + 0.3 * torch.randn(self.batch_size, 8), self.generator(torch.randn(self.batch_size, 8))
            of_judge.zero_grad()
            on_real, on_fake = self.judge(real), self.judge(fake.detach())
            (F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
             + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))).backward()
            of_judge.step()
            of_generator.zero_grad()
            self.of_generator(self.judge(fake)).backward()
            of_generator.step()


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.down = base.requires_grad_(False), nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2 * self.up(self.down(x))


class Adapted(Work):
    """A trunk that stays as it is, adapters of rank four, and a head that is trained."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adamw"], schedules=["warmup", "cosine"], **draws)
        self.model.layers = nn.ModuleList(Adapter(layer) for layer in self.model.layers)

    def adapters(self) -> list[Adapter]:
        return [module for module in self.model.modules() if isinstance(module, Adapter)]


class Halves(Work):
    """A trunk and a head, with an optimizer each."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, families=["mlp", "cnn", "rnn"], optimizers=["adam", "momentum"], schedules=["constant", "cosine"], **draws)
        self.second = torch.optim.SGD(self.model.head.parameters(), RATES["sgd"] / 5)

    def parameters(self) -> list[nn.Parameter]:
        return [p for n, p in self.model.named_parameters() if not n.startswith("head")]

    def zero(self) -> None:
        self.optimizer.zero_grad()
        self.second.zero_grad()

    def update(self) -> None:
        self.optimizer.step()
        self.second.step()


class Windows(Work):
    """Gradients of sixteen batches make a step."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, families=["mlp", "cnn", "encoder"], optimizers=["sgd", "momentum"], schedules=["constant", "warmup"],
                         steps=100, **draws)
        self.accumulate, self.max_norm = 16, 0


class Averaged(Work):
    """With a moving average of its weights, which is what is evaluated."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, families=["mlp", "cnn", "rnn", "encoder"], optimizers=["adam", "adamw"], schedules=["constant", "warmup"],
                         **draws)
        self.every = 61
        self.mean = copy.deepcopy(self.model).requires_grad_(False)

    def after(self) -> None:
        with torch.no_grad():
            for a, b in zip(self.mean.parameters(), self.model.parameters()):
                a.lerp_(b, 0.005)

    def put_back(self, own: dict[str, torch.Tensor]) -> None:
        self.model.load_state_dict(own)

    def evaluate(self) -> None:
        own = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.mean.state_dict())
        super().evaluate()
        self.put_back(own)


class Taught(Work):
    """A small network learns what a larger one says."""

    def __init__(self, name: str, **draws: Any) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adam", "adamw"], schedules=["constant", "cosine"], **draws)
        self.family, self.autocast, self.every = "taught", False, 0
        self.teacher = nn.Sequential(Mlp(self.r), nn.Linear(CLASSES, CLASSES)).eval().requires_grad_(False)
        with torch.no_grad():
            for p in self.teacher.parameters():
                p.mul_(1.6)

    def batch(self) -> Any:
        x, _ = super().batch()
        return x, F.softmax(2 * self.teacher(x), -1)

    def logarithms(self, out: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(out, -1)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.kl_div(self.logarithms(out), y, reduction="batchmean")
