"""What a model predicts against what it is compared with."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.torch import data as _data
from tdbg.adaptors.torch import predictions as _predictions
from tdbg.adaptors.torch.predictions import Options, compare, options_of


def train(watch, batches, loss, model=None, **options):
    """The series of each step that are of predictions and targets, without `context/`, and the run."""
    session = watch(**options)
    model = model or nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    session.finish("closed")
    run = session.made[0]
    return [{k[len("context/"):]: v for (k, _), v in step.scalars.items() if k.startswith(("context/targets", "context/pred"))}
            for step in run.steps], run


def batch(n=16, columns=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=g), 3 + 2 * torch.randn(n, columns, generator=g)


def told(function, given, target, **options):
    return {name: float(value) for name, value in compare(function, given, target, Options(**options), -100).items()}


def best_constant(function, target, **more):
    """By search, of one column: the smallest loss of a constant."""
    tries = torch.linspace(target.min().item(), target.max().item(), 4001, dtype=torch.float64)
    return min(getattr(F, function)(t.expand_as(target), target, **more).item() for t in tries)


def test_numbers_of_a_regression(watch):
    x, y = batch()
    model = nn.Linear(6, 4)
    predicted = model(x).detach().double()
    (step,), run = train(watch, [(x, y)], lambda out, y: F.mse_loss(out, y), model)
    y = y.double()
    for of, values in (("targets", y), ("predictions", predicted)):
        assert step[f"{of}/mean"] == pytest.approx(values.mean().item(), abs=1e-6)
        assert step[f"{of}/std"] == pytest.approx(values.std(correction=0).item(), rel=1e-6)
        assert step[f"{of}/between"] == pytest.approx(values.std(0).mean().item(), rel=1e-6)
    assert step["targets/guess"] == pytest.approx(y.var(0).mean().item(), rel=1e-6)
    assert step["predictions/loss"] == pytest.approx(F.mse_loss(predicted, y).item(), rel=1e-5)
    centred = [(v - v.mean(0)).reshape(-1) for v in (predicted, y)]
    assert step["predictions/correlation"] == pytest.approx(torch.corrcoef(torch.stack(centred))[0, 1].item(), abs=1e-6)
    assert run.contexts["predictions"][0][1] == {"function": "mse_loss", "single": False}


@pytest.mark.parametrize(("function", "more"), [
    ("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", {"beta": 0.5}), ("smooth_l1_loss", {"beta": 0.0}), ("huber_loss", {"delta": 3.0}),
])
def test_guessing_is_what_the_best_constant_has(function, more):
    y = 5 + torch.randn(128, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    options = options_of(function, (y, y), more)
    found = compare(function, y * 0, y, options, -100)
    # Unbiased, and of absolute errors by the mean: not below, and hardly above.
    best = best_constant(function, y, **more)
    assert best <= found["targets/guess"] < 1.03 * best
    assert found["predictions/loss"] == pytest.approx(getattr(F, function)(y * 0, y, **more).item())
    assert (found["predictions/correlation"], found["predictions/between"]) == (0, 0)


def test_all_rows_alike_and_rows_that_differ():
    y = torch.randn(32, 5, generator=torch.Generator().manual_seed(1))
    same, own = y.mean(0).expand(32, 5), y + 0.01
    found = told("mse_loss", same, y)
    assert found["predictions/between"] < 1e-6 and found["predictions/std"] > 0.01
    assert told("mse_loss", own, y)["predictions/correlation"] == pytest.approx(1)
    assert told("mse_loss", -own, y)["predictions/correlation"] == pytest.approx(-1)


def test_targets_of_another_network_are_looked_at(watch):
    """And of several numbers of which each row has one: Q-learning."""
    x, _ = batch()
    other = nn.Linear(6, 4)

    def loss(out, y):
        with torch.no_grad():
            target = 1 + 0.9 * other(x).max(1)[0]
        return F.smooth_l1_loss(out.gather(1, y)[:, 0], target)
    (step,), run = train(watch, [(x, torch.arange(16)[:, None] % 4)], loss)
    with torch.no_grad():
        assert step["targets/mean"] == pytest.approx((1 + 0.9 * other(x).max(1)[0]).mean().item(), rel=1e-5)
    assert run.contexts["predictions"][0][1] == {"function": "smooth_l1_loss", "single": True}


def test_which_of_the_two_comes_first_is_all_the_same(watch):
    x, y = batch()
    model = nn.Linear(6, 4)
    (one,), _ = train(watch, [(x, y)], lambda out, y: F.mse_loss(y, out), model)
    assert one["targets/mean"] == pytest.approx(y.mean().item(), rel=1e-5)


def test_a_further_loss_of_the_step_is_looked_at(watch):
    """Of squared or absolute errors, of rows of several numbers: boxes beside classes. Micro-steps are no further losses."""
    x, y = batch()
    model = nn.Linear(6, 4)
    predicted = model(x).detach().double()
    labels = torch.arange(16) % 4

    def loss(out, y):
        first = F.cross_entropy(out, labels) + F.mse_loss(out, 100 * y) + F.mse_loss(out[:, 0], y[:, 0])
        return first + F.l1_loss(out[:, :2], y[:, :2]) + F.l1_loss(out[:, :3], y[:, :3])
    (step,), run = train(watch, [(x, y)], loss, model)
    assert step["targets/1/mean"] == pytest.approx(100 * y.double().mean().item(), rel=1e-6)
    assert step["predictions/1/std"] == pytest.approx(predicted.std(correction=0).item(), rel=1e-6)
    assert step["targets/2/mean"] == pytest.approx(y[:, :2].double().mean().item(), rel=1e-6)
    assert not any("/3/" in name for name in step)
    assert run.contexts["predictions"][0][1]["function"] == "cross_entropy"
    (again,), _ = train(watch, [(x, y)], lambda out, y: F.mse_loss(out[:8], y[:8]) + F.mse_loss(out[8:], y[8:]))
    assert not any("/1/" in name for name in again)


@pytest.mark.parametrize(("args", "kwargs"), [
    ((), {"reduction": "none"}), ((), {"reduce": False}), ((None, None, "none"), {}), ((), {"weight": torch.ones(16, 4)}),
])
def test_where_elements_may_be_left_out_no_guess_is_told(args, kwargs):
    _, y = batch()
    options = options_of("mse_loss", (y, y, *args), kwargs)
    found = compare("mse_loss", y + 1, y, options, -100)
    assert "targets/guess" not in found and "predictions/between" in found
    assert options_of("mse_loss", (y, y), {"reduction": "sum"}).plain


def test_a_binary_loss_is_of_probabilities():
    y = (torch.rand(64, 1, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    logits = torch.randn(64, 1, generator=torch.Generator().manual_seed(2))
    of_logits = told("binary_cross_entropy_with_logits", logits, y)
    of_values = told("binary_cross_entropy", logits.sigmoid(), y)
    assert of_logits == pytest.approx(of_values, rel=1e-5)
    assert of_logits["predictions/mean"] == pytest.approx(logits.sigmoid().mean().item(), rel=1e-5)
    assert of_logits["predictions/loss"] == pytest.approx(F.mse_loss(logits.sigmoid(), y).item(), rel=1e-5)
    assert of_logits["targets/guess"] == pytest.approx(y.var().item(), rel=1e-5)


def test_classes():
    g = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(48, 5, generator=g), torch.randint(0, 5, (48,), generator=g)
    found = told("cross_entropy", logits, labels)
    centred = logits - logits.mean(1, keepdim=True)
    assert found["predictions/between"] == pytest.approx(centred.std(0).mean().item(), rel=1e-5)
    assert told("cross_entropy", logits + 7, labels)["predictions/between"] == pytest.approx(found["predictions/between"], rel=1e-4)
    # A bias that all rows share says nothing of them.
    same = told("cross_entropy", torch.arange(5.0).expand(48, 5), labels)
    assert same["predictions/between"] < 1e-6 and same["predictions/std"] > 1
    right = F.one_hot(labels, 5).float()
    assert found["targets/guess"] == pytest.approx(right.var(0).mean().item(), rel=1e-5)
    assert found["predictions/loss"] == pytest.approx(F.mse_loss(logits.softmax(1), right).item(), rel=1e-5)
    assert told("cross_entropy", 30 * right, labels)["predictions/correlation"] == pytest.approx(1)
    assert told("nll_loss", logits.log_softmax(1), labels) == pytest.approx(found, rel=1e-4)


def test_labels_that_are_ignored_are_no_rows():
    g = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(32, 5, generator=g), torch.randint(0, 5, (32,), generator=g)
    kept = torch.arange(32) % 3 > 0
    assert told("cross_entropy", logits, labels.masked_fill(~kept, -100)) == pytest.approx(told("cross_entropy", logits[kept], labels[kept]))
    assert not told("cross_entropy", logits, labels.fill_(-100))


def test_places_and_sequences():
    """Classes are the second axis of three and more."""
    g = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(4, 5, 3, 2, generator=g), torch.randint(0, 5, (4, 3, 2), generator=g)
    flat = logits.permute(0, 2, 3, 1).reshape(-1, 5)
    assert told("cross_entropy", logits, labels) == pytest.approx(told("cross_entropy", flat, labels.reshape(-1)))


@pytest.mark.parametrize("function", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 3, 5)])
def test_a_device_computes_what_is_read_on_the_host(function, shape):
    g = torch.Generator().manual_seed(1)
    given, target = torch.rand(shape, generator=g), torch.rand(shape, generator=g)
    for columns_first in (False, True):
        if columns_first and len(shape) == 2:
            given, target = given.T.contiguous().T, target
        host = compare(function, given, target, Options(width=0.3), -100)
        one = given.reshape(40, -1)
        one = one.sigmoid() if function.endswith("logits") else one
        device = _predictions._together(function, one, target.reshape(40, -1), Options(width=0.3))
        assert {k: v.item() for k, v in device.items()} == pytest.approx(host, rel=1e-4, abs=1e-6)


def test_a_device_computes_of_classes_what_is_read_on_the_host():
    g = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(48, 5, generator=g), torch.randint(0, 5, (48,), generator=g)
    host, soft = told("cross_entropy", logits, labels), told("cross_entropy", logits, F.one_hot(labels, 5).float())
    assert soft == pytest.approx(host, rel=1e-4)


def test_a_part_of_what_is_large_tells_the_same(monkeypatch):
    g = torch.Generator().manual_seed(1)
    y = torch.randn(2000, 3, 30, 30, generator=g) + torch.arange(3)[:, None, None]
    p = 0.5 * y + 0.1 * torch.randn(y.shape, generator=g)
    part, whole = told("mse_loss", p, y), None
    monkeypatch.setattr(_predictions, "ROWS", 10000)
    monkeypatch.setattr(_predictions, "ELEMENTS", 1 << 30)
    whole = told("mse_loss", p, y)
    for name, value in whole.items():
        assert part[name] == pytest.approx(value, rel=0.1, abs=0.1), name


def test_of_sequences_not_only_the_first_token_is_looked_at():
    """128 texts of 16 tokens, one after the other: the first token is always the same, and so is what follows it."""
    first = torch.arange(2048) % 16 == 0
    logits = torch.where(first[:, None], torch.arange(6.0), torch.randn(2048, 6, generator=torch.Generator().manual_seed(1)))
    assert told("cross_entropy", logits, torch.arange(2048) % 6)["predictions/between"] > 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_kinds_of_numbers(watch, dtype):
    x, y = batch()
    (step,), _ = train(watch, [(x, y.to(dtype))], lambda out, y: F.mse_loss(out.to(dtype), y))
    assert step["targets/mean"] == pytest.approx(y.to(dtype).double().mean().item(), rel=1e-6)


@pytest.mark.parametrize(("given", "target", "said"), [
    (torch.ones(1, 1), torch.ones(1, 1), False), (torch.tensor(1.0), torch.tensor(1.0), False),
    (torch.ones(4), torch.ones(4, 1), False), (torch.ones(4, 2), torch.full((4, 2), math.nan), False),
    (torch.ones(4, 2), torch.ones(4, 2), True), (torch.ones(1, 4, 2), torch.ones(1, 4, 2), True),
], ids=["one row", "a number", "broadcast", "NaN", "all the same", "one of a batch"])
def test_odd_ones_stop_nothing(watch, given, target, said):
    x, _ = batch()
    steps, _ = train(watch, [(x, target)] * 3, lambda out, y: F.mse_loss(given * out.mean(), y))
    assert [bool(step) for step in steps] == [said] * 3
    assert all(math.isfinite(v) for step in steps for v in step.values())


def test_looks_are_seldom(watch, monkeypatch):
    monkeypatch.setattr(_data, "EARLY", 4)
    steps, _ = train(watch, [batch(seed=n) for n in range(20)], lambda out, y: F.mse_loss(out, y))
    assert [n for n, step in enumerate(steps) if step] == [0, 1, 2, 3, 8, 16]


@pytest.mark.parametrize("loss", [
    lambda out, y: F.mse_loss(out, y), lambda out, y: F.huber_loss(out, y), lambda out, y: F.cross_entropy(out, (y > 3).long()[:, 0]),
    lambda out, y: F.binary_cross_entropy_with_logits(out, (y > 3).float()),
], ids=["mse", "huber", "classes", "binary"])
def test_the_training_is_the_same_to_the_bit_and_nothing_is_kept(watch, loss):
    def trained():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for n in range(30):
            x, y = batch(seed=n)
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()]), torch.rand(3)

    bare = trained()
    for lane in (False, True):
        session = watch(force_lane=lane)
        assert all(map(torch.equal, bare, trained()))
        session.finish("closed")
        assert "context/predictions/between" in {name for name, _ in session.made[0].steps[0].scalars}


def test_a_failure_gives_up_these_numbers_and_nothing_else(watch, monkeypatch):
    monkeypatch.setattr(_data, "compare", lambda *_: 1 / 0)
    steps, run = train(watch, [batch(seed=n) for n in range(14)], lambda out, y: F.mse_loss(out, y), strict=False)
    assert len(steps) == 14 and not any(steps)
    assert "gradient/Linear_weight" in {name for name, _, _ in run.steps[-1].values}
