"""Tensors read through DLPack's exchange table: the same values as torch's own methods tell, and a way back for the rest."""

import numpy as np
import pytest
import torch
from torch import nn

from tdbg import _capture
from tdbg.adaptors.torch import params

WANTED = 7
pytestmark = pytest.mark.skipif(params.READER is None, reason="this torch has no exchange table")


def batch_of(parameters):
    return _capture.ParameterBatch(params.READER, parameters, [WANTED] * len(parameters), [WANTED] * len(parameters))


def with_gradients(*shapes):
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return parameters


def test_addresses_are_torchs_own():
    parameters = with_gradients((3, 4), (5,), (), (2, 1, 3))
    batch = batch_of(parameters)
    assert batch.gather(parameters) == 0 and batch.absent() == []
    assert batch.addresses == [p.data_ptr() for p in parameters] + [p.grad.data_ptr() for p in parameters]


def test_new_gradients_are_found_and_absent_ones_said():
    parameters = with_gradients((3,), (4,), (5,))
    batch = batch_of(parameters)
    parameters[0].grad = torch.ones(3)
    parameters[1].grad = None
    assert batch.gather(parameters) == 1 and batch.absent() == [1]
    assert batch.addresses[3:] == [parameters[0].grad.data_ptr(), 0, parameters[2].grad.data_ptr()]


@pytest.mark.parametrize("move", [
    lambda p: setattr(p, "data", p.data.clone()), lambda p: setattr(p, "data", p.data.double()),
    lambda p: setattr(p, "data", torch.randn(7))])
def test_a_parameter_that_moved_is_noticed(move):
    parameters = with_gradients((3, 4), (5,))
    batch = batch_of(parameters)
    parameters[1].grad = None
    keep = parameters[1].data        # else the allocator may give the same address again
    move(parameters[1])
    assert batch.gather(parameters) == _capture.ParameterBatch.MOVED
    assert keep is not None


@pytest.mark.parametrize("odd", [
    lambda p: torch.randn(4, 3).t(), lambda p: torch.zeros(3, 4).to_sparse(), lambda p: torch.randn(3, 8)[:, ::2]])
def test_an_odd_gradient_goes_the_other_way(odd):
    parameters = with_gradients((5,), (3, 4))
    batch = batch_of(parameters)
    parameters[1].grad = odd(parameters[1])
    assert batch.gather(parameters) == _capture.ParameterBatch.ODD


@pytest.mark.parametrize("strange", [torch.zeros(3, 3).t()[1:], torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")])
def test_a_parameter_that_is_not_plain_is_refused(strange):
    with pytest.raises(TypeError):
        batch_of([strange])


def slot_for(tensor):
    slot = _capture.TensorSlot(params.READER)
    slot.remember(WANTED, tensor)
    return slot


def test_a_slot_takes_what_it_has_seen_and_nothing_else():
    slot = slot_for(torch.randn(2, 3))
    assert slot.match(torch.randn(5, 6).t()) == WANTED, "another shape, and not in C order"
    assert slot.match(torch.randn(2, 3, requires_grad=True) * 1) == WANTED
    for other in (torch.randn(2), torch.randn(2, 3).double(), torch.randn(2, 3).to_sparse(), torch.randn(2, 3, device="meta"),
                  torch.zeros(2, 3, dtype=torch.complex64).conj().imag, [1]):
        assert slot.match(other) is None
    seen = []
    torch.func.vmap(lambda x: seen.append(slot.match(x)) or x)(torch.randn(4, 2, 3))
    assert seen == [None], "a functorch wrapper has no memory"
    assert slot_for(torch.zeros(3, dtype=torch.complex64)).match(torch.zeros(3, dtype=torch.complex64)) is None


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.relu = nn.Linear(3, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x, n):
        x = self.relu(self.norm(self.a(x)))
        x = self.relu(self.b(x.t().contiguous().t()))
        return {"sum": x.sum(), "pair": (x, x.t()), "long": n, "odd": torch.complex(x, x).conj().imag, "half": x.bfloat16()}


def test_outputs_are_the_same_both_ways(watch, monkeypatch):
    def run():
        torch.manual_seed(2)
        session = watch(kinds=("output", "input"))
        model = Odd()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for n in range(4):
            optimizer.zero_grad()
            rows = 5 if n < 2 else 0 if n == 2 else 6
            model(torch.randn(rows, 3), torch.tensor(n))["sum"].backward()
            optimizer.step()
        session.finish("completed")
        return session.made[0]

    fast = run()
    monkeypatch.setattr(params, "READER", None)
    monkeypatch.setattr("tdbg.adaptors.torch.modules.READER", None)
    slow = run()
    assert fast.slot_puts > 20 and not hasattr(slow, "slot_puts")
    for a, b in zip(fast.train, slow.train, strict=True):
        assert a.values.keys() == b.values.keys() and len(a.values) >= 3
        for key in a.values:
            np.testing.assert_array_equal(a.values[key], b.values[key])


class Trainer(nn.Module):
    """Backward, a step and evaluation inside forward: what a module gives belongs elsewhere after each of them."""

    def __init__(self):
        super().__init__()
        self.a, self.relu = nn.Linear(3, 3), nn.ReLU()
        self.between, self.late = nn.Tanh(), nn.Tanh()

    def forward(self, x, optimizer):
        for _ in range(2):
            self.relu(self.a(x)).sum().backward()
        self.relu(self.relu(self.a(self.between(x))))
        optimizer.step()
        return self.relu(self.a(self.late(x))).sum()


def test_an_output_belongs_where_the_step_is_when_it_is_given(watch, monkeypatch):
    def run():
        torch.manual_seed(2)
        session = watch(kinds=("output",))
        model = Trainer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(5, 3), optimizer).backward()
            model.relu(torch.randn(3))        # outside of any forward of the root
            optimizer.step()
        session.finish("completed")
        return session.made[0]

    from tdbg.adaptors.torch import modules
    calls = []
    original = modules.ModuleTensors.ran
    monkeypatch.setattr(modules.ModuleTensors, "ran", lambda *a: calls.append(1) or original(*a))
    quick = run()
    short = len(calls)
    monkeypatch.setattr(modules.ModuleTensors, "settle", lambda self: None)
    slow = run()
    assert short < len(calls) - short, "some went the short way"
    assert len(quick.train) == len(slow.train) >= 4
    assert {sub for step in slow.train for _, sub, _ in step.values} == {0, 2, 3}
    for a, b in zip(quick.train, slow.train):
        assert a.values.keys() == b.values.keys()
        for key in a.values:
            np.testing.assert_array_equal(a.values[key], b.values[key])


def train(watch, **options):
    torch.manual_seed(5)
    session = watch(**options)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    frozen = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *frozen.parameters()], lr=0.1)
    for n in range(6):
        optimizer.zero_grad()
        out = model(torch.randn(5, 3))
        (frozen(out) if n % 2 else out).square().sum().backward()
        if n == 4:
            model[0].weight.data = model[0].weight.data.clone()
        optimizer.step()
    session.finish("completed")
    return session.made[0]


def test_both_ways_record_the_same(watch, monkeypatch):
    fast = train(watch)
    assert fast.batches == 5, "all steps but the one in which a parameter had moved"
    monkeypatch.setattr(params, "READER", None)
    slow = train(watch)
    assert not hasattr(slow, "batches")
    assert len(fast.train) == len(slow.train) == 6
    for a, b in zip(fast.train, slow.train):
        assert a.values.keys() == b.values.keys() and a.scalars == b.scalars
        for key in a.values:
            np.testing.assert_array_equal(a.values[key], b.values[key])
    assert fast.contexts["gradients_absent"] == slow.contexts["gradients_absent"]
