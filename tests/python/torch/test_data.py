"""What a training is fed: numbers of inputs, labels, and of what a loss is given."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.torch import data as _data


def train(watch, batches, model=None, loss="cross_entropy", act=lambda y: y, **options):
    """The series of each step, without `context/`, and the run."""
    session = watch(**options)
    model = model or nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        (getattr(F, loss) if isinstance(loss, str) else loss)(act(model(x)), y).backward()   # F's is patched by now
        optimizer.step()
    session.finish("closed")
    run = session.made[0]
    return [{k[len("context/"):]: v for (k, _), v in step.scalars.items()} for step in run.steps], run


def batch(n=16, **more):
    g = torch.Generator().manual_seed(more.pop("seed", 0))
    return torch.randn(n, 6, generator=g), torch.randint(0, 4, (n,), generator=g)


def test_numbers_are_those_of_the_whole_input(watch):
    x, y = batch()
    x[3] = 0
    (step,), run = train(watch, [(x, y)])
    assert step["input/min"] == x.min() and step["input/max"] == x.max()
    assert step["input/mean"] == pytest.approx(x.mean().item()) and step["input/std"] == pytest.approx(x.std(correction=0).item())
    assert step["input/zeros"] == pytest.approx(6 / 96) and step["input/same_rows"] == 0 and "input/nan" not in step
    (_, said), = run.contexts["input"]
    assert said["shape"] == [16, 6] and said["channels"]["axis"] == 1
    assert said["channels"]["mean"] == pytest.approx(x.mean(0).tolist())
    assert step["labels/count"] == 16 and step["labels/distinct"] == len(set(y.tolist()))
    (_, counted), = run.contexts["labels"]
    assert counted == {"batches": 1, "counts": {str(k): (y == k).sum().item() for k in sorted(set(y.tolist()))}}


def test_a_batch_whose_loss_is_not_finite_is_looked_at_whatever_the_step(watch, monkeypatch):
    monkeypatch.setattr(_data, "EARLY", 2)
    batches = [batch() for _ in range(6)]
    batches[3][0][0, 0], batches[3][0][1, 1] = math.nan, math.inf
    steps, run = train(watch, batches)
    assert ["input/max" in step for step in steps] == [True, True, False, True, True, True]
    assert (steps[3]["input/nan"], steps[3]["input/infinite"]) == (1, 1) and math.isfinite(steps[3]["input/mean"])


def test_of_several_batches_of_a_step_the_one_whose_loss_is_not_finite_is_told(watch):
    session, model = watch(), nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [batch(seed=n) for n in range(3)]
    batches[1][0][0, 0] = math.nan
    for x, y in batches:
        F.cross_entropy(model(x), y).backward()
    optimizer.step()
    session.finish("closed")
    assert session.made[0].steps[0].scalars["context/input/nan", 0] == 1


def test_of_two_models_of_a_step_it_is_the_first_ones_input(watch):
    session, judge, maker = watch(), nn.Linear(6, 1), nn.Linear(3, 6)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (judge, maker)]
    for n in range(5):
        x, z = batch(seed=n)[0], 100 + torch.rand(16, 3)
        F.binary_cross_entropy_with_logits(judge(x), torch.ones(16, 1)).backward()
        optimizers[0].step()
        F.binary_cross_entropy_with_logits(judge(maker(z)), torch.ones(16, 1)).backward()
        optimizers[1].step()
    session.finish("closed")
    train_steps = session.made[0].steps
    assert len(train_steps) == 5 and all(step.scalars["context/input/max", 0] < 10 for step in train_steps)


def test_what_the_training_has_computed_is_no_data(watch):
    session, model, features = watch(), nn.Linear(6, 4), nn.Parameter(torch.randn(16, 6))
    optimizer = torch.optim.SGD([*model.parameters(), features], lr=0.01)
    F.cross_entropy(model(features.tanh()), batch()[1]).backward()
    optimizer.step()
    session.finish("closed")
    assert "context/labels/max" in {name for name, _ in session.made[0].steps[0].scalars}
    assert "context/input/max" not in {name for name, _ in session.made[0].steps[0].scalars}


def test_rows_of_ones_are_no_fault_where_edges_tell_them_apart(watch):
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x, edges=None):
            return self.layer(x if edges is None else x.index_add(0, edges[0], x[edges[1]]))

    ones, (_, y) = torch.ones(16, 6), batch()
    for more, said in (((), True), ((torch.randint(0, 16, (2, 40)),), False)):
        session, model = watch(), Graph()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        F.cross_entropy(model(ones, *more), y).backward()
        optimizer.step()
        session.finish("closed")
        assert ("context/input/same_rows" in {name for name, _ in session.made[0].steps[0].scalars}) is said


def test_later_steps_are_looked_at_seldom_and_large_tensors_more_seldom(watch, monkeypatch):
    monkeypatch.setattr(_data, "EARLY", 4)
    steps, _ = train(watch, [batch(seed=n) for n in range(20)])
    assert [n for n, step in enumerate(steps) if "input/max" in step] == [0, 1, 2, 3, 8, 16]
    monkeypatch.setattr(_data, "SMALL", 100)
    monkeypatch.setattr(_data, "PER_STEP", 32)
    steps, _ = train(watch, [batch(seed=n) for n in range(30)])
    assert [n for n, step in enumerate(steps) if "input/max" in step] == [0, 1, 24], "384 bytes, 32 a step: every 12th"


SOFTMAX = [
    ("cross_entropy", lambda y: y.softmax(1), lambda y: y, lambda y: y),
    ("cross_entropy", lambda y: y.bfloat16().softmax(1), lambda y: y.bfloat16(), lambda y: y),
    ("nll_loss", lambda y: y, lambda y: y.log_softmax(1), lambda y: y),
    ("nll_loss", lambda y: y.softmax(1), lambda y: y.log_softmax(1), lambda y: y),
    ("binary_cross_entropy_with_logits", lambda y: y.sigmoid(), lambda y: y, lambda y: F.one_hot(y, 4).float()),
    (nn.CrossEntropyLoss(), lambda y: y.view(4, 4, 4).softmax(1), lambda y: y.view(4, 4, 4), lambda y: y.view(4, 4)),
]


@pytest.mark.parametrize("loss, wrong, right, labels", SOFTMAX)
def test_what_is_no_logit_is_seen(watch, loss, wrong, right, labels):
    x, y = batch()
    for act, seen in ((wrong, 1), (right, 0)):
        (step,), run = train(watch, [(x, labels(y))], loss=loss, act=act)
        assert step["loss_input/wrong"] == seen
        assert run.contexts["loss_input"][0][1]["function"] == (loss if isinstance(loss, str) else "cross_entropy")


def test_logits_of_a_network_that_has_not_learnt_yet_may_lie_between_0_and_1(watch):
    x, y = batch()
    of_two = (x, F.one_hot(y, 4).float())
    for act, seen in ((lambda y: 0.2 + 0.01 * y.tanh(), 0), (lambda y: 1 / (1 + (-20 * y).exp()), 1),
                      (lambda y: (0.01 * y).sigmoid()[:, None].squeeze(1).clone(), 1)):
        (step,), _ = train(watch, [of_two], loss="binary_cross_entropy_with_logits", act=act)
        assert step["loss_input/wrong"] == seen


def test_rows_are_looked_at_however_many_there_are(watch, monkeypatch):
    monkeypatch.setattr(_data, "SMALL", 10)
    steps, _ = train(watch, [batch(seed=n) for n in range(4)], act=lambda y: y.softmax(1))
    assert [step.get("loss_input/wrong") for step in steps] == [1] * 4


@pytest.mark.parametrize("loss", [
    lambda out, y: (F.binary_cross_entropy_with_logits(out, y, reduction="none") * (y >= 0)).mean(),
    lambda out, y: nn.BCEWithLogitsLoss(weight=(y >= 0).float())(out, y),
], ids=["masked", "weighted"])
def test_labels_that_are_missing_are_not_told_of_a_loss_that_leaves_them_out(watch, loss):
    x, y = batch()
    labels = torch.where(y > 2, -1.0, (y > 0).float())[:, None].repeat(1, 4)
    (step,), _ = train(watch, [(x, labels)], loss=loss)
    assert "labels/min" not in step and "loss_input/wrong" in step


class Tokens(nn.Module):
    def __init__(self, padding=None):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 6, padding_idx=padding), nn.Linear(6, 4)

    def forward(self, ids, attention_mask=None):
        return self.head(self.table(ids).mean(1))


def test_padding_is_what_the_model_says_or_the_caller(watch):
    ids = torch.tensor([[1, 2, 7, 7], [3, 7, 7, 7]])
    y = torch.tensor([0, 1])
    (step,), _ = train(watch, [(ids, y)], Tokens(7))
    assert step["input/padding"] == pytest.approx(5 / 8) and step["input/max"] == 7 and "input/mean" not in step
    (step,), _ = train(watch, [(ids, y)], Tokens())
    assert "input/padding" not in step

    session, model = watch(), Tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    F.cross_entropy(model(ids, attention_mask=torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])), y).backward()
    optimizer.step()
    # A mask that is added has zeros at words: it is none of padding.
    F.cross_entropy(model(ids, attention_mask=torch.zeros(2, 4)), y).backward()
    optimizer.step()
    session.finish("closed")
    first, second = session.made[0].steps[:2]
    assert first.scalars["context/input/padding", 0] == pytest.approx(5 / 8)
    assert "context/input/padding" not in {name for name, _ in second.scalars}


def test_labels_that_are_ignored_are_none(watch):
    x, _ = batch(8)
    y = torch.tensor([-100, 1, 1, -100, 1, -100, 1, 1])
    (step,), run = train(watch, [(x, y)])
    assert (step["labels/ignored"], step["labels/count"], step["labels/distinct"]) == (pytest.approx(3 / 8), 5, 1)
    assert run.contexts["labels"][0][1]["counts"] == {"1": 5}


def test_labels_are_counted_over_the_batches(watch):
    batches = [batch(seed=n) for n in range(12)]
    _, run = train(watch, batches)
    told = [said for _, said in run.contexts["labels"]]
    assert [said["batches"] for said in told] == [1, 10]
    all_of_ten = torch.cat([y for _, y in batches[:10]])
    assert told[1]["counts"] == {str(k): int((all_of_ten == k).sum()) for k in range(4)}


def test_a_lane_carries_them_and_the_training_is_the_same_to_the_bit(watch):
    def trained():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for n in range(30):
            x, y = batch(seed=n)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()]), torch.rand(3)

    bare = trained()
    for lane in (False, True):
        session = watch(force_lane=lane)
        assert all(map(torch.equal, bare, trained()))
        session.finish("closed")
        assert "context/input/mean" in {name for name, _ in session.made[0].steps[0].scalars}


@pytest.mark.parametrize("x", [
    torch.zeros(4, 0, 6), torch.ones(4, 6, dtype=torch.uint8), torch.ones(4, 6, dtype=torch.complex64),
    torch.ones(4, 6).to_sparse(), torch.full((4, 6), math.nan), torch.tensor(1.0), torch.ones(4, 6, dtype=torch.bool),
    torch.ones(4, 6, dtype=torch.uint16),
], ids=["empty", "uint8", "complex", "sparse", "all NaN", "a number", "bool", "uint16"])
def test_odd_inputs_stop_nothing(watch, x):
    session = watch()

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 3))

        def forward(self, x):
            return self.weight

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        F.cross_entropy(model(x), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
    assert len(session.made[0].steps) >= 1 and json.dumps(session.made[0].contexts, allow_nan=False)


def test_a_failure_gives_up_the_data_and_nothing_else(watch, monkeypatch):
    monkeypatch.setattr(_data.Data, "_input", lambda *_: 1 / 0)
    steps, run = train(watch, [batch(seed=n) for n in range(14)], strict=False)
    assert len(steps) == 14 and all("input/max" not in step for step in steps)
    assert "gradient/Linear_weight" in {name for name, _, _ in run.steps[-1].values}


def test_a_policy_that_begins_in_one_state_has_no_constant_input(watch):
    session, model = watch(), nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = torch.eye(8)[torch.zeros(16, dtype=torch.long)]
    for later in ((begin, batch(seed=1)[0].repeat(1, 2)[:, :8]), (begin, begin), (begin,)):
        loss = sum(F.cross_entropy(model(x), batch()[1]) for x in later)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    session.finish("closed")
    assert [step.scalars["context/input/same_rows", 0] for step in session.made[0].steps] == [0, 1, 1]


@pytest.mark.parametrize(("act", "wrong"), [(lambda y: y, 1), (lambda y: F.log_softmax(y, -1), 0)])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_loss_function_that_was_taken_from_torch_before_is_seen_in_the_graph(watch, act, wrong, parts):
    taken = torch._C._nn.nll_loss_nd        # what a function of torch's is that was imported before it was replaced
    steps, run = train(watch, [batch(seed=n) for n in range(3)], act=act, loss=lambda given, y: taken(given, y, None, 1, -100) / parts)
    assert [step["loss_input/wrong"] for step in steps] == [wrong] * 3
    assert [said for _, said in run.contexts["loss_input"]] == [{"function": "nll_loss", "shape": [4]}]
    assert steps[0]["labels/count"] == 16
