"""Small trainings of what people use networks for: prices, seldom claims, counts, a signal, forecasts, ratings, clicks, captions,
codes, experts, boxes, an equation, fine-tuning, proximal policies; those of texts are in texts.py. One to four seconds each.

Each is an `Own` of architectures.py: what a fault changes is a method or an attribute of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from architectures import Own, embedder
from torch import nn
from workloads import FEATURES

HELD = 256
Tensors = tuple[torch.Tensor, ...]


def stack(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    parts: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Linear(a, b), act()]
    return nn.Sequential(*parts[:-1])


def standard(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return (x - of.mean(0)) / of.std(0)


class Application(Own):
    """Its inputs are several tensors, one argument of the model each. The last rows are held out."""

    def split(self, inputs: Tensors, targets: torch.Tensor) -> None:
        self.inputs, self.targets = tuple(t[:-HELD] for t in inputs), targets[:-HELD]
        self.held, self.held_targets = tuple(t[-HELD:] for t in inputs), targets[-HELD:]

    def choose(self) -> torch.Tensor:
        return torch.randint(0, len(self.targets), (self.batch_size,), generator=self.order)

    def batch(self) -> Any:
        chosen = self.choose()
        return tuple(t[chosen] for t in self.inputs), self.targets[chosen]

    def forward(self, x: Any) -> Any:
        return self.model(*x)

    def loss(self, out: Any, y: Any) -> torch.Tensor:
        return F.mse_loss(out, y)


# Tables ----------------------------------------------------------------------------------------------------------------

class House(nn.Module):
    def __init__(self, width: int, columns: int, districts: int) -> None:
        super().__init__()
        self.table, self.net = nn.Embedding(districts, 8), stack(columns + 8, width, width, 1)

    def forward(self, numbers: torch.Tensor, district: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([numbers, self.table(district)], 1))


class Prices(Application):
    """Of houses, in dollars; six columns and a district. Columns and prices are standardised, what is missing is the mean."""

    family_name = "prices"

    def build(self) -> None:
        g, n = self.data, 1280
        share = torch.rand(n, 6, generator=g)
        self.raw = torch.stack([40 + 120 * share[:, 0], 1 + (5 * share[:, 1]).round(), 1900 + 120 * share[:, 2], 30 * share[:, 3] ** 2,
                                200 + 1800 * share[:, 4], 20000 + 90000 * share[:, 5]], 1)
        self.district = torch.randint(0, 12, (n,), generator=g)
        near = 1 + 0.3 * torch.randn(12, generator=g)[self.district]
        self.dollars = (1500 * self.raw[:, 0] * near + 600 * (self.raw[:, 2] - 1900) - 3000 * self.raw[:, 3]
                        + 15000 * torch.randn(n, generator=g) + 60000)[:, None]
        self.missing = torch.rand(n, 6, generator=g) < 0.03
        self.numbers = standard(self.raw, self.raw[:-HELD]).masked_fill(self.missing, 0.0)
        self.model = House(self.width, 6, 12)
        self.split((self.numbers, self.district), standard(self.dollars, self.dollars[:-HELD]))


class Claims(Application):
    """One row in twenty is to be found; these are weighted as much as all others."""

    family_name = "claims"

    def build(self) -> None:
        x = torch.randn(3072, 10, generator=self.data)
        score = x[:, :1] + 0.7 * x[:, 1:2] + 0.3 * x[:, 2:3] * x[:, 3:4] + 0.2 * torch.randn(3072, 1, generator=self.data)
        y = (score > score.quantile(0.95)).float()
        self.model, self.weight, self.batch_size = stack(10, self.width, self.width, 1), 19.0, 64
        self.split((x,), y)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out, y, pos_weight=torch.tensor(self.weight))


class Counts(Application):
    """How often, of a year, an income and an age: the model says the logarithm of a rate."""

    family_name = "counts"

    def build(self) -> None:
        g, n = self.data, 1280
        share = torch.rand(n, 3, generator=g)
        self.raw = torch.stack([2010 + (14 * share[:, 0]).floor(), 20000 + 80000 * share[:, 1], 18 + 60 * share[:, 2]], 1)
        rate = torch.exp(0.3 + 0.8 * (share[:, :1] - 0.5) + 1.5 * torch.sin(4 * share[:, 2:]))
        self.model = stack(3, self.width, self.width, 1)
        self.split((standard(self.raw, self.raw[:-HELD]),), torch.poisson(rate, generator=g))

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.poisson_nll_loss(out, y, log_input=True)


class Signal(Application):
    """An hour of a sensor; what is known is the second of each value, as sines of it."""

    family_name = "signal"

    def build(self) -> None:
        self.seconds = 1.7e9 + 3600 * torch.rand(1280, generator=self.data, dtype=torch.float64)
        since = self.seconds - 1.7e9
        y = torch.sin(2 * math.pi * since / 60) + 0.5 * torch.cos(2 * math.pi * since / 23 + 1) + 0.1 * torch.sin(since / 900)
        self.model = stack(6, self.width, self.width, 1)
        self.split((self.sines(since),), (y + 0.1 * torch.randn(1280, generator=self.data))[:, None].float())

    def sines(self, since: torch.Tensor) -> torch.Tensor:
        angles = [2 * math.pi * since / period for period in (60, 23, 3600)]
        return torch.stack([f(angle) for angle in angles for f in (torch.sin, torch.cos)], 1).float()


# Series ----------------------------------------------------------------------------------------------------------------

class Ahead(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(1, width, batch_first=True), nn.Linear(width, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Forecast(Application):
    """Forty growing series with seasons: of twenty-four values the next six, all less the last known one. Held out is the end."""

    family_name = "forecast"

    def build(self) -> None:
        g, t = self.data, torch.arange(240.0)
        level, size, phase = (torch.randn(40, 1, generator=g) for _ in range(3))
        series = 3 * level + 0.05 * t + (1 + 0.3 * size) * torch.sin(2 * math.pi * t / 12 + 3 * phase)
        self.windows = (series + 0.15 * torch.randn(40, 240, generator=g)).unfold(1, 30, 3)      # 40 series, 71 windows, 30
        self.model, self.rate = Ahead(self.width), 2 * self.rate
        self.cut()

    def relative(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x - x[:, -1:], y - x[:, -1:]

    def cut(self) -> None:
        for part, names in ((self.windows[:, :44], ("inputs", "targets")), (self.windows[:, 56:], ("held", "held_targets"))):
            rows = part.reshape(-1, 30)
            x, y = self.relative(rows[:, :24], rows[:, 24:])
            setattr(self, names[0], (x[..., None],))
            setattr(self, names[1], y)


# Pairs -----------------------------------------------------------------------------------------------------------------

class Towers(nn.Module):
    def __init__(self, width: int, size: int = 12) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(60, size), nn.Embedding(80, size)
        self.of_user, self.of_item = stack(size, width, size), stack(size, width, size)

    def score(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return (user * item).sum(1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.score(self.of_user(self.users(user)), self.of_item(self.items(item)))


class Ratings(Application):
    """Sixty users, eighty items: what a user gives an item, about a mean of zero."""

    family_name = "ratings"

    def build(self) -> None:
        g, n = self.data, 12800
        user, item = torch.randint(0, 60, (n,), generator=g), torch.randint(0, 80, (n,), generator=g)
        taste, kind = torch.randn(60, 3, generator=g), torch.randn(80, 3, generator=g)
        score = (taste[user] * kind[item]).sum(1) / 3 ** 0.5
        self.model, self.rate, self.batch_size = Towers(self.width), 3 * self.rate, 64
        self.split((user, item), self.label(score + 0.2 * torch.randn(n, generator=g)))

    def label(self, score: torch.Tensor) -> torch.Tensor:
        return score


class Clicks(Ratings):
    """Did a user take the item?"""

    family_name = "clicks"

    def label(self, score: torch.Tensor) -> torch.Tensor:
        return (score > 0).float()

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out, y)


class Captions(Application):
    """A picture and three words of the same thing: each of a batch is to find its own. The temperature is learnt."""

    family_name = "captions"

    def build(self) -> None:
        g, n, w = self.data, 2304, self.width
        thing = torch.randint(0, 8, (n, 3), generator=g)
        looks = torch.randn(3, 8, 48, generator=g)
        picture = sum(looks[i, thing[:, i]] for i in range(3)) + 0.5 * torch.randn(n, 48, generator=g)
        words = thing + 8 * torch.arange(3)
        self.model = nn.ModuleDict({"see": stack(48, w, w, 16), "table": nn.Embedding(24, w), "read": stack(w, w, 16)})
        self.model.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.batch_size = 64
        self.split((picture, words), torch.arange(n))

    def forward(self, x: Any) -> torch.Tensor:
        seen = F.normalize(self.model["see"](x[0]), dim=1)
        read = F.normalize(self.model["read"](self.model["table"](x[1]).mean(1)), dim=1)
        return self.model.scale.exp() * seen @ read.T

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        own = torch.arange(len(out))
        return (F.cross_entropy(out, own) + F.cross_entropy(out.T, own)) / 2


class Siam(Application):
    """Two views, one network and a guess of one view's code by the other's, which is held still. No negatives."""

    family_name = "siamese without negatives"

    def build(self) -> None:
        w = self.width
        self.split((torch.cat([self.inputs, self.held]),), torch.cat([self.targets, self.held_targets]))
        self.model = nn.ModuleDict({
            "net": nn.Sequential(nn.Linear(FEATURES, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Linear(w, 16), nn.BatchNorm1d(16, affine=False)),
            "guess": nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 16))})
        self.still: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
        self.every, self.batch_size = 0, 64

    def batch(self) -> Any:
        x = self.inputs[0][self.choose()]
        return (x + 0.3 * torch.randn(x.shape), x + 0.3 * torch.randn(x.shape)), torch.zeros(len(x))

    def forward(self, x: Any) -> Any:
        codes = [self.model["net"](view) for view in x]
        return codes, [self.model["guess"](code) for code in codes]

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        (one, other), (of_one, of_other) = out
        return -(F.cosine_similarity(of_one, self.still(other)).mean() + F.cosine_similarity(of_other, self.still(one)).mean()) / 2


# Codes, experts, boxes, equations --------------------------------------------------------------------------------------

class Codes(Application):
    """Points of sixteen kinds through a table of thirty-two codes: the gradient is passed on as if there were no table."""

    family_name = "codes"

    def build(self) -> None:
        g, w = self.data, self.width
        x = torch.randn(16, 24, generator=g)[torch.randint(0, 16, (1280,), generator=g)] + 0.2 * torch.randn(1280, 24, generator=g)
        self.model = nn.ModuleDict({"encoder": stack(24, w, w, 4), "table": nn.Embedding(32, 4), "decoder": stack(4, w, w, 24)})
        nn.init.normal_(self.model["table"].weight, 0, 0.3)
        self.held_to_it, self.rate = 0.25, 3 * self.rate
        self.split((x,), x)

    def passed_on(self, seen: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        return seen + (code - seen).detach()

    def forward(self, x: Any) -> Any:
        seen = self.model["encoder"](x[0])
        code = self.model["table"](torch.cdist(seen.detach(), self.model["table"].weight.detach()).argmin(1))
        return self.model["decoder"](self.passed_on(seen, code)), seen, code

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        made, seen, code = out
        return F.mse_loss(made, y) + F.mse_loss(code, seen.detach()) + self.held_to_it * F.mse_loss(seen, code.detach())


class Crowd(nn.Module):
    def __init__(self, size: int, width: int, count: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(size, count)
        self.experts = nn.ModuleList(nn.Linear(size, 4) for _ in range(count))

    def share(self, gate: torch.Tensor) -> torch.Tensor:
        """The best two."""
        best = gate.topk(2, 1)
        return torch.zeros_like(gate).scatter(1, best.indices, best.values.softmax(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.share(self.gate(x))[:, :, None] * torch.stack([expert(x) for expert in self.experts], 1)).sum(1)


class Experts(Application):
    """Eight kinds of points, each with a rule of its own."""

    family_name = "experts"

    def build(self) -> None:
        g, n = self.data, 2304
        kind, centres, rules = torch.randint(0, 8, (n,), generator=g), 2 * torch.randn(8, 12, generator=g), torch.randn(8, 12, 4, generator=g)
        off = torch.randn(n, 12, generator=g)
        x, y = centres[kind] + off, torch.bmm(off[:, None], rules[kind])[:, 0] / 12 ** 0.5
        self.model, self.rate, self.batch_size = Crowd(12, self.width), 4 * self.rate, 64
        self.split((x,), y + 0.1 * torch.randn(n, 4, generator=g))


class Eye(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(16 * 36, width), nn.ReLU())
        self.kind, self.box = nn.Linear(width, 3), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.body(x)
        return self.kind(seen), self.box(seen)


class Boxes(Application):
    """One of three things in a noisy picture: which, and where (top, left, height, width, as shares of the picture)."""

    family_name = "boxes"

    def build(self) -> None:
        g, n = self.data, 1024 + HELD
        x, kind = torch.zeros(n, 1, 12, 12), torch.randint(0, 3, (n,), generator=g)
        place = torch.randint(0, 6, (n, 2), generator=g)
        size = torch.randint(3, 7, (n, 2), generator=g)
        for i, (top, left, high, wide) in enumerate(torch.cat([place, size], 1).tolist()):
            thing = x[i, 0, top:top + high, left:left + wide]
            thing += 1.5
            if kind[i] == 1:
                thing[1:-1, 1:-1] = 0
            elif kind[i] == 2:
                thing[::2] = -1.5
        self.model, self.scale = Eye(self.width), 1.0
        self.split((x + 0.3 * torch.randn(x.shape, generator=g),), torch.cat([kind[:, None], torch.cat([place, size], 1) / 12], 1))

    def together(self, of_kind: torch.Tensor, of_box: torch.Tensor) -> torch.Tensor:
        return of_kind + 5 * of_box

    def loss(self, out: Any, y: torch.Tensor) -> torch.Tensor:
        return self.together(F.cross_entropy(out[0], y[:, 0].long()), F.smooth_l1_loss(out[1], self.scale * y[:, 1:], beta=0.1))


class Equation(Application):
    """u' = -2 u + cos(4 x), u(0) = 1, between zero and two: what is left of it at random places is to be nothing."""

    family_name = "equation"

    def build(self) -> None:
        self.model = stack(1, 32, 32, 1, act=nn.Tanh)
        self.graph, self.batch_size, self.rate = True, 64, 4 * self.rate
        x = torch.linspace(0, 2, HELD)[:, None]
        self.held = (x,)
        self.held_targets = 0.9 * torch.exp(-2 * x) + 0.1 * torch.cos(4 * x) + 0.2 * torch.sin(4 * x)

    def batch(self) -> Any:
        return (2 * torch.rand(self.batch_size, 1, generator=self.order),), None

    def loss(self, out: torch.Tensor, y: Any) -> torch.Tensor:
        if y is not None:
            return F.mse_loss(out, y)
        u, x = out
        slope, = torch.autograd.grad(u.sum(), x, create_graph=self.graph, retain_graph=True)
        first = self.model(torch.zeros(1, 1))
        return ((slope + 2 * u - torch.cos(4 * x)) ** 2).mean() + 5 * ((first - 1) ** 2).mean()

    def forward(self, x: Any) -> Any:
        if not self.model.training:
            return self.model(x[0])
        place = x[0].requires_grad_()
        return self.model(place), place


class FineTuned(Application):
    """A trunk that has learnt another task of the same pictures, and is kept; a new head, and few labels."""

    family_name = "fine-tuned"

    def build(self) -> None:
        g = torch.Generator().manual_seed(self.seed + 2)
        turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=g))[0]
        causes = torch.randn(4096, 5, generator=g)

        def seen(causes: torch.Tensor) -> torch.Tensor:
            return torch.cat([causes, 2.5 * torch.randn(len(causes), FEATURES - 5, generator=g)], 1) @ turn
        trunk = embedder(self.width)
        head = nn.Linear(16, 8)
        optimizer = torch.optim.Adam([*trunk.parameters(), *head.parameters()], 4e-3)
        x, mix = seen(causes), torch.randn(5, 8, generator=g)
        for _ in range(250):
            rows = torch.randint(0, 4096, (128,), generator=g)
            optimizer.zero_grad()
            F.mse_loss(head(trunk(x[rows])), causes[rows] @ mix).backward()
            optimizer.step()
        self.trunk = trunk.requires_grad_(False)
        self.model = nn.Sequential(self.trunk, nn.Linear(16, 4))
        causes = torch.randn(128 + HELD, 5, generator=g)
        self.split((seen(causes),), (causes[:, 0] > 0).long() + 2 * (causes[:, 1] > 0).long())
        self.rate *= 5

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, y)


# Rewards ---------------------------------------------------------------------------------------------------------------

class Proximal(Own):
    """An actor and a critic on a corridor of ten places, both ends of which end an episode; one of them pays. What has been lived
    is learnt from three times, and no further than a share of what the actor did then."""

    family_name = "proximal policy"

    def build(self) -> None:
        w = self.width
        self.model = nn.ModuleDict({"body": stack(10, w, w, act=nn.Tanh), "actor": nn.Linear(w, 2), "critic": nn.Linear(w, 1)})
        self.doubt, self.every = 0.01, 0

    def standardised(self, gain: torch.Tensor) -> torch.Tensor:
        return (gain - gain.mean()) / (gain.std() + 1e-8)

    def ratio(self, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return torch.exp(new - old)

    def live(self) -> Tensors:
        place, ended = torch.randint(2, 8, (16,), generator=self.order), torch.zeros(16)
        seen, actions, logs, rewards, alive = [], [], [], [], []
        with torch.no_grad():
            for _ in range(12):
                now = F.one_hot(place, 10).float()
                choice = torch.distributions.Categorical(logits=self.model["actor"](self.model["body"](now)))
                action = choice.sample()
                place = (place + 2 * action - 1).clamp(0, 9)
                parts = (now, action, choice.log_prob(action), (1 - ended) * (place == 9).float(), 1 - ended)
                for kept, part in zip((seen, actions, logs, rewards, alive), parts):
                    kept.append(part)
                ended = torch.maximum(ended, ((place == 9) | (place == 0)).float())
            total, gains = torch.zeros(16), []
            for reward in reversed(rewards):
                total = reward + 0.9 * total
                gains.insert(0, total)
        self.paid = float(sum(rewards).mean())
        return tuple(torch.stack(part) for part in (seen, actions, logs, gains, alive))

    def run(self) -> None:
        self.optimizer = self.make_optimizer()
        for step in range(self.steps):
            self.step = step
            if step % 3 == 0:
                seen, action, old, gain, alive = self.live()
            body = self.model["body"](seen)
            value = self.model["critic"](body)[..., 0]
            choice = torch.distributions.Categorical(logits=self.model["actor"](body))
            ahead = self.standardised(gain - value.detach())
            ratio = self.ratio(choice.log_prob(action), old)
            policy = -torch.minimum(ratio * ahead, ratio.clamp(0.8, 1.2) * ahead)
            each = policy + 0.5 * (value - gain) ** 2 - self.doubt * choice.entropy()
            self.zero()
            self.backward((each * alive).sum() / alive.sum())
            self.clip()
            self.update()
            self.after()
