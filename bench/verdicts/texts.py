"""Small trainings of texts: reviews that end in padding, masked words, answers to what is asked, a language with one table. Words are
of six topics. See applications.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from applications import Application
from architectures import PAD
from torch import nn

MASK, SAYS = 2, 27


def topics(g: torch.Generator, rows: int, length: int, own: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Words 3 to 26, four of each of six topics; of each text a share is of its own one."""
    topic = torch.randint(0, 6, (rows,), generator=g)
    of_topic = 3 + 4 * topic[:, None] + torch.randint(0, 4, (rows, length), generator=g)
    words = torch.where(torch.rand(rows, length, generator=g) < own, of_topic, torch.randint(3, 27, (rows, length), generator=g))
    return words, topic


class Review(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.cell = nn.Embedding(27, width, padding_idx=PAD), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 6)

    def last(self, states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return states[torch.arange(len(states)), lengths - 1]

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.cell(self.table(x))[0], lengths))


class Reviews(Application):
    """Of four to twelve words, padded at their end to forty-eight."""

    family_name = "reviews"

    def build(self) -> None:
        words, topic = topics(self.data, 1280, 48, 0.6)
        lengths = torch.randint(4, 13, (1280,), generator=self.data)
        self.model, self.rate = Review(32), 2 * self.rate
        self.split((words.masked_fill(torch.arange(48) >= lengths[:, None], PAD), lengths), topic)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, y)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.look = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.think = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        h = self.norm(x)
        if mask is not None:      # one for each head
            mask = mask.repeat_interleave(4, 0)
        x = x + self.look(h, h, h, attn_mask=mask)[0]
        return x + self.think(x)


class Speaker(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(28, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 28)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        h = self.table(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h, mask)
        return self.head(self.norm(h))


class Masked(Application):
    """One word in five is hidden, and found by the topic of the others."""

    family_name = "masked words"

    def build(self) -> None:
        words, _ = topics(self.data, 1280, 12, 0.85)
        self.model, self.batch_size = Speaker(32), min(32, self.batch_size)
        self.split((words,), words)

    def hide(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(hidden, MASK)

    def masked(self, words: torch.Tensor, hide: Callable[..., torch.Tensor]) -> Any:
        hidden = torch.rand(words.shape, generator=self.order) < 0.2
        hidden[:, 3] = True
        return (hide(words, hidden),), words.masked_fill(~hidden, -100)

    def batch(self) -> Any:
        return self.masked(self.targets[self.choose()], self.hide)

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.reshape(-1, 28), y.reshape(-1), ignore_index=-100)

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            x, y = self.masked(self.held_targets, Masked.hide.__get__(self))
            self.loss(self.forward(x), y)
        self.model.train()


class Answers(Application):
    """Three to nine words of a topic and then its four words in order, which alone are learnt; padded at the beginning."""

    family_name = "answers"

    def build(self) -> None:
        words, topic = topics(self.data, 1280, 11, 0.7)
        start = torch.randint(2, 9, (1280,), generator=self.data)
        asked = words.masked_fill(torch.arange(11) < start[:, None], PAD)
        says = torch.full((1280, 1), SAYS)
        answer = 3 + 4 * topic[:, None] + torch.arange(4)
        rows = torch.cat([asked, says, answer], 1)
        labels = torch.cat([torch.full((1280, 11), -100), answer], 1)
        self.model, self.batch_size = Speaker(32), min(32, self.batch_size)
        self.split((rows[:, :-1],), labels)

    def mask(self, x: torch.Tensor) -> torch.Tensor:
        """True where a word may not be looked at; each may look at itself."""
        size = x.shape[1]
        hidden = (x == PAD)[:, None, :] | torch.ones(size, size, dtype=torch.bool).triu(1)
        return hidden & ~torch.eye(size, dtype=torch.bool)

    def forward(self, x: Any) -> torch.Tensor:
        return self.model(x[0], self.mask(x[0]))

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.reshape(-1, 28), y.reshape(-1), ignore_index=-100)


class Tied(Application):
    """The next word of a topic's text; one table for what is read and what is said."""

    family_name = "tied language"

    def build(self) -> None:
        words, _ = topics(self.data, 1280, 13, 0.85)
        self.model = Speaker(self.width)
        nn.init.normal_(self.model.table.weight, 0, self.width ** -0.5)
        self.model.head = nn.Linear(self.width, 28, bias=False)
        self.model.head.weight = self.model.table.weight
        self.split((words[:, :-1],), words[:, 1:])
        hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)
        self.forward = lambda x: self.model(x[0], hidden.expand(len(x[0]), -1, -1))

    def loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.reshape(-1, 28), y.reshape(-1))
