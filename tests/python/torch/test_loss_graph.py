"""What lies between the last layer and the loss: facts of the graph, and what only looks like them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.torch import loss_graph as _graph


def facts(watch, compute, model=None, steps=4, size=(16, 6)):
    """{fact: what was told of it}, of those seen at every step."""
    session, model = watch(), model or nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        compute(model(torch.randn(*size))).backward()
        optimizer.step()
    session.finish("closed")
    run = session.made[0]
    said = run.contexts.get("loss_graph", [])
    return {fact: told for fact, told in (said[-1][1] if said else {}).items()
            if all(step.scalars.get((f"context/loss_graph/{fact}", 0)) == 1 for step in run.steps)}


def classes(n=16):
    return torch.randint(0, 4, (n,))


OVER = {"softmax_over_batch": {"function": "log_softmax", "shape": [16, 4]}}
WRONG = {
    "nll": lambda out: F.nll_loss(F.log_softmax(out, 0), classes()),
    "temperature": lambda out: F.nll_loss(F.log_softmax(out / 0.5, 0), classes()),
    "term": lambda out: F.nll_loss(F.log_softmax(out, 0), classes()) + 0.1 * out.pow(2).mean(),
    "gathered": lambda out: -F.log_softmax(out, 0).gather(1, classes()[:, None]).mean(),
    "one_hot": lambda out: -(F.one_hot(classes(), 4) * F.log_softmax(out, 0)).sum(1).mean(),
}


@pytest.mark.parametrize("compute", WRONG.values(), ids=WRONG)
def test_a_softmax_over_the_batch(watch, compute):
    assert facts(watch, compute) == OVER


def test_one_without_a_logarithm(watch):
    told = {"softmax_over_batch": {"function": "softmax", "shape": [16, 4]}}
    assert facts(watch, lambda out: F.mse_loss(F.softmax(out, 0), torch.rand(16, 4))) == told
    assert facts(watch, lambda out: F.nll_loss(F.softmax(out, 0).add(1e-9).log(), classes())) == told


def test_of_pictures(watch):
    model = nn.Conv2d(3, 4, 1)
    size, target = (8, 3, 5, 5), torch.randint(0, 4, (8, 5, 5))
    assert "softmax_over_batch" in facts(watch, lambda out: F.nll_loss(F.log_softmax(out, 0), target), model, size=size)
    assert facts(watch, lambda out: F.cross_entropy(out, target), model, size=size) == {}


class Likenesses(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(6, 5), nn.Linear(6, 5)

    def forward(self, x):
        return self.one(x) @ self.other(x + 0.1).T


class Bag(nn.Module):
    """Attention over the instances of a bag, then a layer; without one where `bare`."""

    def __init__(self, bare=False, heads=4):
        super().__init__()
        self.score, self.head, self.bare = nn.Linear(6, heads), nn.Linear(6, 1), bare

    def forward(self, x):
        if self.bare:
            return (F.softmax(self.score(x), 0) * x[:, :4]).sum(0)
        return self.head(F.softmax(self.score(x), 0).T @ x)


class TwoStreams(nn.Module):
    """Classes of a region, and regions of a class."""

    def __init__(self):
        super().__init__()
        self.what, self.where = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        return (F.softmax(self.what(x), 1) * F.softmax(self.where(x), 0)).sum(0).clamp(0, 1)


RIGHT = {
    "classes": (None, lambda out: F.cross_entropy(out, classes())),
    "twice": (None, lambda out: F.cross_entropy(F.log_softmax(out, 1), classes())),
    "last_axis": (None, lambda out: F.nll_loss(F.log_softmax(out, -1), classes())),
    "contrast": (Likenesses(), lambda out: F.cross_entropy(out, torch.arange(16)) + F.cross_entropy(out.T, torch.arange(16))),
    "contrast_over_0": (Likenesses(), lambda out: -(torch.eye(16) * F.log_softmax(out, 0)).sum() / 16),
    "ranking": (nn.Linear(6, 1), lambda out: -(torch.rand(16, 1) * F.log_softmax(out, 0)).sum()),
    "bag": (Bag(), lambda out: F.mse_loss(out, torch.rand(4, 1))),
    "bag_without_a_head": (Bag(bare=True), lambda out: F.mse_loss(out, torch.rand(4))),
    "two_streams": (TwoStreams(), lambda out: F.binary_cross_entropy(out, torch.ones(4))),
    "unbatched": (None, lambda out: F.cross_entropy(out[0], torch.tensor(2))),
    "no_softmax": (None, lambda out: out.pow(2).mean()),
}


@pytest.mark.parametrize("model, compute", RIGHT.values(), ids=RIGHT)
def test_what_only_looks_like_it(watch, model, compute):
    assert facts(watch, compute, model) == {}


def test_attention_over_words_is_none(watch):
    model = nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), nn.Linear(6, 4))
    assert facts(watch, lambda out: F.cross_entropy(out.flatten(0, 1), classes(48)), model, size=(16, 3, 6)) == {}


def test_a_softmax_of_one_number(watch):
    one = nn.Linear(6, 1)
    assert facts(watch, lambda out: F.cross_entropy(out, torch.zeros(16, dtype=torch.long)), one) == {
        "softmax_of_one": {"function": "log_softmax", "shape": [16, 1]}}
    assert facts(watch, lambda out: F.binary_cross_entropy(F.softmax(out, 1), torch.ones(16, 1)), one) == {
        "softmax_of_one": {"function": "softmax", "shape": [16, 1]}}
    assert facts(watch, lambda out: F.binary_cross_entropy(out.sigmoid(), torch.ones(16, 1)), one) == {}


def teacher(log=False):
    p = torch.rand(16, 4).softmax(1)
    return p.log() if log else p


DIVERGENCES = {
    "softmax": (lambda out: F.kl_div(out.softmax(1), teacher()), {"function": "kl_div", "given": "softmax"}),
    "logits": (lambda out: F.kl_div(out * 3, teacher()), {"function": "kl_div", "given": "numbers above 0"}),
    "targets": (lambda out: F.kl_div(out.log_softmax(1), teacher(), log_target=True),
                {"function": "kl_div", "given": "targets above 0 with log_target"}),
    "right": (lambda out: F.kl_div(out.log_softmax(1), teacher(), reduction="batchmean"), None),
    "right_log": (lambda out: F.kl_div(out.log_softmax(1), teacher(True), log_target=True), None),
}


@pytest.mark.parametrize("compute, told", DIVERGENCES.values(), ids=DIVERGENCES)
@pytest.mark.filterwarnings("ignore:reduction")
def test_divergences_of_what_is_no_logarithm(watch, compute, told):
    assert facts(watch, compute) == ({} if told is None else {"not_logits": told})


def test_logits_that_are_cut_off(watch):
    for cut, word in ((torch.relu, "ReLU"), (torch.sigmoid, "sigmoid"), (torch.tanh, "tanh"), (F.softplus, "softplus")):
        told = {"function": "cross_entropy", "given": word}
        assert facts(watch, lambda out, cut=cut: F.cross_entropy(cut(out), classes())) == {"not_logits": told}
    ones = torch.ones(16, 4)
    assert "not_logits" in facts(watch, lambda out: F.binary_cross_entropy_with_logits(out.relu(), ones))
    assert facts(watch, lambda out: F.binary_cross_entropy_with_logits(out.tanh(), ones)) == {}
    assert facts(watch, lambda out: F.cross_entropy(10 * out.tanh(), classes())) == {}, "a cap is no cut"
    # As SqueezeNet's last layers: what a ReLU gave is averaged.
    squeezed = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert facts(watch, lambda out: F.cross_entropy(out, classes()), squeezed, size=(16, 3, 5, 5)) == {}


def test_targets_that_the_last_function_cannot_give(watch):
    target = torch.linspace(-3, 3, 64).reshape(16, 4)
    told = facts(watch, lambda out: F.mse_loss(out.tanh(), target))["out_of_reach"]
    assert (told["function"], told["least"], told["most"]) == ("tanh", -3, 3) and told["share"] == pytest.approx(0.6, abs=0.05)
    assert facts(watch, lambda out: F.l1_loss(out.relu(), target))["out_of_reach"]["function"] == "ReLU"
    assert facts(watch, lambda out: F.smooth_l1_loss(out.sigmoid().view(-1), target.view(-1)))["out_of_reach"]["share"] > 0.5
    assert facts(watch, lambda out: F.mse_loss(out, target)) == {}
    assert facts(watch, lambda out: F.mse_loss(out.tanh(), target / 3)) == {}
    assert facts(watch, lambda out: F.mse_loss(out.relu(), target.abs())) == {}
    assert facts(watch, lambda out: F.mse_loss(out.sigmoid(), (target / 6 + 0.5) * 1.05)) == {}, "noise at the rim"
    assert facts(watch, lambda out: F.mse_loss(3 * out.tanh(), target)) == {}, "which is scaled"


def constants(watch, compute):
    session, model = watch(), nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        compute(model, model(torch.randn(16, 6))).backward()
        optimizer.step()
    session.finish("closed")
    return [step.scalars.get(("context/loss_graph/constant", 0)) for step in session.made[0].steps]


def test_a_part_of_the_loss_that_is_a_number(watch):
    def cross(out):
        return F.cross_entropy(out, classes())

    assert constants(watch, lambda model, out: cross(out) + 0.25) == pytest.approx([0.25] * 3, abs=1e-6)
    assert constants(watch, lambda model, out: cross(out) + 2 * torch.tensor(1.5) + F.mse_loss(out, torch.rand(16, 4))
                     ) == pytest.approx([3] * 3, abs=1e-6)
    smooth = constants(watch, lambda model, out: F.cross_entropy(out, classes(), label_smoothing=0.1) + 0.25)
    assert smooth == pytest.approx([0.25] * 3, abs=1e-6), "itself a sum"
    detached = constants(watch, lambda model, out: cross(out) + F.mse_loss(out.detach(), torch.rand(16, 4)))
    assert all(value > 0 for value in detached)
    penalty = constants(watch, lambda model, out: cross(out) + model.weight.norm().item())
    assert all(value > 0 for value in penalty)


def test_what_has_a_gradient_is_none(watch):
    def cross(out):
        return F.cross_entropy(out, classes())

    for compute in (lambda model, out: cross(out), lambda model, out: cross(out) + model.weight.norm(),
                    lambda model, out: cross(out) / 4 + 1, lambda model, out: (cross(out) - 0.1).abs() + 0.1,
                    lambda model, out: out.pow(2).mean() + 1):
        assert constants(watch, compute) == [None] * 3
    assert constants(watch, lambda model, out: sum([cross(out), cross(out)])) == pytest.approx([0] * 3, abs=1e-6)


def test_only_the_first_steps_are_looked_at_and_a_checkpoint_computes_nothing_again(watch, monkeypatch):
    monkeypatch.setattr(_graph, "LOOKS", 2)
    session, model, computed = watch(), nn.Linear(6, 4), []

    def over_batch(x):
        computed.append(1)
        return F.log_softmax(model(x), 0)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        x = torch.randn(16, 6)
        F.nll_loss(torch.utils.checkpoint.checkpoint(over_batch, x, use_reentrant=False), classes()).backward()
        optimizer.step()
    session.finish("closed")
    assert len(computed) == 10, "forward, and once more in each backward"
    assert sum("context/loss_graph/softmax_over_batch" in {n for n, _ in step.scalars} for step in session.made[0].steps) <= 2


def test_what_is_watched_trains_as_it_does_alone(watch):
    def train():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.95), nn.Linear(8, 4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(15):
            optimizer.zero_grad()
            F.kl_div(model(torch.randn(16, 6)).softmax(1), teacher(), reduction="batchmean").backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    alone = train()
    session = watch()
    watched = train()
    session.finish("closed")
    assert all(torch.equal(a, b) for a, b in zip(alone, watched))
