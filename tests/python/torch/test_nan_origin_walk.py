"""Where a NaN was born, without a training: the walk through a graph, what is counted of tensors, and what is held."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch.origin import backward, graph, values, walk

inf, nan = float("inf"), float("nan")


def birth(loss, **options):
    return walk.Walk([loss], lambda leaf: "p", lambda leaf: "p", **options).find()


def test_budget_ends_the_look_and_not_the_answer():
    x = torch.ones(1000, requires_grad=True)
    found = birth((x * torch.full((1000,), nan)).add(1).sum(), budget=values.Budget(16))
    assert found.what == walk.UNSEEN and found.bytes <= 16


def test_graph_that_is_too_large_is_not_walked():
    x = torch.ones(2, requires_grad=True)
    y = functools.reduce(lambda a, _: a + 1, range(50), x)
    with pytest.raises(graph.TooLarge):
        graph.Graph([y], most=20)


def test_what_was_changed_in_place_is_not_believed():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    loss = torch.log(y).sum()
    with torch.no_grad():
        y.zero_()
    node = loss.grad_fn.next_functions[0][0]
    assert dict(graph.saved(node)) == {"self": graph.Unseen(graph.CHANGED)}


def test_freed_graph_is_said_to_be():
    x = torch.ones(3, requires_grad=True)
    y = torch.log(x * 2)
    y.sum().backward()
    assert dict(graph.saved(y.grad_fn)) == {"self": graph.Unseen(graph.FREED)}


def test_what_is_left_out_again_is_no_cause():
    """log(0), which `where` leaves out, beside a constant that nobody kept."""
    x = torch.zeros(3, requires_grad=True)
    y = torch.where(x > 0, torch.log(x * 1), x * 2)
    found = birth((y + torch.full((3,), nan)).mul(1.0).sum())
    assert found.operation != "log" and "log" not in found.because.split(":")[0]


@pytest.mark.parametrize("factor", [60000, 60000.0, torch.tensor(60000)])
def test_what_was_multiplied_by_a_number_is_as_much_larger(factor):
    """Of 2 in float16, times 60,000: whatever the number's type, the product has overflowed and nothing else has."""
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    found = birth((x.half() * factor).relu().float().sum())
    assert (found.what, found.operation) == (walk.OPERATION, "mul"), found


def test_sum_of_one_number_is_no_cause():
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    found = birth(((x * 1e30) @ (x * 1e30)).sum())
    assert found.operation == "dot" and "larger than float32 holds" in found.because


def test_running_statistics_that_a_nan_left_behind_are_no_cause():
    norm, first = nn.BatchNorm1d(3), nn.Linear(3, 3)
    norm(first(torch.full((4, 3), nan)))          # a batch that the script left out
    found = birth(torch.log(norm(first(torch.randn(4, 3))) * 0).sum())
    assert (found.what, found.operation) == (walk.OPERATION, "log")


def test_checkpointed_segment_is_not_run_again():
    calls = []

    def segment(h):
        calls.append(1)
        return torch.log(h * 0)

    x = torch.ones(3, requires_grad=True)
    found = birth(checkpoint(segment, x * 1, use_reentrant=False).mul(0).sum())
    assert found.what == walk.UNSEEN and "checkpointed" in found.because and len(calls) == 1


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.t(), lambda x: x.bfloat16(), lambda x: x[::2, 1:], lambda x: x.to_sparse()])
def test_counts_are_those_of_the_whole(make, monkeypatch):
    monkeypatch.setattr(values, "PIECE", 7)
    x = torch.arange(40.0).reshape(8, 5) - 10
    x[2, 2], x[4, 4], x[6, 1] = nan, inf, -inf
    x = make(x)
    found, dense = values.values_of(x, values.Budget()), x.to_dense().float() if x.is_sparse else x.float()
    kept = x._values() if x.is_sparse else dense
    finite = kept[kept.isfinite()]
    assert found == values.Values(kept.numel(), int(kept.isnan().sum()), int((kept == inf).sum()), int((kept == -inf).sum()),
                                  int((finite == 0).sum()), int((finite < 0).sum()), float(finite.min()), float(finite.max()))
    assert values.state_of(x, values.Budget()) == values.NAN


def test_nothing_is_held_where_no_derivative_is_singular():
    holder = backward.Holder(lambda leaf: "p")
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))
    for _ in range(20):
        holder.before_backward(F.cross_entropy(net(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long)) / 4)
    assert holder.held == []


def test_layers_of_a_sequential_are_called_layers():
    assert graph.Place(after="2", before="head").words() == "between layer 2 and head"
    assert graph.Place(inside="encoder.2").words() == "in encoder.2"


def test_a_nan_is_not_said_to_be_too_large():
    """Nor is the infinity of a loss that has rules of its own."""
    w = torch.linspace(0.1, 2, 16).view(4, 4).requires_grad_()
    losses = [((-w * 1.0) ** torch.full((4, 4), 0.5)).pow(2).mean(),
              F.batch_norm(w * 1.0, torch.zeros(4), -torch.ones(4)).pow(2).mean(),
              F.ctc_loss(F.log_softmax(w[:, None] * 1.0, -1), torch.tensor([[1, 1, 1]]), torch.tensor([4]), torch.tensor([3]))]
    for loss in losses:
        assert "larger than" not in walk.Walk([loss], lambda p: "w", lambda p: "layer").find().because
