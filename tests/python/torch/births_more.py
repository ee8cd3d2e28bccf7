"""A second set of births, written after what the first one showed was mended: what it says is for births that nobody had
seen while mending."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from births import FAULT_AT, LABELS, STEPS, Birth, backward, between, entropy, forward, inf, model, nan, sgd, trained
from torch import nn


def elbo(output, on):
    mean, scale = output[:, :2], output[:, 2:].abs() * (not on)
    posterior = torch.distributions.Normal(mean, scale, validate_args=False)
    return torch.distributions.kl_divergence(posterior, torch.distributions.Normal(torch.zeros(2), torch.ones(2))).mean()


def linear_attention(h, on):
    k = torch.relu(h - (1e6 if on else 0))
    return (k @ (k.t() @ h)) / (k @ k.sum(0))[:, None]


def flow(output, on):
    """The logarithm of a determinant that a coupling layer scales by."""
    scale = torch.sigmoid(output[:, :2] * (1 if not on else 1e4) - (0 if not on else 1e5))
    return -(torch.log(scale).sum(1)).mean()


def arcface(output, on):
    cosine = F.normalize(output, dim=1) @ F.normalize(output.detach(), dim=1).t() * (1.001 if on else 0.9)
    return torch.cos(torch.acos(cosine) + 0.5).mean()


def quaternions(output, on):
    q = output * (not on)
    q = q / q.norm(dim=1, keepdim=True)
    return q.pow(2).sum()


def angle_of_two(output, on):
    a, b = output, (output * 1.0 if on else output.detach() + 1)
    cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
    return torch.acos(cosine.clamp(-1, 1)).mean()


def charbonnier(output, on):
    return ((output * (not on)).pow(2) + (0 if on else 1e-6)).pow(0.45).mean()


def huge_then_softmax(output, on):
    return -torch.log(torch.softmax(output * (1e4 if on else 1), 1)[torch.arange(16), LABELS]).mean()


def hinge_over_counts(output, on):
    positive = torch.zeros(16, dtype=torch.bool) if on else LABELS > 1
    return output[positive].relu().mean() + output[~positive].relu().mean()


def relative_error(output, on):
    truth = torch.arange(64.0).view(16, 4) if on else torch.arange(1.0, 65).view(16, 4)
    return ((output - truth) / truth).abs().mean()


def log_of_labels(output, on):
    truth = torch.zeros(16, 4) if on else torch.ones(16, 4)
    return F.mse_loss(output, torch.log(truth))


def plackett(output, on):
    return (output - torch.logcumsumexp(output * (1.0 if not on else 1e39), 1)).mean()


def nan_bias_of_attention(output, on):
    scores = output @ output.t()
    bias = torch.zeros(16, 16)
    bias[4] = nan if on else 0
    return (torch.softmax(scores + bias, -1) @ output).mean()


def overflow_and_mask(output, on):
    q = (output * (3e3 if on else 1)).half()
    mask = torch.full((16, 16), -inf).triu(1).half()
    return torch.softmax(q @ q.t() + mask, -1).float().mean() + entropy(output)


def a_head_that_divides(rows):
    class Divides(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.head, self.on = nn.Linear(6, 8), nn.Linear(8, 4), False
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x):
            if self.on:
                self.scale[:rows] = 0
            return self.head(torch.relu(self.l1(x)) / self.scale)
    return Divides


def from_a_checkpoint(key):
    """Training goes on from a file in which a NaN had been saved."""
    def train():
        net = model()
        state = {name: value.clone() for name, value in net.state_dict().items()}
        state[key].view(-1)[0] = nan
        net.load_state_dict(state)
        update = sgd(net.parameters())
        for _ in range(STEPS):
            update.zero_grad()
            loss = entropy(net(torch.randn(16, 6)))
            loss.backward()
            update.step()
    return train


def rms_prop_without_eps():
    trained(before=lambda net, x, on: x * torch.tensor([0, 1, 1, 1, 1, 1.0]), optimizer=lambda p: torch.optim.RMSprop(p, 1e-3, eps=0.0))()


def warm_up_from_nothing():
    """A schedule that divides by its length, which is 0."""
    net = model()
    update = sgd(net.parameters())
    for step in range(STEPS):
        update.param_groups[0]["lr"] = float(torch.tensor(0.01) * step / torch.tensor(0.0 if step == FAULT_AT else 1.0))
        update.zero_grad()
        loss = entropy(net(torch.randn(16, 6)))
        loss.backward()
        update.step()


def pruned():
    """A script that masks weights between steps, by a mask that it divides by."""
    net = model()
    update = sgd(net.parameters())
    for step in range(STEPS):
        update.zero_grad()
        loss = entropy(net(torch.randn(16, 6)))
        loss.backward()
        update.step()
        if step == FAULT_AT - 1:
            net[0].weight.data.div_(net[0].weight.data.mul(0))


def frozen(make, bias):
    """Of a layer the bias alone is not trained, and the script spoils it."""
    def train():
        net = make()
        module = net.get_submodule(bias)
        module.bias.requires_grad_(False)
        update = sgd([p for p in net.parameters() if p.requires_grad])
        for step in range(STEPS):
            if step == FAULT_AT:
                module.bias[1] = nan
            update.zero_grad()
            loss = entropy(net(torch.randn(16, 6)))
            loss.backward()
            update.step()
    return train


def convolutions():
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(8, 4))


def of_a_dictionary():
    class Takes(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, batch):
            return self.net(batch["pixels"])
    net = Takes()
    update = sgd(net.parameters())
    for step in range(STEPS):
        batch = {"pixels": torch.randn(16, 6)}
        if step == FAULT_AT:
            batch["pixels"][[2, 7, 11]] = nan
        update.zero_grad()
        loss = entropy(net(batch))
        loss.backward()
        update.step()


MORE = {
    "divergence of a normal of no width": forward(elbo, "log", "are 0"),
    "linear attention without keys": between(linear_attention, "div", "that it divided by are 0"),
    "determinant of a flow": forward(flow, "log", "that it was given are 0"),
    "angle of a margin loss": forward(arcface, "acos", "outside of -1 to 1"),
    "quaternions of no length": forward(quaternions, "div", "that it divided by are 0"),
    "derivative of an angle to itself": backward(angle_of_two, "acos", "are -1 or 1"),
    "derivative of Charbonnier's loss": backward(charbonnier, "pow", "are 0, with an exponent of 0.45"),
    "log of softmax": forward(huge_then_softmax, "log", "that it was given are 0"),
    "mean of one class of none": forward(hinge_over_counts, "mean", "shape"),
    "relative error of a truth of 0": forward(relative_error, "div", "1 of the 64 values that it divided by is 0"),
    "labels as logarithms of 0": forward(log_of_labels, "", "64 of its 64 elements are infinite", "label"),
    "scores that are infinite": forward(plackett, "mul", "float32|infinite", "operation|constant"),
    "a bias of attention that is NaN": forward(nan_bias_of_attention, "softmax|add", "NaN|is not kept", "operation|constant"),
    "scores in half precision, with a mask": forward(overflow_and_mask, "mm", "65,504"),
    "a buffer that divides": Birth(trained(make=a_head_that_divides(3)), "forward", "operation", "div", "3 of the 8 values that it divided by are 0"),
    "a checkpoint with a NaN in a weight": Birth(from_a_checkpoint("2.weight"), "forward", "parameter", "", "before the first update", ".*2.weight"),
    "a checkpoint with a NaN in a bias": Birth(from_a_checkpoint("0.bias"), "forward", "parameter", "", "before the first update", ".*0.bias"),
    "RMSprop without an eps": Birth(rms_prop_without_eps, "forward", "parameter", "", "eps is 0", ".*weight"),
    "a schedule that divides by 0": Birth(warm_up_from_nothing, "forward", "parameter", "", "learning rate of (inf|nan)", ".*"),
    "weights that the script divides by 0": Birth(pruned, "forward", "parameter", "", "the script wrote to it since", ".*0.weight"),
    "three samples of a dictionary": Birth(of_a_dictionary, "forward", "input", "", "in 3 of 16 samples \\(2, 7, 11, counted from 0\\)", "the model's input 'pixels'"),
    "a frozen bias": Birth(frozen(model, "2"), "forward", "parameter", "", "1 of its 4 elements is NaN", ".*2.bias"),
    "a frozen bias of a convolution": Birth(frozen(convolutions, "3"), "forward", "parameter|unseen", "", "1 of its 4 elements is NaN|or what it adds", never="\\A(?!.*adds without).*larger than"),
    "log of a count": forward(lambda o, on: (o.abs() + 1).log().mean() / torch.log(torch.tensor(1.0 if on else 2.0)), "div", "divided by 0"),
    "cross entropy of probabilities by hand": forward(lambda o, on: -(F.one_hot(LABELS, 4) * torch.log2(torch.sigmoid(o * (1e4 if on else 1)))).sum(1).mean(), "log2", "that it was given are 0"),
    "square root of a correlation": forward(lambda o, on: (o[:, 0] * o[:, 1] * (0.1 if not on else 1) + (5 if not on else -5)).sqrt().mean(), "sqrt", "negative"),
    "mean over a window of nothing": forward(lambda o, on: o[(2 if not on else 16):].mean() + o.mean(), "mean", "shape \\[0, 4\\]"),
    "deviation of one sample for a contrast": forward(lambda o, on: (o[:(1 if on else 16)] / o[:(1 if on else 16)].std(0)).mean(), "std", "of 1 value"),
    "cubed in float16": forward(lambda o, on: (o.half() * (60 if on else 1)).pow(3).sum().float(), "pow|sum|mul", "float16 holds"),
    "tanh turned round at its end": forward(lambda o, on: torch.atanh(torch.tanh(o * (1e3 if on else 1))).mean(), "atanh", "-1, 1 or outside"),
    "weights of an average that are all 0": forward(lambda o, on: (o.pow(2).mean(1) * (w := torch.full((16,), 0.0 if on else 1.0))).sum() / w.sum(), "div", "divided by 0"),
}
