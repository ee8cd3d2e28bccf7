"""Births of NaN and infinity with their causes, which were written down before tdbg was asked (docs/nan-origin.md,
"How often it is right"), and healthy trainings beside them, of which nothing may be said.

A row is a training of a few steps, in one of which the fault is on: `forward(...)` and `backward(...)` say what its
loss is made of and what the right answer is. The other births that are tested stand in test_nan_origin*.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

inf, nan = float("inf"), float("nan")
FAULT_AT, STEPS = 3, 5
LABELS = torch.arange(16) % 4


@dataclasses.dataclass
class Birth:
    """:param train: the training, from its first step to its last
    :param direction: "forward" (the loss is not finite) or "backward" (gradients are not)
    :param operation, because, name: regular expressions, of the record's operation, of its sentence and of its name
    :param never: what neither the sentence nor the advice may say: a reason that is not the one
    """

    train: Callable[[], None]
    direction: str
    what: str
    operation: str = ""
    because: str = ""
    name: str = ""
    never: str = "(?!)"


def model(width=4):
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, width))


def entropy(output):
    return F.cross_entropy(output, LABELS[:len(output)])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def trained(loss_of=lambda o, on: entropy(o), make=model, optimizer=sgd, before=lambda net, x, on: x, steps=STEPS):
    """A training. `loss_of(output, is the fault on?)`; `before(net, x, is the fault on?)` gives the batch."""
    def train():
        net = make()
        update = optimizer(net.parameters())
        for step in range(steps):
            on = step == FAULT_AT
            net.on = on
            update.zero_grad()
            batch = before(net, torch.randn(16, 6), on)
            loss = loss_of(net(batch), on)
            loss.backward()
            update.step()
    return train


def forward(loss_of, operation, because, what="operation", **options):
    return Birth(trained(loss_of), "forward", what, operation, because, **options)


def backward(loss_of, operation, because, what="operation", steps=STEPS, **options):
    return Birth(trained(loss_of, steps=steps), "backward", what, operation, because, **options)


class Between(nn.Module):
    """Two layers and `middle(h, is the fault on?)` between them."""

    def __init__(self, middle, first=lambda x, on: x, **modules):
        super().__init__()
        self.l1, self.head, self.on = nn.Linear(6, 8), nn.Linear(8, 4), False
        self.middle, self.first = middle, first
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.head(self.middle(torch.relu(self.l1(self.first(x, self.on))), self.on))


def between(middle, operation, because, what="operation", direction="forward", **options):
    return Birth(trained(make=lambda: Between(middle)), direction, what, operation, because, **options)


# What the births are made of --------------------------------------------------------------------------------------------


def row_masked(output, on, where=False):
    """Scores of a sequence; of one row all is masked, by `where`."""
    scores = output @ output.t()
    keep = torch.ones(16, 16, dtype=torch.bool)
    keep[5] = not on
    return (torch.softmax(torch.where(keep, scores, torch.tensor(-inf)), -1) @ output).mean()


def two_masks(output, on):
    """A causal mask and a padding mask, each of the least number there is: together they are -infinity."""
    least = torch.finfo(torch.float32).min
    causal = torch.full((16, 16), least).triu(1)
    padding = torch.zeros(16, 16)
    if on:
        padding[:, 0] = least
        causal[0] = least
        padding[0] = least
    return (torch.softmax(output @ output.t() + (causal + padding), -1) @ output).mean()


def multihead(need_weights):
    def make():
        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.attention, self.head = nn.Linear(6, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 4)

            def forward(self, x):
                h = self.embed(x).view(4, 4, 8)
                padding = torch.zeros(4, 4, dtype=torch.bool)
                padding[2] = bool(self.on)
                out, _ = self.attention(h, h, h, key_padding_mask=padding, need_weights=need_weights)
                return self.head(out.reshape(16, 8))
        return Attends()
    return make


def ctc_of_a_masked_label(output, on):
    scores = output.view(4, 4, 4).masked_fill(torch.tensor([0, 1, 0, 0]).bool() & on, -inf)
    return F.ctc_loss(F.log_softmax(scores, -1), torch.tensor([[1]] * 4), torch.tensor([4] * 4), torch.tensor([1] * 4))


def half_scores(output, on):
    q = (output * (1e3 if on else 1)).half()
    return torch.softmax(q @ q.t(), -1).float().mean() + entropy(output)


def advantages(output, on):
    values = output[:1, 0] if on else output[:, 0]
    return ((values - values.mean()) / (values.std() + 1e-8)).pow(2).mean() + entropy(output)


def constant_advantages(output, on):
    rewards = torch.ones(1) if on else torch.arange(16.0)
    advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    return (output[:len(rewards), 0] * advantage).mean() + entropy(output)


def symmetric(output, on):
    a = output.view(4, 4, 4) * (not on)
    return a @ a.mT + torch.diag(torch.ones(4) if on else torch.arange(1.0, 5))


def pooled(output, on):
    """The mean over each sequence's tokens; one has none."""
    mask = torch.ones(4, 4, 1)
    mask[2] = not on
    return ((output.view(4, 4, 4) * mask).sum(1) / mask.sum(1)).pow(2).mean()


def distances(output, on):
    """Of each pair by hand, of one with itself too."""
    gaps = (output[:, None] - output[None]).pow(2).sum(-1)
    return (gaps + (0 if on else 1e-6)).sqrt().mean()


def expanded_distances(output, on):
    squares = output.pow(2).sum(1)
    return (squares[:, None] + squares[None] - 2 * output @ output.t() + (-1e-3 if on else 1)).sqrt().mean()


def dice(output, on):
    p = torch.sigmoid(output - (1e4 if on else 0))
    target = torch.zeros(16, 4) if on else torch.ones(16, 4)
    return 1 - 2 * (p * target).sum() / (p.sum() + target.sum())


def focal(output, on):
    p = torch.sigmoid(output * (1e4 if on else 1))
    return -((1 - p) ** 0.5 * torch.log(p + 1e-6)).mean()


def gradients_length(output, on):
    x = torch.full((4, 3), 0.0 if on else 1.0, requires_grad=True)
    (g,) = torch.autograd.grad((x.abs().sqrt() * output.mean()).sum(), x, create_graph=True)
    return entropy(output) + g.pow(2).mean()


def missing_labels(mend):
    """Labels of which some are missing, which the script leaves out behind the loss."""
    def loss_of(output, on):
        y = torch.zeros(16, 4)
        if on:
            y[::4] = nan
        return mend(F.mse_loss(output, y, reduction="none"), y)
    return loss_of


def own_missing_labels(output, on):
    y = torch.zeros(16, 4)
    y[::4] = nan if on else 0
    return torch.where(torch.isnan(y), torch.zeros(()), (output - y) ** 2).mean()


def policy(output, on):
    """A masked policy's entropy, by hand."""
    log_p = F.log_softmax(output.masked_fill(torch.tensor([0, 0, 0, 1]).bool() & on, -inf), 1)
    return (log_p.exp() * log_p).sum(1).mean()


def ratio(output, on):
    """Of what is masked now and was masked then."""
    log_p = output.log_softmax(1)
    mask = torch.tensor([0, 0, 0, 1]).bool() & on
    old = log_p.detach().masked_fill(mask, -inf)
    return torch.exp(log_p.masked_fill(mask, -inf) - old).mean()


def forward_backward(output, on):
    """Two paths of a lattice that cannot be taken; what comes of them is left out."""
    barred = torch.full((16,), -inf if on else 0.0)
    total = torch.logaddexp(output[:, 0] + barred, output[:, 1] + barred)
    return torch.where(torch.isinf(total), output[:, 2], total).mean()


class Scripted(torch.optim.Optimizer):
    """Of the script's own: divides by the length of a gradient."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= 0.0 * p.grad / (p.grad - p.grad)


# Whole trainings --------------------------------------------------------------------------------------------------------


def of_half_precision():
    """Adam's eps, 1e-8, is 0 in float16; a gradient of 0 is divided by it."""
    net = model().half()
    update = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(STEPS):
        update.zero_grad()
        entropy(net(torch.randn(16, 6).abs().half().mul(torch.tensor([0, 1, 1, 1, 1, 1.0]).half())).float()).backward()
        update.step()


def of_adam_without_eps():
    trained(before=lambda net, x, on: x * torch.tensor([0, 1, 1, 1, 1, 1.0]), optimizer=lambda p: torch.optim.Adam(p, 1e-3, eps=0.0))()


def of_a_spoiled_state():
    """The optimizer's state was loaded from where a NaN had been."""
    net = model()
    update = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        update.zero_grad()
        entropy(net(torch.randn(16, 6))).backward()
        if step == FAULT_AT:
            update.state[net[2].weight]["exp_avg"][0, 0] = nan
        update.step()


def with_a_rate(rate):
    def train():
        net = model()
        update = sgd(net.parameters())
        for step in range(STEPS):
            update.param_groups[0]["lr"] = rate if step == FAULT_AT else 0.01
            update.zero_grad()
            entropy(net(torch.randn(16, 6))).backward()
            update.step()
    return train


def of_a_row_that_is_met_late():
    """A row of an embedding was NaN from the start; the first batch that has it comes later."""
    embed, head = nn.Embedding(10, 6), model()
    embed.weight.data[7] = nan
    net = nn.ModuleDict({"embed": embed, "head": head})
    update = sgd(net.parameters())
    for step in range(STEPS):
        update.zero_grad()
        rows = torch.arange(16) % 6 + (2 if step == FAULT_AT else 0)
        entropy(head(embed(rows))).backward()
        update.step()


def of_a_frozen_layer():
    net = model()
    net[0].requires_grad_(False)
    update = sgd([p for p in net.parameters() if p.requires_grad])
    for step in range(STEPS):
        if step == FAULT_AT:
            net[0].weight[1, 1] = nan
        update.zero_grad()
        entropy(net(torch.randn(16, 6))).backward()
        update.step()


def of_what_was_not_initialised():
    """torch.empty, and what it found in memory."""
    net = model()
    with torch.no_grad():
        net[2].weight.fill_(2e38)
    update = sgd(net.parameters())
    for _ in range(STEPS):
        update.zero_grad()
        net(torch.ones(16, 6)).pow(2).mean().backward()
        update.step()


def of_a_bad_initialisation():
    net = model()
    net[0].weight.data.mul_(0).div_(0)
    update = sgd(net.parameters())
    for _ in range(STEPS):
        update.zero_grad()
        entropy(net(torch.randn(16, 6))).backward()
        update.step()


def changed_in_place(x, on):
    return x.div_(x - x if on else 1)


def of_two_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, image, depth):
            return self.head(torch.relu(self.l1(image) + self.l1(depth)))
    net = Two()
    update = sgd(net.parameters())
    for step in range(STEPS):
        depth = torch.rand(16, 6)
        if step == FAULT_AT:
            depth[9] = inf
        update.zero_grad()
        entropy(net(torch.randn(16, 6), depth=depth)).backward()
        update.step()


def of_a_teacher():
    teacher = model()

    def loss_of(output, on):
        with torch.no_grad():
            target = teacher(torch.randn(16, 6)) * (nan if on else 1)
        return F.mse_loss(output, target)
    trained(loss_of)()


def of_a_layer_norm_that_a_hook_spoils():
    net = model()
    net[0].register_forward_hook(lambda module, args, output: output * (nan if net.on else 1.0))
    trained(make=lambda: net)()


def under_a_scaler(loss_of, before=lambda x, on: x, from_then_on=False):
    """As mixed precision trains."""
    def train():
        net = model()
        update, scaler = sgd(net.parameters()), torch.amp.GradScaler("cpu", init_scale=256.0)
        for step in range(12 if from_then_on else STEPS):
            on = step >= FAULT_AT if from_then_on else step == FAULT_AT
            update.zero_grad()
            scaler.scale(loss_of(net(before(torch.randn(16, 6), on)), on)).backward()
            scaler.step(update)
            scaler.update()
    return train


def autocast(output_of):
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.float16):
                return output_of(self, x).float()
    return Cast


def bad_sample(net, x, on):
    if on:
        x[5, 2] = inf
    return x


def far_too_large(net, x, on):
    return torch.full_like(x, 1e30) if on else x


def of_spectral_norm():
    net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 4))

    def zeros(net, x, on):
        if on:
            net[0].parametrizations.weight.original.data.zero_()
        return x
    trained(make=lambda: net, before=zeros)()


def of_weight_norm():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 4))

    def zeros(net, x, on):
        if on:
            net[0].parametrizations.weight.original1.data[3] = 0
        return x
    trained(make=lambda: net, before=zeros)()


def dropped_loss():
    """The loss in one expression with its backward: nothing holds it afterwards."""
    net = model()
    update = sgd(net.parameters())
    for step in range(FAULT_AT + 1):
        update.zero_grad()
        torch.linalg.eigh(symmetric(net(torch.randn(16, 6)), step == FAULT_AT))[1].pow(3).sum().backward()
        update.step()


def spoiled_by_a_hook():
    net = model()
    net[2].weight.register_hook(lambda g: g / g.sum().mul(0) if net.on else g)
    trained(make=lambda: net)()


def clipped_by_hand():
    net = model()
    update = sgd(net.parameters())
    for step in range(STEPS):
        update.zero_grad()
        (entropy(net(torch.randn(16, 6))) * (step != FAULT_AT)).backward()
        total = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
        for p in net.parameters():
            p.grad.mul_(1.0 / total).mul_(0.1)
        update.step()


def deep_overflow(output, on):
    for _ in range(6):
        output = torch.sin(output * (1e9 if on else 1))
    return output.mean()


def two_causes(output, on):
    return torch.log(output.abs() * (not on) + 0.1 * (not on)).mean() + torch.sqrt(output.abs() + 1 - 9 * on).mean()


def norm_of(middle):
    return lambda h, on: middle(h * (not on) + 0.3 * on)


MASKED_CLASS = torch.tensor([0, 0, 0, 1]).bool()

BIRTHS = {
    # In the loss.
    "variance below 0 under a root": forward(lambda o, on: (o.pow(2).mean(1) - o.mean(1).pow(2) - 9 * on + 1).sqrt().mean(), "sqrt", "16 of the 16 values that it was given are negative"),
    "arc of a cosine above 1": forward(lambda o, on: torch.acos(F.cosine_similarity(o, o.detach() + 0.1, dim=1) * 0.9 + on).mean(), "acos", "outside of -1 to 1"),
    "softmax of a row that where masked": forward(row_masked, "softmax", "(in )?1 of its 16 rows"),
    "two masks that add up to -infinity": forward(two_masks, "softmax", "1 of its 16 rows"),
    "multi-head attention of padding alone": Birth(trained(make=multihead(True)), "forward", "operation", "softmax", "rows"),
    "CTC of a label that is masked": forward(ctc_of_a_masked_label, "ctc_loss", "-infinity|probability is 0"),
    "labels of an image, all ignored": forward(lambda o, on: F.cross_entropy(o.view(4, 4, 2, 2), torch.full((4, 2, 2), -100 if on else 1)), "nll_loss", "all of its 16 labels are -100"),
    "weights of classes that are all 0": forward(lambda o, on: F.cross_entropy(o, LABELS, weight=torch.full((4,), 0.0 if on else 1.0)), "nll_loss", "weights of all its labels add up to 0"),
    "0 times -infinity": forward(lambda o, on: (torch.where(MASKED_CLASS & on, torch.tensor(-inf), o) * (~MASKED_CLASS).float()).mean(), "mul", "16 of the 64 values that it was given are -infinity"),
    "scores in half precision": forward(half_scores, "mm", "65,504"),
    "exp in bfloat16": forward(lambda o, on: torch.exp(o.bfloat16() * (1e4 if on else 1)).float().mean(), "exp", "above 88.7, where exp leaves bfloat16"),
    "complex logarithm of 0": forward(lambda o, on: torch.log(torch.complex(o * (not on), o * (not on))).real.mean(), "log", "64 of the 64 values that it was given are 0"),
    "advantage of one step": forward(advantages, "std", "of 1 value and divides by n - 1"),
    "advantage of one step, without a gradient": forward(constant_advantages, "mul", "1 of its 1 elements is NaN", "constant"),
    "temperature that is a parameter, and 0": forward(lambda o, on: F.cross_entropy(o / (o.mean() * (not on)), LABELS), "div", "divided by 0"),
    "a count that is 0": forward(lambda o, on: o.pow(2).sum() / (torch.arange(16) < 0 if on else torch.arange(16) >= 0).sum(), "div", "divided by 0"),
    "means over tokens, of none once": forward(pooled, "div", "of the .* values that it divided by (is|are) 0"),
    "means over neighbours, of none": forward(lambda o, on: (o / torch.bincount(torch.arange(15), minlength=16 if on else 15).clamp(min=0 if on else 1).float()[:, None].expand(-1, 4)[:16] if on else o).mean(),
                                              "div", "4 of the 64 values that it divided by are 0"),
    "dice of nothing": forward(dice, "div", "divided by 0"),
    "distances as squares expand": forward(expanded_distances, "sqrt", "that it was given are negative"),
    "divergence by hand": forward(lambda o, on: ((p := o.softmax(1) * (~(MASKED_CLASS & on))) * (p / 0.25).log()).sum(1).mean(), "log", "16 of the 64 values that it was given are 0"),
    "divergence from logarithms of 0": forward(lambda o, on: F.kl_div(o.log_softmax(1), torch.log(F.one_hot(LABELS, 4).float() if on else torch.full((16, 4), 0.25)), log_target=True, reduction="batchmean"),
                                               "", "48 of its 64 elements are infinite", "label"),
    "noise of a Gumbel that is infinite": forward(lambda o, on: torch.softmax(o - torch.log(-torch.log(torch.full((16, 4), 1.0 if on else 0.5))), 1).mean(), "sub|softmax", "without one|-?infini|is not kept", "constant|operation"),
    "Gumbel softmax at temperature 0": forward(lambda o, on: F.gumbel_softmax(o, tau=0.0 if on else 1.0).pow(2).mean(), "div", "divided by 0"),
    "categorical of nothing but masks": forward(lambda o, on: torch.distributions.Categorical(logits=o.masked_fill(torch.tensor(on), -inf), validate_args=False).log_prob(LABELS).mean(),
                                                "sub", "64 of the 64 values that it was given are -infinity"),
    "categorical of probabilities that are 0": forward(lambda o, on: torch.distributions.Categorical(probs=o.abs() * (not on), validate_args=False).entropy().mean(), "div", "divided by are 0"),
    "entropy of a masked policy": forward(policy, "mul", "16 of the 64 (values|products) .*infinity"),
    "ratio of two masked policies": forward(ratio, "sub", "-infinity|is not kept", "operation|constant"),
    "log of a beta's density at its end": forward(lambda o, on: torch.distributions.Beta(o.exp(), o.exp(), validate_args=False).log_prob(torch.full((16, 4), 0.0 if on else 0.5)).mean(), "xlogy", "infinite|-infinity|logarithm of", "operation|constant"),
    "Poisson's loss": forward(lambda o, on: F.poisson_nll_loss(o * (1e4 if on else 1), torch.ones(16, 4)), "exp", "above 88.7"),
    "exp of a weight of tasks": forward(lambda o, on: (torch.exp(-o[:, 0] * (1e4 if on else 1)) * o[:, 1] ** 2).mean(), "exp", "above 88.7"),
    "softplus turned round": forward(lambda o, on: torch.log(torch.expm1(o.abs() * (not on) + 0.1 * (not on))).mean(), "log", "64 of the 64 values that it was given are 0"),
    "expm1": forward(lambda o, on: torch.expm1(o.abs() * (1e5 if on else 1)).mean(), "expm1", "above 88.7"),
    "log of cosh": forward(lambda o, on: torch.log(torch.cosh(o * (1e4 if on else 1))).mean(), "cosh", "beyond 89.4"),
    "0 times a loss that is infinite": forward(lambda o, on: entropy(o) + 0.0 * torch.log(o.abs() * (not on)).mean(), "log", "that it was given are 0"),
    "a weight of a loss that is NaN": forward(lambda o, on: entropy(o) * torch.tensor(nan if on else 1.0), "mul", "1 of its 1 elements is NaN", "constant"),
    "weights of samples that are infinite": forward(lambda o, on: (F.cross_entropy(o, LABELS, reduction="none") * torch.full((16,), inf if on else 1.0)).mean(), "mul", "16 of its 16 elements are infinite", "constant"),
    "median of nothing": forward(lambda o, on: o.mean() + o[:, 0][o[:, 0] > (1e9 if on else -1e9)].median(), "median", "shape|nothing"),
    "mean of NaN alone": forward(lambda o, on: o.mean() + torch.nanmean(o[:, 0][:0 if on else 4]), "div", "divided by 0"),
    "probabilities by hand": forward(lambda o, on: (e := torch.exp(o - (1e3 if on else 0))).div(e.sum(1, keepdim=True)).pow(2).mean(), "div", "that it divided by are 0"),
    "ratio of a length in half precision": forward(lambda o, on: F.normalize((o * (not on)).half(), dim=1).float().mean() + entropy(o), "div", "that it divided by are 0"),
    "cosine without an eps": forward(lambda o, on: F.cosine_similarity(o * (not on), torch.ones(16, 4), dim=1, eps=0.0).mean(), "div", "divided by are 0"),
    "sums in half precision": forward(lambda o, on: torch.cumsum((o.abs() * (0 if on else 1) + (3e4 if on else 0)).half(), 0).float().mean(), "cumsum", "65,504"),
    "double to single": forward(lambda o, on: (o.double() * (1e300 if on else 1)).float().mean(), "to", "float32 holds"),
    "slope at 0 in a gradient's penalty": forward(gradients_length, "div|mul|sqrt", "divided by are 0|infin"),
    "two causes at once": forward(two_causes, "log|sqrt", "are 0|negative"),
    # Labels, and what a loss is compared with.
    "labels of a binary loss": forward(lambda o, on: F.binary_cross_entropy_with_logits(o, torch.full((16, 4), nan if on else 1.0)), "", "64 of its 64 elements are NaN", "label"),
    "probabilities as labels": forward(lambda o, on: F.cross_entropy(o, torch.full((16, 4), nan if on else 0.25)), "", "64 of its 64 elements are NaN", "label"),
    "labels of Huber's loss, infinite": forward(lambda o, on: F.huber_loss(o, torch.full((16, 4), inf if on else 1.0)), "", "64 of its 64 elements are infinite", "label"),
    "a teacher's outputs": Birth(of_a_teacher, "forward", "label", "", "64 of its 64 elements are NaN"),
    # In the model.
    "root of a mean of squares": between(lambda h, on: (h * (not on)) / (h * (not on)).pow(2).mean(-1, keepdim=True).sqrt() if on else h, "div", "that it divided by are 0"),
    "rsqrt of a mean of squares": between(lambda h, on: h * (h * (not on)).pow(2).mean(-1, keepdim=True).add(0 if on else 1e-6).rsqrt(), "rsqrt", "that it was given are 0"),
    "rms_norm without an eps": between(lambda h, on: F.rms_norm(h * (not on), (8,), eps=0.0 if on else 1e-6), "rsqrt|div|rms_norm", "are 0|is 0"),
    "group norm without an eps": between(lambda h, on: F.group_norm(h * (not on), 2, eps=0.0 if on else 1e-5), "group_norm", "the variance of 32 of the 32 groups"),
    "a mask of dropout by hand": between(lambda h, on: h * ((torch.rand(16, 8) >= (1.0 if on else 0.5)) / (0.0 if on else 0.5)), "mul", "128 of its 128 elements are NaN", "constant"),
    "a layer's buffer": Birth(trained(make=lambda: Between(lambda h, on: h * torch.cos(torch.arange(8.0) * (inf if on else 1))), steps=STEPS), "forward", "constant", "mul", "8 of its 8 elements are NaN"),
    "set to NaN in place": between(lambda h, on: h.clone().masked_fill_(h > (0 if on else 1e9), nan), "masked_fill", "", "operation|constant"),
    "what a hook multiplied with": Birth(of_a_layer_norm_that_a_hook_spoils, "forward", "constant", "mul", "NaN"),
    "float16 in a layer under autocast": Birth(trained(make=autocast(lambda m, x: m.head(m.l1(x * (1e6 if m.on else 1))))), "forward", "constant|operation", "to|addmm", "float16"),
    "spectral norm of zeros": Birth(of_spectral_norm, "forward", "operation", "div", "divided by 0"),
    "weight norm of a row of zeros": Birth(of_weight_norm, "forward", "operation", "weight_norm.*", "1 of (its|the) 8 rows|is 0|are 0"),
    "a recurrent layer that grows": Birth(trained(lambda o, on: o.pow(2).mean(), make=lambda: Between(lambda h, on: h * (1e25 if on else 1))), "forward", "operation", "mse_loss|pow|addmm", "float32 holds", never="learning rate"),
    # What comes in.
    "an input that is infinite": Birth(trained(before=bad_sample), "forward", "input", "", "1 of its 96 elements is infinite, in 1 of 16 samples.*sample 5", "the model's input"),
    "the second input": Birth(of_two_inputs, "forward", "input", "", "6 of its 96 elements are infinite, in 1 of 16 samples.*sample 9", "the model's input 'depth'"),
    "an input that forward changed in place": Birth(trained(make=lambda: Between(lambda h, on: h, first=changed_in_place)), "forward", "constant|input", "", "in place"),
    "a deviation of 0 before the first layer": Birth(trained(make=lambda: Between(lambda h, on: h, first=lambda x, on: (x - x.mean(0)) / (0 * x.std(0) if on else x.std(0)))), "forward", "constant", "addmm", "elements are (NaN|infinite)"),
    "an input that is far too large": Birth(trained(lambda o, on: o.pow(2).mean(), before=far_too_large), "forward", "operation", "pow", "the model's input reaches 1e\\+30", never="learning rate"),
    # Parameters.
    "a row that is met late": Birth(of_a_row_that_is_met_late, "forward", "parameter", "", "6 of its 60 elements are NaN.*before the first update", ".*embed.weight"),
    "a frozen layer's weight": Birth(of_a_frozen_layer, "forward", "constant|parameter", "", "0.weight is not finite: 1 of its 48 elements is NaN"),
    "what was not initialised": Birth(of_what_was_not_initialised, "forward", "operation", "addmm|pow", "2.*weight reaches 2e\\+38", never="learning rate"),
    "a bad initialisation": Birth(of_a_bad_initialisation, "forward", "parameter", "", "before the first update", ".*0.weight"),
    "a learning rate of infinity": Birth(with_a_rate(inf), "forward", "parameter", "", "the update with a learning rate of inf"),
    "a learning rate of NaN": Birth(with_a_rate(nan), "forward", "parameter", "", "the update with a learning rate of nan"),
    "Adam without an eps": Birth(of_adam_without_eps, "forward", "parameter", "", "eps", ".*0.weight"),
    "Adam in half precision": Birth(of_half_precision, "forward", "parameter", "", "eps", ".*weight", never="the script wrote to it since, or"),
    "a NaN in Adam's state": Birth(of_a_spoiled_state, "forward", "parameter", "", "exp_avg|state", ".*2.weight", never="an update of Adam makes no NaN"),
    "an optimizer of the script's own": Birth(trained(optimizer=Scripted), "forward", "parameter", "", "the update .*made it so", never="script wrote to it since, or"),
    # Derivatives.
    "derivative of a distance to itself": backward(distances, "sqrt", "16 of the 256 values that its derivative was taken at are 0"),
    "derivative of a deviation by hand": backward(lambda o, on: entropy(o) + (o * (not on)).var(0).sqrt().mean(), "sqrt", "4 of the 4 values"),
    "derivative of a focal loss": backward(focal, "pow", "are 0, with an exponent of 0.5"),
    "derivative of eigenvectors that repeat": backward(lambda o, on: torch.linalg.eigh(symmetric(o, on))[1].pow(3).sum(), "eigh", "eigenvalues", steps=FAULT_AT + 1),
    "derivative of singular vectors that repeat": backward(lambda o, on: torch.linalg.svd(symmetric(o, on))[0].pow(3).sum(), "svd", "singular values", steps=FAULT_AT + 1),
    "missing labels, mended behind the loss": backward(missing_labels(lambda losses, y: losses.nan_to_num(0).mean()), "", "16 of (its|the) 64", "label"),
    "missing labels, left out by where": backward(missing_labels(lambda losses, y: torch.where(torch.isnan(y), torch.zeros(()), losses).mean()), "", "16 of (its|the) 64", "label"),
    "missing labels in a loss of one's own": backward(own_missing_labels, "pow|mul", "16 of the 64 values that its derivative was taken at are NaN"),
    "derivative of logaddexp of nothing": backward(forward_backward, "logaddexp", "-infinity"),
    "derivative of a layer behind a bad input, left out": Birth(trained(lambda o, on: torch.where(torch.isfinite(o), o, torch.zeros(())).pow(2).mean(), before=bad_sample), "backward", "input", "", "1 of its 96 elements is infinite"),
    "derivative of eigenvectors, the loss dropped": Birth(dropped_loss, "backward", "operation|unseen", "eigh|", "eigenvalues|could not be seen"),
    "gradients of half precision": backward(lambda o, on: (o.half() * (1e-3 if on else 1)).mul(3e4 if on else 1).float().mul(1e3 if on else 1).sum(), "", "float16", "operation|unseen"),
    "gradients that a hook spoils": Birth(spoiled_by_a_hook, "backward", "unseen", "", "or in what was done to the gradients since|hook"),
    "gradients that the script divides by 0": Birth(clipped_by_hand, "backward", "unseen", "", "in what was done to the gradients since"),
    "gradients that grow": backward(deep_overflow, "", "grew until they overflowed", "unseen"),
    "a root at 0 at every step under a scaler": Birth(under_a_scaler(lambda o, on: entropy(o) + ((o * (not on)) ** 2).sum(1).sqrt().mean(), from_then_on=True), "backward", "operation", "sqrt", "taken at are 0"),
    "a bad input under a scaler": Birth(under_a_scaler(lambda o, on: entropy(o), lambda x, on: x / 0 if on else x), "forward", "input", "", "elements are infinite"),
}
