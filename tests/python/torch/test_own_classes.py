"""Cross entropies that a script computes by itself: what is recognised in their graphs, and what only looks like them."""

import pytest
import torch
import torch.nn.functional as F
from own_loss_training import looks, own, rows_of, trained
from torch import nn


def classes(y):
    return (y > 2).long() + (y > 4).long()


def right(y):
    return F.one_hot(classes(y), 3).float()


def softmax(z):
    e = torch.exp(z)
    return e / e.sum(1, keepdim=True)


def each(y):
    return range(len(y))


OF_LOGITS = {
    "two indices": lambda z, y: -torch.log_softmax(z, 1)[each(y), classes(y)].mean(),
    "two tensors": lambda z, y: -torch.log_softmax(z, -1)[torch.arange(len(y)), classes(y)].mean(),
    "from the end": lambda z, y: -torch.log_softmax(z, 1)[each(y), classes(y) - 3].mean(),
    "gather": lambda z, y: -F.log_softmax(z, 1).gather(1, classes(y)[:, None]).mean(),
    "gather, flat": lambda z, y: -F.log_softmax(z, dim=-1).gather(-1, classes(y).unsqueeze(1)).squeeze(1).mean(),
    "negative first": lambda z, y: (-F.log_softmax(z, 1).gather(1, classes(y)[:, None])).squeeze().mean(),
    "sum": lambda z, y: -F.log_softmax(z, 1)[each(y), classes(y)].sum() / len(y),
    "half": lambda z, y: -0.5 * F.log_softmax(z, 1)[each(y), classes(y)].mean(),
    "double": lambda z, y: -F.log_softmax(z.double(), 1)[each(y), classes(y)].mean(),
    "log of softmax": lambda z, y: -torch.log(torch.softmax(z, 1))[each(y), classes(y)].mean(),
    "log of what is picked": lambda z, y: -torch.log(torch.softmax(z, 1)[each(y), classes(y)]).mean(),
    "guarded": lambda z, y: -torch.log(torch.softmax(z, 1) + 1e-9).gather(1, classes(y)[:, None]).mean(),
    "clamped": lambda z, y: -torch.softmax(z, 1).clamp(1e-9, 1)[each(y), classes(y)].log().mean(),
    "softmax by hand": lambda z, y: -torch.log(softmax(z)[each(y), classes(y)]).mean(),
    "softmax by hand, log first": lambda z, y: -torch.log(softmax(z)).gather(1, classes(y)[:, None]).mean(),
    "rows of labels": lambda z, y: -(right(y) * F.log_softmax(z, 1)).sum(1).mean(),
    "rows of whole numbers": lambda z, y: -(F.one_hot(classes(y), 3) * F.log_softmax(z, 1)).sum() / len(y),
    "negative rows": lambda z, y: (-right(y) * torch.log(F.softmax(z, 1) + 1e-9)).sum(1).mean(),
    "the mean of all": lambda z, y: -(F.log_softmax(z, 1) * right(y)).mean(),
    "logsumexp": lambda z, y: (torch.logsumexp(z, 1) - z[each(y), classes(y)]).mean(),
    "logsumexp, gather": lambda z, y: (z.logsumexp(-1, keepdim=True) - z.gather(1, classes(y)[:, None])).mean(),
}
SEEN = ("context/targets", "context/predictions", "context/labels")


def seen(run):
    return [{name[len("context/"):]: value for (name, _), value in step.scalars.items() if name.startswith(SEEN)} for step in run.steps]


@pytest.mark.parametrize("loss", OF_LOGITS.values(), ids=OF_LOGITS)
@pytest.mark.parametrize("rows", [16, 100])
def test_the_same_is_told_as_of_torchs_function(watch, loss, rows):
    def train(loss):
        torch.manual_seed(1)
        return trained(watch, loss, nn.Linear(6, 3), rows=rows)
    mine, theirs = train(loss), train(lambda z, y: F.cross_entropy(z, classes(y)))
    assert own(mine) == ["cross_entropy"] * 4 and own(theirs) == [None] * 4
    assert mine.contexts["predictions"][-1][1] == {"function": "cross_entropy", "single": False, "own": True}
    one, other = seen(mine)[0], seen(theirs)[0]
    assert len(other) == 11 and one == pytest.approx(other, rel=1e-4, abs=1e-5)
    assert all(step.scalars["context/loss_input/wrong", 0] == 0 for step in mine.steps)
    assert mine.contexts["loss_input"][0][1] == {"function": "cross_entropy", "shape": [3]}
    assert "loss_graph" not in mine.contexts


def test_of_words(watch):
    """[texts, words, vocabulary]"""
    def train(loss):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 20), nn.Unflatten(1, (5, 4)))
        return seen(trained(watch, loss, model, steps=1))[0]

    def words(y):
        return (y[:, None] + torch.arange(5)).abs().long() % 4
    mine = train(lambda z, y: -F.log_softmax(z, -1).gather(-1, words(y)[..., None]).squeeze(-1).mean())
    theirs = train(lambda z, y: F.cross_entropy(z.reshape(-1, 4), words(y).reshape(-1)))
    assert len(theirs) == 11 and mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


class Probabilities(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.layer, self.last = nn.Linear(6, 3), last

    def forward(self, x):
        return self.last(self.layer(x))


@pytest.mark.parametrize("last", [nn.Softmax(1), softmax, lambda z: torch.softmax(z, 1) * 1.0], ids=["softmax", "by hand", "of a model"])
def test_of_a_model_that_gives_probabilities(watch, last):
    found = []
    for loss in (lambda p, y: -p[each(y), classes(y)].log().mean(), lambda p, y: F.nll_loss(p.log(), classes(y))):
        torch.manual_seed(1)
        found.append(trained(watch, loss, Probabilities(last)))
    assert own(found[0]) == ["cross_entropy"] * 4
    assert looks(found[0])[0] == pytest.approx(looks(found[1])[0], rel=1e-4, abs=1e-5)


def binary(y):
    return (y > 3).float()


OF_TWO = {
    "plain": lambda p, t: -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean(),
    "torch.mean": lambda p, t: -torch.mean(t * p.log() + (1.0 - t) * (1.0 - p).log()),
    "negative terms": lambda p, t: (-t * torch.log(p) - (1 - t) * torch.log(1 - p)).mean(),
    "negatives of terms": lambda p, t: (-(t * torch.log(p)) - (1 - t) * torch.log(1 - p)).sum() / len(t),
    "guarded": lambda p, t: -(t * torch.log(p + 1e-9) + (1 - t) * torch.log(1 - p + 1e-9)).mean(),
    "clamped": lambda p, t: (lambda p: -(t * p.log() + (1 - t) * (1 - p).log()).mean())(p.clamp(1e-7, 1 - 1e-7)),
    "the other first": lambda p, t: -((1 - p).log() * (1 - t) + p.log() * t).mean(),
    "a tensor of ones": lambda p, t: -(t * torch.log(p) + (1 - t) * torch.log(torch.ones(len(t)) - p)).mean(),
}


@pytest.mark.parametrize("loss", OF_TWO.values(), ids=OF_TWO)
@pytest.mark.parametrize("rows", [16, 300])
def test_two_classes(watch, loss, rows):
    found = []
    for one in (loss, lambda p, t: F.binary_cross_entropy(p, t)):
        torch.manual_seed(1)
        found.append(trained(watch, lambda z, y: one(torch.sigmoid(z)[:, 0], binary(y)), rows=rows))
    mine, theirs = found
    assert own(mine) == ["binary_cross_entropy"] * 4 and own(theirs) == [None] * 4
    told = {"function": "binary_cross_entropy", "single": True}
    assert mine.contexts["predictions"][-1][1] == {**told, "own": True} and theirs.contexts["predictions"][-1][1] == told
    assert len(looks(theirs)[0]) == 9 and looks(mine)[0] == pytest.approx(looks(theirs)[0], rel=1e-4, abs=1e-5)
    if rows == 16:
        assert seen(mine)[0] == pytest.approx(seen(theirs)[0], rel=1e-4, abs=1e-5)


def test_two_classes_by_logsigmoid(watch):
    def loss(z, y):
        z, t = z[:, 0], binary(y)
        return -(t * F.logsigmoid(z) + (1 - t) * F.logsigmoid(-z)).mean()
    found = []
    for one in (loss, lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], binary(y))):
        torch.manual_seed(1)
        found.append(trained(watch, one))
    assert own(found[0]) == ["binary_cross_entropy"] * 4
    assert looks(found[0])[0] == pytest.approx(looks(found[1])[0], rel=1e-4, abs=1e-5)


TWICE = {
    "softmax": (nn.Softmax(1), "softmax"), "a ReLU": (nn.ReLU(), "ReLU"), "a sigmoid": (nn.Sigmoid(), "sigmoid"),
}


@pytest.mark.parametrize("last, word", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("loss", [OF_LOGITS["two indices"], OF_LOGITS["log of softmax"], OF_LOGITS["logsumexp"],
                                  lambda z, y: -F.log_softmax(z.movedim(1, -1), -1)[each(y), classes(y)].mean()],
                         ids=["log", "two", "sum", "moved"])
def test_what_a_softmax_is_taken_of(watch, last, word, loss):
    run = trained(watch, loss, Probabilities(last))
    assert run.contexts["loss_graph"][-1][1] == {"not_logits": {"function": "softmax", "given": word}}


def advantage(y):
    return y - y.mean()


def teacher(y):
    return torch.softmax(torch.stack([y, y.cos(), -y], 1) / 9, 1)


NOT = {
    "a policy": lambda z, y: -(F.log_softmax(z, 1)[each(y), classes(y)] * advantage(y)).mean(),
    "a policy, gathered": lambda z, y: -(F.log_softmax(z, 1).gather(1, classes(y)[:, None])[:, 0] * advantage(y)).mean(),
    "a policy, by rows": lambda z, y: -(right(y) * advantage(y)[:, None] * F.log_softmax(z, 1)).sum(1).mean(),
    "a policy of two actions": lambda z, y: -((binary(y) * F.logsigmoid(z[:, 0]) + (1 - binary(y)) * F.logsigmoid(-z[:, 0])) * y).mean(),
    "what grows": lambda z, y: F.log_softmax(z, 1)[each(y), classes(y)].mean(),
    "what grows, of two": lambda z, y: (binary(y) * F.logsigmoid(z[:, 0]) + (1 - binary(y)) * F.logsigmoid(-z[:, 0])).mean(),
    "what grows, by rows": lambda z, y: (right(y) * F.log_softmax(z, 1)).sum(1).mean(),
    "with an entropy": lambda z, y: -F.log_softmax(z, 1)[each(y), classes(y)].mean() + 0.01 * (z.softmax(1) * z.log_softmax(1)).sum(1).mean(),
    "an entropy": lambda z, y: -(z.softmax(1) * z.log_softmax(1)).sum(1).mean(),
    "masked": lambda z, y: -(F.log_softmax(z, 1)[each(y), classes(y)] * (y > 2)).sum() / 9,
    "some rows": lambda z, y: -F.log_softmax(z, 1)[each(y), classes(y)][y > 2].mean(),
    "other rows": lambda z, y: -F.log_softmax(z, 1)[torch.arange(len(y) - 1, -1, -1), classes(y)].mean(),
    "a column": lambda z, y: -F.log_softmax(z, 1)[:, 0].mean(),
    "over the batch": lambda z, y: -F.log_softmax(z, 0)[each(y), classes(y)].mean(),
    "weights": lambda z, y: -(torch.rand(len(y), 3) * F.log_softmax(z, 1)).sum(1).mean(),
    "a teacher": lambda z, y: -(teacher(y) * F.log_softmax(z, 1)).sum(1).mean(),
    "a divergence": lambda z, y: (teacher(y) * (teacher(y).log() - F.log_softmax(z, 1))).sum(1).mean(),
    "no logarithm": lambda z, y: -torch.softmax(z, 1)[each(y), classes(y)].mean(),
    "no probabilities": lambda z, y: -torch.log(torch.sigmoid(z))[each(y), classes(y)].mean(),
    "focal": lambda z, y: -((1 - z.softmax(1)[each(y), classes(y)]) ** 2 * F.log_softmax(z, 1)[each(y), classes(y)]).mean(),
    "weights of two classes": lambda z, y: -(3 * binary(y) * F.logsigmoid(z[:, 0]) + (1 - binary(y)) * F.logsigmoid(-z[:, 0])).mean(),
    "one sign wrong": lambda z, y: -(binary(y) * F.logsigmoid(z[:, 0]) - (1 - binary(y)) * F.logsigmoid(-z[:, 0])).mean(),
    "of two outputs": lambda z, y: -(binary(y) * F.logsigmoid(z[:, 0]) + (1 - binary(y)) * F.logsigmoid(-z[:, 1])).mean(),
    "a judge": lambda z, y: -F.logsigmoid(z[:, 0]).mean() - F.logsigmoid(-z[:, 1]).mean(),
    "pairs": lambda z, y: -F.logsigmoid(z[:, 0] - z[:, 1]).mean(),
}


@pytest.mark.parametrize("loss", NOT.values(), ids=NOT)
def test_what_is_no_cross_entropy(watch, loss):
    run = trained(watch, loss, nn.Linear(6, 3))
    assert own(run) == [None] * 4 and seen(run) == [{}] * 4
    assert not any(name == "context/own_loss" for step in run.steps for name, _ in step.scalars)


def test_labels_that_are_smoothed(watch):
    run = trained(watch, lambda z, y: -((0.9 * right(y) + 0.1 / 3) * F.log_softmax(z, 1)).sum(1).mean(), nn.Linear(6, 3))
    assert own(run) == ["cross_entropy"] * 4 and all("targets/guess" in look for look in looks(run))


def test_hooks_are_left_alone(watch):
    """What is a product of is not known then."""
    unpacked = []

    def kept(loss):
        def within(z, y):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: (unpacked.append(1), tensor)[1]):
                return loss(z, y)
        before = []
        run = trained(watch, within, nn.Linear(6, 3), between=lambda: before.append(len(unpacked)), steps=1)
        assert before == [len(before) - 1] and looks(run) == [{}]
        unpacked.clear()
    for loss in (*OF_LOGITS.values(), lambda z, y: OF_TWO["plain"](torch.sigmoid(z[:, 0]), binary(y))):
        kept(loss)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("loss", ["two indices", "log of softmax", "rows of labels", "logsumexp"])
def test_kinds_of_numbers(watch, dtype, loss):
    found = []
    for one in (OF_LOGITS[loss], lambda z, y: F.cross_entropy(z, classes(y))):
        torch.manual_seed(1)
        found.append(trained(watch, one, nn.Linear(6, 3).to(dtype), batch=lambda rows, seed: [t.to(dtype) for t in rows_of(rows, seed)]))
    assert own(found[0]) == ["cross_entropy"] * 4
    near = max(1e-6, 16 * torch.finfo(dtype).eps)
    assert looks(found[0])[0] == pytest.approx(looks(found[1])[0], rel=near, abs=near)


@pytest.mark.parametrize("loss", [*OF_LOGITS.values(), lambda z, y: OF_TWO["guarded"](torch.sigmoid(z[:, 0]), binary(y))],
                         ids=[*OF_LOGITS, "of two"])
def test_the_training_is_the_same_to_the_bit(watch, loss):
    def trains():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for n in range(12):
            x, y = rows_of(40, n)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()]), torch.rand(3)
    bare = trains()
    session = watch()
    assert all(map(torch.equal, bare, trains()))
    session.finish("closed")
    assert None not in own(session.made[0])
