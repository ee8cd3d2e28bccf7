"""Losses that a script computes by itself: what is recognised in their graphs, and what only looks like them."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from own_loss_training import looks, own, rows_of, trained
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch import own_losses as _own
from tdbg.adaptors.torch import own_predictions as _predictions


# Pairs ------------------------------------------------------------------------------------------------------


def pairs(run):
    """What was told, if each step has it."""
    said = run.contexts.get("loss_graph", [])
    every = all(step.scalars.get(("context/loss_graph/pairs", 0)) == 1 for step in run.steps)
    return said[-1][1].get("pairs") if said and every else None


BROADCAST = {
    "square": lambda out, y: ((out - y) ** 2).mean(),
    "pow": lambda out, y: (out - y).pow(2).mean(),
    "pow of a float": lambda out, y: (out - y).pow(2.0).mean(),
    "square()": lambda out, y: (out - y).square().mean(),
    "torch.mean": lambda out, y: torch.mean((y - out) ** 2),
    "product": lambda out, y: ((out - y) * (out - y)).mean(),
    "twice the same": lambda out, y: (lambda apart: (apart * apart).mean())(y - out),
    "absolute": lambda out, y: (out - y).abs().mean(),
    "sum": lambda out, y: ((out - y) ** 2).sum() / len(y),
    "rows, then their mean": lambda out, y: ((out - y) ** 2).mean(1).mean(0),
    "half": lambda out, y: 0.5 * ((out - y) ** 2).mean(),
    "half, element by element": lambda out, y: (0.5 * (out - y) ** 2).mean(),
    "root": lambda out, y: ((out - y) ** 2).mean().sqrt(),
    "double": lambda out, y: ((out - y.double()) ** 2).mean(),
    "in another type": lambda out, y: (out - y).double().pow(2).mean(),
    "flat": lambda out, y: (out - y).reshape(-1).pow(2).mean(),
    "penalised": lambda out, y: ((out - y) ** 2).mean() + 1e-3 * out.abs().mean(),
    "one of three": lambda out, y: out.sin().mean() + 0.5 * (y - out).pow(2).mean() - 0.01 * out.cos().mean(),
    "behind a function": lambda out, y: ((out.tanh() * 5 - y) ** 2).mean(),
    "behind a view": lambda out, y: ((out.view(-1, 1) - y) ** 2).mean(),
    "a part": lambda out, y: ((out[:, :1] - y) ** 2).mean(),
}


@pytest.mark.parametrize("loss", BROADCAST.values(), ids=BROADCAST)
def test_predictions_of_one_column_and_flat_targets(watch, loss):
    assert pairs(trained(watch, loss)) == {"input": [16, 1], "result": [16, 16]}


@pytest.mark.parametrize("target, result", [((16, 1), [16, 16]), ((16, 1, 1), [16, 1, 16])])
def test_flat_predictions_and_targets_of_one_column(watch, target, result):
    model = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    told = pairs(trained(watch, lambda out, y: ((out - y.reshape(target)) ** 2).mean(), model))
    assert told == {"input": [16], "result": result}


def test_columns_that_are_compared_with_another_rows(watch):
    """Forecasts of several moments: [rows, moments] with [rows, 1, moments]."""
    def loss(out, y):
        return ((out - torch.stack([y, y.cos(), -y], 1)[:, None]) ** 2).mean()
    assert pairs(trained(watch, loss, nn.Linear(6, 3))) == {"input": [16, 3], "result": [16, 16, 3]}


class Votes(nn.Module):
    """A number for each person."""

    def __init__(self):
        super().__init__()
        self.of_person = nn.Parameter(torch.randn(16, 1))
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.of_person


@pytest.mark.parametrize("of", [lambda out: out.sum(), lambda out: out.mean(), lambda out: (2 * out.cos()).sum()])
def test_one_number_for_the_whole_batch(watch, of):
    told = pairs(trained(watch, lambda out, y: ((of(out) - y) ** 2).mean(), nn.Linear(6, 3)))
    assert told == {"input": [], "result": [16]}


RIGHT = {
    "one number for other targets": lambda out, y: ((out.sum() - torch.linspace(0, 1, 5)) ** 2).mean(),
    "one number for a number": lambda out, y: ((out.sum() - y.sum()) ** 2).mean(),
    "of the columns of one row": lambda out, y: ((out[0].sum() - y) ** 2).mean(),
    "one shape": lambda out, y: ((out - y[:, None]) ** 2).mean(),
    "squeezed": lambda out, y: ((out.squeeze(1) - y) ** 2).mean(),
    "a number": lambda out, y: ((out - 1.5) ** 2).mean(),
    "a tensor of one number": lambda out, y: ((out - y.mean()) ** 2).mean(),
    "votes": lambda out, y: ((out - torch.randn(16, 16)) ** 2).mean(),
    "votes about the same": lambda out, y: ((out - (y[:, None] + 0.3 * torch.randn(16, 16))) ** 2).mean(),
    "other axes": lambda out, y: ((out - torch.linspace(0, 1, 5)) ** 2).mean(),
    "pairs on purpose": lambda out, y: ((out[:, 0][:, None] - y[None]) ** 2).mean(),
    "pairs on purpose, by a view": lambda out, y: ((out[:, 0].view(-1, 1) - y.view(1, -1)) ** 2).mean(),
    "among its own": lambda out, y: ((out - out.T) ** 2).mean(),
    "an energy distance": lambda out, y: 2 * (out - y).abs().mean() - (out - out.T).abs().mean(),
    "weighted pairs": lambda out, y: (torch.softmax(-(y - y[:, None]) ** 2, 1) * (out - y) ** 2).mean(),
    "the nearest": lambda out, y: ((out - y) ** 2).min(1).values.mean(),
    "two differences": lambda out, y: ((out - y) * (out - y.cos())).mean(),
    "a product": lambda out, y: ((out * y) ** 2).mean(),
    "no square": lambda out, y: (out - y).pow(4).mean(),
    "all targets alike": lambda out, y: ((out - torch.ones(16)) ** 2).mean(),
    "two rows": lambda out, y: ((out[:2] - y[:2]) ** 2).mean(),
}


@pytest.mark.parametrize("loss", RIGHT.values(), ids=RIGHT)
def test_what_is_no_broadcast(watch, loss):
    assert pairs(trained(watch, loss)) is None


def test_a_parameter_against_data_is_none(watch):
    assert pairs(trained(watch, lambda out, y: ((out - y) ** 2).mean(), Votes())) is None


def test_what_a_hook_keeps_is_left_alone(watch):
    """A checkpoint's would compute it again, an offloading one's would bring it back."""
    unpacked = []

    def unpack(tensor):
        unpacked.append(tensor.shape)
        return tensor

    def loss(out, y):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            return ((out - y) ** 2).mean()
    seen = []
    run = trained(watch, loss, between=lambda: seen.append(len(unpacked)))
    assert pairs(run) is None and seen == [0, 1, 2, 3], "once each, by backward"
    assert len(unpacked) == 4


def test_a_checkpoint_is_computed_again_once(watch):
    calls = []

    def inside(out, y):
        calls.append(1)
        return ((out - y) ** 2).mean()
    assert pairs(trained(watch, lambda out, y: checkpoint(inside, out, y, use_reentrant=False))) is None
    assert len(calls) == 8


def test_what_was_changed_in_place_since_fails_as_it_would_without(watch, capsys):
    kept = []

    def loss(out, y):
        kept.append(out - y)
        return (kept[-1] ** 2).mean()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trained(watch, loss, between=lambda: kept[-1].detach().add_(1), strict=False)
    assert capsys.readouterr().err == ""


def test_a_graph_that_is_gone_through_twice(watch):
    session = watch()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = rows_of(16, step)
        loss = ((model(x) - y) ** 2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish("closed")
    assert pairs(session.made[0]) is not None


def test_gradients_of_gradients(watch):
    session = watch()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = rows_of(16, step)
        loss = ((model(x.requires_grad_()) - y) ** 2).mean()
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.pow(2).sum()).backward(create_graph=True)
        optimizer.step()
        optimizer.zero_grad()
    session.finish("closed")
    assert pairs(session.made[0]) is not None


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16, torch.float16, torch.float64])
def test_kinds_of_numbers(watch, dtype):
    run = trained(watch, lambda out, y: ((out - y) ** 2).mean().abs(), nn.Linear(6, 1).to(dtype),
                  batch=lambda rows, seed: [t.to(dtype) for t in rows_of(rows, seed)])
    assert len(run.steps) == 4
    if dtype is torch.float64:
        assert pairs(run) is None, "an absolute value lies between"


def test_the_word_of_a_device_comes_late(watch, monkeypatch):
    """As a tensor, without waiting for it."""
    told = []

    def on_a_device(found):
        told.append(_own.are_pairs(found))
        return told[-1].to("meta")
    monkeypatch.setattr("tdbg.adaptors.torch.loss_graph.are_pairs", on_a_device)
    run = trained(watch, lambda out, y: ((out - y) ** 2).mean())
    assert [t.item() for t in told] == [1] * 4 and "pairs" in run.contexts["loss_graph"][-1][1]


# Predictions and targets ------------------------------------------------------------------------------------


SQUARED = {name: loss for name, loss in BROADCAST.items() if name not in ("absolute", "penalised", "one of three", "behind a function")}
SAME = {
    "mse_loss": SQUARED | {
        "sum of columns": lambda out, y: ((out - y) ** 2).sum(1).mean() if out.dim() > 1 else ((out - y) ** 2).sum(),
    },
    "l1_loss": {"absolute": lambda out, y: (out - y).abs().mean(), "torch.abs": lambda out, y: torch.abs(y - out).sum()},
}
CASES = [pytest.param(function, loss, columns, id=f"{name}, {columns}")
         for function, losses in SAME.items() for name, loss in losses.items() for columns in (1, 3)
         if columns == 1 or name not in ("behind a view", "a part")]


@pytest.mark.parametrize("function, loss, columns", CASES)
def test_the_same_is_told_as_of_torchs_function(watch, function, loss, columns):
    def targets(y):
        return torch.stack([y * (n + 1) for n in range(columns)], 1)

    def train(loss):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, columns))
        return trained(watch, loss, model, rows=40)
    mine, theirs = train(lambda out, y: loss(out, targets(y))), train(lambda out, y: getattr(F, function)(out, targets(y)))
    assert own(mine) == [function] * 4 and own(theirs) == [None] * 4
    told = {"function": function, "single": columns == 1}
    assert mine.contexts["predictions"][-1][1] == {**told, "own": True} and theirs.contexts["predictions"][-1][1] == told
    # The first step: later ones have been moved by another factor.
    one, other = looks(mine)[0], looks(theirs)[0]
    assert len(other) == 9 and one == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert "backward_loss" in {name for name, _, _ in mine.steps[0].values}


@pytest.mark.parametrize("shape", [(300,), (300, 20), (9, 3, 40, 30), (2, 1, 50), (1, 60, 4)])
def test_the_same_rows_are_looked_at_of_all_shapes(watch, shape):
    rows, rest = shape[0], shape[1:]
    count = int(torch.tensor(rest).prod()) if rest else 1
    y = 2 + torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def train(loss):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, count), nn.Unflatten(1, rest)) if rest else nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
        return looks(trained(watch, lambda out, _: loss(out), model, rows=rows, steps=1))
    (mine,), (theirs,) = train(lambda out: ((out - y) ** 2).mean()), train(lambda out: F.mse_loss(out, y))
    assert len(theirs) == 9 and mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)


PICKS = {
    "a column": lambda out, y: ((out[:, 1] - y) ** 2).mean(),
    "the last column": lambda out, y: ((out[:, -1] - y) ** 2).mean(),
    "each row's own": lambda out, y: ((out.gather(1, (y > 3).long()[:, None]) - y[:, None]) ** 2).mean(),
    "each row's own, by two indices": lambda out, y: ((out[torch.arange(len(y)), (y > 3).long()] - y) ** 2).mean(),
    "each row's own, by a range": lambda out, y: ((out[range(len(y)), (y > 3).long()] - y) ** 2).mean(),
    "each row's own, from the end": lambda out, y: ((out[range(len(y)), (y > 3).long() - 3] - y) ** 2).mean(),
    "each row's own, flat": lambda out, y: (y - out.gather(1, (y > 3).long()[:, None]).squeeze(1)).pow(2).mean(),
}


@pytest.mark.parametrize("loss", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("rows", [16, 300])
def test_what_is_picked_of_what_a_model_gave(watch, loss, rows):
    def by_torch(out, y):
        which = (y > 3).long()[:, None] if loss in list(PICKS.values())[2:] else torch.full((rows, 1), 1 if loss is PICKS["a column"] else 2)
        return F.mse_loss(out.gather(1, which)[:, 0], y)
    found = []
    for one in (loss, by_torch):
        torch.manual_seed(1)
        found += looks(trained(watch, one, nn.Linear(6, 3), rows=rows, steps=1))
    assert len(found[1]) == 9 and found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-6)


class Two(nn.Module):
    """A value beside what it is of, as a model returns it with its features."""

    def __init__(self):
        super().__init__()
        self.layer, self.value = nn.Linear(6, 3), nn.Linear(3, 1)

    def forward(self, x):
        features = self.layer(x)
        return {"features": features, "value": (self.value(features).squeeze(1),)}


def test_rows_in_another_order_are_not_what_a_model_gave(watch):
    run = trained(watch, lambda out, y: ((out[torch.arange(15, -1, -1), (y > 3).long()] - y) ** 2).mean(), nn.Linear(6, 3))
    assert own(run) == ["mse_loss"] * 4 and looks(run) == [{}] * 4


def test_one_of_what_a_model_returns(watch):
    run = trained(watch, lambda out, y: ((out["value"][0] - y) ** 2).mean(), Two())
    assert own(run) == ["mse_loss"] * 4 and all(len(look) == 9 for look in looks(run))


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return ((self.layer(x).squeeze(1) - x[:, 0]) ** 2).mean()


def test_a_loss_that_the_model_returns_is_one_without_predictions(watch):
    run = trained(watch, lambda loss, y: loss, WithLoss())
    assert own(run) == ["mse_loss"] * 4 and looks(run) == [{}] * 4


def test_what_a_sigmoid_gave_is_in_the_graph(watch):
    """So are targets that it cannot give."""
    class Net(WithLoss):
        def forward(self, x):
            return ((torch.sigmoid(self.layer(x)).squeeze(1) - 5 * x[:, 0]) ** 2).mean()
    run = trained(watch, lambda loss, y: loss, Net())
    assert own(run) == ["mse_loss"] * 4 and all(len(look) == 9 for look in looks(run))
    assert run.contexts["loss_graph"][-1][1]["out_of_reach"]["function"] == "sigmoid"


def test_targets_that_the_last_function_cannot_give(watch):
    model = nn.Sequential(nn.Linear(6, 1), nn.ReLU())
    wrong = trained(watch, lambda out, y: ((out[:, 0] + 0 * y - (y - 8)) ** 2).mean(), model)
    assert "loss_graph" not in wrong.contexts, "something lies between"
    wrong = trained(watch, lambda out, y: ((out[:, 0] - (y - 8)) ** 2).mean(), model)
    told = wrong.contexts["loss_graph"][-1][1]["out_of_reach"]
    assert told["function"] == "ReLU" and told["share"] > 0.5 and told["most"] < 8
    assert "loss_graph" not in trained(watch, lambda out, y: ((out[:, 0] - y.abs()) ** 2).mean(), model).contexts


NOT = {
    "a norm of weights": lambda out, y, model: model.weight.pow(2).mean(),
    "weights that are to stay": lambda out, y, model: ((model.weight - torch.ones(3, 6)) ** 2).mean(),
    "no difference": lambda out, y, model: out.pow(2).mean(),
    "with a penalty": lambda out, y, model: ((out[:, 0] - y) ** 2).mean() + 0.1 * model.weight.abs().sum(),
    "a judge and its rival": lambda out, y, model: ((out[:8] - 1) ** 2).mean() + (out[8:] ** 2).mean(),
    "an answer that is to be 1": lambda out, y, model: ((out - 1) ** 2).mean(),
    "an answer that is to be 1, as a tensor": lambda out, y, model: ((torch.ones(16, 3) - out) ** 2).mean(),
    "weighted": lambda out, y, model: (y[:, None].abs() * (out - y[:, None]) ** 2).mean(),
    "masked": lambda out, y, model: ((out[:, 0] - y) ** 2 * (y > 3)).sum() / (y > 3).sum(),
    "weighted by row": lambda out, y, model: (((out - y[:, None]) ** 2).mean(1) * y.abs()).mean(),
    "divided by a deviation": lambda out, y, model: (((out[:, 0] - y) / y.abs()) ** 2).mean(),
    "over it": lambda out, y, model: torch.tensor(2.0) / ((out[:, 0] - y) ** 2).mean(),
    "a norm": lambda out, y, model: (out[:, 0] - y).norm(),
    "both are trained": lambda out, y, model: ((out[:, 0] - model(torch.ones(16, 6))[:, 0]) ** 2).mean(),
    "from one to the next": lambda out, y, model: ((out[1:] - out[:-1]) ** 2).mean(),
    "a root of each row": lambda out, y, model: ((out - y[:, None]) ** 2).sum(1).sqrt().mean(),
    "to the fourth": lambda out, y, model: ((out[:, 0] - y) ** 4).mean(),
    "a tensor of powers": lambda out, y, model: ((out[:, 0] - y) ** torch.full((16,), 2.0)).mean(),
    "the largest": lambda out, y, model: ((out[:, 0] - y) ** 2).max(),
    "a policy": lambda out, y, model: -(out.log_softmax(1)[:, 0] * (y - y.mean())).mean(),
    "a surrogate": lambda out, y, model: (out[:, 0] * y).mean(),
    "a scaled difference": lambda out, y, model: (torch.sub(out[:, 0], y, alpha=2) ** 2).mean(),
}


@pytest.mark.parametrize("loss", NOT.values(), ids=NOT)
def test_what_is_no_loss_that_torch_has(watch, loss):
    model = nn.Linear(6, 3)
    run = trained(watch, lambda out, y: loss(out, y, model), model)
    assert own(run) == [None] * 4 and looks(run) == [{}] * 4
    assert not any(name == "context/own_loss" for step in run.steps for name, _ in step.scalars)


def test_what_grows_is_no_loss(watch):
    run = trained(watch, lambda out, y: -((out[:, 0] - y) ** 2).mean())
    assert own(run) == [None] * 4 and looks(run) == [{}] * 4


def test_a_factor_that_changes_is_a_part_of_the_loss(watch):
    """What an episode brought in, and no size of a batch."""
    step = iter(range(100))

    def rewarded(of):
        return trained(watch, lambda out, y: of(out[:, 0] - y, next(step)))
    assert own(rewarded(lambda d, n: (d ** 2).mean() * (1 + n))) == ["mse_loss", None, None, None]
    step = iter(range(100))
    assert own(rewarded(lambda d, n: torch.tensor(1.0 + n) * (d ** 2).mean())) == ["mse_loss", None, None, None]
    assert own(rewarded(lambda d, n: (d ** 2).mean() / 3)) == ["mse_loss"] * 4


@pytest.mark.parametrize("of", [lambda d: d.sum(), lambda d: d.sum() / len(d), lambda d: d.sum() / d.numel(), lambda d: 2 * d.mean(),
                                lambda d: d.sum(1).mean()])
def test_a_last_batch_may_be_smaller(watch, of):
    run = trained(watch, lambda out, y: of((out - torch.stack([y, -y], 1)) ** 2), nn.Linear(6, 2),
                  batch=lambda rows, seed: rows_of(5 if seed == 3 else 16, seed))
    assert own(run) == ["mse_loss"] * 4


def test_a_scaler_is_no_factor(watch):
    session, model = watch(), nn.Linear(6, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cpu", growth_interval=1)
    for step in range(4):
        x, y = rows_of(16, step)
        optimizer.zero_grad()
        loss = ((model(x)[:, 0] - y) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    session.finish("closed")
    run = session.made[0]
    assert own(run) == ["mse_loss"] * 4 and all(len(look) == 9 for look in looks(run))


def test_of_several_backwards_each_has_to_be_one(watch):
    session, model = watch(), nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = rows_of(16, step)
        optimizer.zero_grad()
        for _ in range(2):
            ((model(x)[:, 0] - y) ** 2).mean().backward()
        if step == 2:
            model.weight.abs().sum().backward()
        optimizer.step()
    session.finish("closed")
    assert own(session.made[0]) == ["mse_loss", "mse_loss", None, "mse_loss"]
    assert session.made[0].steps[2].scalars["context/own_loss", 0] == 0


def test_where_nothing_is_recognised_looks_are_fewer(watch, monkeypatch):
    asked = []
    monkeypatch.setattr("tdbg.adaptors.torch.own_looks.classes_of", lambda root: asked.append(root))
    def at(steps, loss):
        asked.clear()
        trained(watch, loss, steps=steps)
        return len(asked)
    assert at(20, lambda out, y: (out[:, 0] * y).mean()) == 20
    assert at(8 * 24, lambda out, y: (out[:, 0] * y).mean()) == 23, "of 21 looks more three"


def test_where_torch_has_the_loss_nothing_is_noted(watch, monkeypatch):
    noted = []
    monkeypatch.setattr("tdbg.adaptors.torch.own_looks.remember", lambda output, is_due: noted.append(output))
    run = trained(watch, lambda out, y: F.mse_loss(out[:, 0], y), steps=8)
    assert len(noted) == 1 and own(run) == [None] * 8


def test_targets_of_one_value_have_no_spread_and_a_batch_of_them_is_no_other_loss(watch):
    def batch(rows, seed):
        x, y = rows_of(rows, seed)
        return x, torch.full((rows,), 0.3) if seed == 2 else y
    run = trained(watch, lambda out, y: ((out[:, 0] - y) ** 2).mean(), batch=batch)
    assert own(run) == ["mse_loss"] * 4
    assert (looks(run)[2]["targets/between"], looks(run)[2]["targets/guess"]) == (0, 0)
    assert looks(run)[2]["targets/mean"] == pytest.approx(0.3)


def test_a_column_of_one_value_has_no_spread(watch):
    def loss(out, y):
        return ((out - torch.stack([y, torch.full_like(y, 0.3), -y], 1)) ** 2).mean()
    look = looks(trained(watch, loss, nn.Linear(6, 3), rows=40, steps=1))[0]
    _, y = rows_of(40, 0)
    assert look["targets/between"] == pytest.approx(2 * y.std().item() / 3, rel=1e-5)
    assert look["targets/guess"] == pytest.approx(2 * y.var().item() / 3, rel=1e-5)


@pytest.mark.parametrize("columns", [1, 3])
def test_a_device_settles_targets_as_the_host_does(columns):
    g = torch.Generator().manual_seed(1)
    predicted, target = torch.randn(40, columns, generator=g), 1e3 + torch.randn(40, columns, generator=g)
    target[:, 0] = 0.3
    apart = predicted - target
    host = _predictions._settled(predicted, predicted - apart, apart, 2e-7)
    assert (host.target[:, 0] == host.target[0, 0]).all() and (host.spread > host.rounding) == (columns > 1)
    assert torch.equal(_predictions._settled_late(predicted - apart, apart, 2e-7), host.target)


def test_the_training_is_the_same_to_the_bit_and_nothing_is_kept(watch, monkeypatch):
    alive = []

    def trains():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for n in range(30):
            x, y = rows_of(40, n)
            optimizer.zero_grad()
            out = model(x)
            loss = ((out - y[:, None]) ** 2).mean()
            loss.backward()
            alive.extend(map(weakref.ref, (out, loss, y)))
            del out, loss, x, y
            optimizer.step()
        assert not any(ref() is not None for ref in alive)
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()]), torch.rand(3)

    bare = trains()
    noted = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda self, *a, **k: (copy := clone(self, *a, **k), noted.append(weakref.ref(copy)))[0])
    for lane in (False, True):
        session = watch(force_lane=lane)
        assert all(map(torch.equal, bare, trains()))
        session.finish("closed")
        assert own(session.made[0])[:20] == ["mse_loss"] * 20
    gc.collect()
    assert noted and not any(ref() is not None and ref().shape == (40, 4) for ref in noted)


def test_a_graph_that_is_dropped_takes_the_notes_along(watch):
    watch()
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = rows_of(16, 0)
    out = model(x)
    (given,) = out.grad_fn.metadata["tdbg.gave"].values()
    note = weakref.ref(given.values)
    assert note() is not None and note().data_ptr() != out.data_ptr()
    del given, out
    assert note() is None
    ((model(x)[:, 0] - y) ** 2).mean().backward()
    optimizer.step()


def test_one_in_which_a_function_of_the_scripts_own_lies(watch):
    """torch.autograd.Function and what is compiled have a node each, of any number of results."""
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1, 2 * x

        @staticmethod
        def backward(ctx, one, other):
            return one + 2 * other

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x):
            return Twice.apply(self.layer(x))
    found = []
    for loss in (lambda out, y: ((out[1][:, 0] - y) ** 2).mean(), lambda out, y: F.mse_loss(out[1][:, 0], y)):
        torch.manual_seed(1)
        found.append(looks(trained(watch, loss, Net(), steps=1))[0])
    assert len(found[1]) == 9 and found[0] == pytest.approx(found[1], rel=1e-5)


def test_mixed_precision(watch):
    def train(loss):
        session = watch()
        torch.manual_seed(1)
        model = nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x, y = rows_of(40, 0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss(model(x)[:, 0], y).backward()
        optimizer.step()
        session.finish("closed")
        return looks(session.made[0])[0]
    mine, theirs = train(lambda out, y: ((out - y) ** 2).mean()), train(lambda out, y: F.mse_loss(out.float(), y))
    assert len(theirs) == 9 and mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_predictions_of_other_kinds_of_numbers(watch, dtype):
    def train(loss):
        torch.manual_seed(1)
        return trained(watch, lambda out, y: loss(out[:, 0], y).abs(), nn.Linear(6, 1).to(dtype), rows=40, steps=1,
                       batch=lambda rows, seed: [t.to(dtype) for t in rows_of(rows, seed)])
    mine = looks(train(lambda out, y: ((out - y) ** 2).mean()))[0]
    assert mine == {}, "an absolute value lies between"
    if dtype is torch.complex64:
        return
    torch.manual_seed(1)
    run = trained(watch, lambda out, y: ((out[:, 0] - y) ** 2).mean(), nn.Linear(6, 1).to(dtype), rows=40, steps=1,
                  batch=lambda rows, seed: [t.to(dtype) for t in rows_of(rows, seed)])
    theirs = looks(train(lambda out, y: F.mse_loss(out, y)))[0]
    near = 8 * torch.finfo(dtype).eps if dtype is not torch.float64 else 1e-9
    assert len(theirs) == 9 and looks(run)[0] == pytest.approx(theirs, rel=near, abs=near)


def test_hooks_leave_a_loss_and_no_predictions(watch):
    def loss(out, y):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            return ((out[:, 0] - y) ** 2).mean()
    run = trained(watch, loss)
    assert own(run) == ["mse_loss"] * 4 and looks(run) == [{}] * 4


def test_a_failure_gives_up_these_numbers_and_nothing_else(watch, monkeypatch):
    monkeypatch.setattr("tdbg.adaptors.torch.own_looks.differences", lambda *_: 1 / 0)
    run = trained(watch, lambda out, y: ((out[:, 0] - y) ** 2).mean(), steps=14, strict=False)
    assert len(run.steps) == 14 and looks(run) == [{}] * 14
    assert ("context/input/mean", 0) in run.steps[-1].scalars
    assert "gradient/Linear_weight" in {name for name, _, _ in run.steps[-1].values}
