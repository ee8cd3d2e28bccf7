"""Trainings with NaN, infinity or masks in them, of whose birth nothing may be said: they are well."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from births import FAULT_AT, LABELS, MASKED_CLASS, STEPS, entropy, inf, model, multihead, nan, sgd, trained
from torch import nn


def evaluated(spoil):
    """A validation between two steps: what is NaN there is no birth of a training's."""
    def train():
        net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        update = sgd(net.parameters())
        for step in range(STEPS):
            update.zero_grad()
            entropy(net(torch.randn(16, 6))).backward()
            update.step()
            if step == FAULT_AT:
                spoil(net)
    return train


def in_evaluation(net):
    net.eval()
    with torch.no_grad():
        entropy(net(torch.full((16, 6), nan)))
    net.train()


def in_evaluation_with_a_graph(net):
    net.eval()
    entropy(net(torch.full((16, 6), nan)))
    net.train()


def cleaned_gradients():
    net = model()
    update = sgd(net.parameters())
    for step in range(STEPS):
        update.zero_grad()
        (entropy(o := net(torch.randn(16, 6))) + ((o * (step != FAULT_AT)) ** 2).sum(1).sqrt().mean()).backward()
        for p in net.parameters():
            p.grad.nan_to_num_(0.0)
        update.step()


def scaled(scale):
    def train():
        net = model()
        update, scaler = sgd(net.parameters()), torch.amp.GradScaler("cpu", init_scale=scale)
        for _ in range(8):
            update.zero_grad()
            o = net(torch.randn(16, 6)).half()
            scaler.scale(entropy(o.float() * 30) + (o.float().abs() + 1e-3).sqrt().mean()).backward()
            scaler.step(update)
            scaler.update()
    return train


def padded_attention():
    trained(make=multihead(False))()


HEALTHY = {
    "causal mask of -infinity": trained(lambda o, on: torch.softmax((o @ o.t()).masked_fill(torch.ones(16, 16).triu(1).bool(), -inf), -1).pow(2).mean()),
    "log_softmax of a masked class": trained(lambda o, on: F.cross_entropy(o.masked_fill(MASKED_CLASS & on, -inf), LABELS % 3)),
    "logsumexp with masked classes": trained(lambda o, on: torch.logsumexp(o.masked_fill(MASKED_CLASS, -inf), 1).mean()),
    "scaled dot product of a masked row": trained(lambda o, on: F.scaled_dot_product_attention(o[None], o[None], o[None], attn_mask=torch.full((16, 16), not on)).mean() + entropy(o)),
    "where, guarded before": trained(lambda o, on: torch.where(o > 0, torch.log(torch.where(o > 0, o, torch.ones(()))), o).mean()),
    "nan_to_num before the model": trained(before=lambda net, x, on: torch.nan_to_num(x / x if on else x)),
    "a branch that no loss uses": trained(lambda o, on: [torch.log(o * 0), entropy(o)][1]),
    "a divisor that is clamped": trained(lambda o, on: (o * (not on)).sum() / torch.tensor(0.0).clamp(min=1) + entropy(o)),
    "normalize of zeros": trained(lambda o, on: F.normalize(o * (not on), dim=1).mean() + entropy(o)),
    "cosine similarity of zeros": trained(lambda o, on: F.cosine_similarity(o * (not on), torch.zeros(16, 4)).mean() + entropy(o)),
    "binary cross entropy at its ends": trained(lambda o, on: F.binary_cross_entropy(torch.sigmoid(o * (1e4 if on else 1)), torch.ones(16, 4))),
    "divergence from targets of 0": trained(lambda o, on: F.kl_div(o.log_softmax(1), F.one_hot(LABELS, 4).float(), reduction="batchmean")),
    "labels left out before the loss": trained(lambda o, on: F.mse_loss(o[::2 if on else 1], torch.where(torch.arange(16) % 2 == 1, nan, 1.0)[::2, None].expand(8, 4)) if on else entropy(o)),
    "CTC with zero_infinity": trained(lambda o, on: F.ctc_loss(F.log_softmax(o.view(4, 4, 4), -1), torch.tensor([[1, 1, 1]] * 4), torch.tensor([4] * 4), torch.tensor([3 if on else 1] * 4), zero_infinity=True)),
    "one row that is ignored": trained(lambda o, on: F.cross_entropy(o, torch.where(torch.arange(16) == 3, -100, LABELS))),
    "product of zeros": trained(lambda o, on: (o * (not on)).prod(1).mean() + entropy(o)),
    "cumulative product of zeros": trained(lambda o, on: (o * (not on)).cumprod(1).mean() + entropy(o)),
    "pairwise distance of the same": trained(lambda o, on: F.pairwise_distance(o, o.detach() if on else torch.zeros(16, 4)).mean()),
    "triplets that are the same": trained(lambda o, on: F.triplet_margin_loss(o, o * 1, o * 1)),
    "complex lengths of 0": trained(lambda o, on: torch.complex(o * (not on), o * (not on)).abs().mean() + entropy(o)),
    "a scaler's first steps": scaled(2.0 ** 24),
    "a scaler that begins far too high": scaled(2.0 ** 120),
    "validation, NaN": evaluated(in_evaluation),
    "validation with a graph, NaN": evaluated(in_evaluation_with_a_graph),
    "gradients that the script cleans": cleaned_gradients,
    "attention of padding alone, by the fused kernel": padded_attention,
    "embedding bag of nothing": trained(lambda o, on: F.embedding_bag(torch.zeros(0, dtype=torch.long), o, torch.zeros(4, dtype=torch.long), mode="mean").mean() + entropy(o)),
    "softmax of very large scores": trained(lambda o, on: torch.softmax(o * 1e30, 1).pow(2).mean() + entropy(o)),
    "instance norm of equal values": trained(lambda o, on: F.instance_norm((o * (not on)).view(4, 4, 4), eps=0.0 if on else 1e-5).mean() + entropy(o)),
    "norm below 1 at 0": trained(lambda o, on: (o * (not on)).norm(p=0.5, dim=1).mean() + entropy(o)),
    "hypot of what is not 0": trained(lambda o, on: torch.hypot(o, torch.ones(())).mean()),
    "infinite bound of a clamp": trained(lambda o, on: o.clamp(-inf, inf).pow(2).mean()),
    "smallest of distances with infinite diagonals": trained(lambda o, on: (torch.cdist(o, o) + torch.diag(torch.full((16,), inf))).amin(1).mean()),
}
