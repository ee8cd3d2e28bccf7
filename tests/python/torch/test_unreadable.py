"""Tensors whose values nobody can find in memory: counted once, and everything else is recorded as ever."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

OUTPUTS = ("weight", "bias", "gradient", "loss", "output", "input")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # nested tensors are a prototype
        yield


def two():
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


@pytest.mark.parametrize("outer", [torch.func.vmap, lambda f, **_: lambda p, x, y: f(p, x[0], y[0])], ids=["vmap", "grad"])
def test_gradients_by_a_transform(watch, outer):
    session = watch(kinds=OUTPUTS)
    model = two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(params, x, y):
        return F.cross_entropy(torch.func.functional_call(model, params, (x[None],)), y[None])

    gradients = outer(torch.func.grad(loss), in_dims=(None, 0, 0))
    for _ in range(12):
        params = {name: p.detach() for name, p in model.named_parameters()}
        found = gradients(params, torch.ones(5, 4), torch.zeros(5, dtype=torch.long))
        for name, p in model.named_parameters():
            p.grad = found[name].mean(0) if found[name].dim() > p.dim() else found[name]
        optimizer.step()
        assert np.array_equal(session.made[0].steps[-1]["gradient/Sequential_0.weight"], model[0].weight.grad.numpy())
    assert len(session.made[0].steps) == 12
    lost = session.made[0].lost
    assert ("unsupported", 1, "batch: inside a transform of torch.func") in lost
    assert ("unsupported", 1, "1_output: inside a transform of torch.func") in lost
    assert len(lost) == len(set(lost)) and {cause for cause, _, _ in lost} == {"unsupported"}


class Padding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return torch.nested.to_padded_tensor(self.linear(x), 0.0)


def test_a_batch_of_several_lengths(watch):
    session = watch(kinds=OUTPUTS)
    model = Padding()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        out = model(torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]))
        out.sum().backward()
        optimizer.step()
    run = session.made[0]
    assert run.lost == [("unsupported", 1, f"{name}: a nested tensor")
                        for name in ("batch", "linear_input", "linear_output", "Padding_input")]
    assert all(("Padding_output_0", 0, 0) in s.values and ("gradient/Padding_linear.weight", 0, 0) in s.values
               for s in run.steps) and len(run.steps) == 12


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)

    def forward(self, x, padded=None):
        return self.layers(x, src_key_padding_mask=padded)


def test_a_transformer_that_packs_its_padding_away(watch):
    session = watch(kinds=OUTPUTS)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(3, 5, 16)).sum().backward()
    optimizer.step()
    padded = torch.zeros(3, 5, dtype=torch.bool)
    padded[0, 3:] = True
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(3, 5, 16), padded)
    model.train()
    model(torch.randn(3, 5, 16)).sum().backward()
    optimizer.step()
    run = session.made[0]
    lost = [text for _, _, text in run.lost]
    assert "layers.layers.0.linear1_output: a nested tensor" in lost and len(lost) == len(set(lost))
    assert {cause for cause, _, _ in run.lost} == {"unsupported"} and len(run.train) == 2
    assert [("Encoder_output_0", 0, 0) in s.values for s in run.eval] == [True] * 3


@pytest.mark.parametrize("step_by", ["optimizer", "forward"])
def test_parameters_without_memory(watch, step_by):
    session = watch(kinds=(*OUTPUTS, "optimizer"), plan={"step_by": step_by})
    with torch.device("meta"):
        model = two()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.ones(2, 4, device="meta")), torch.zeros(2, dtype=torch.long, device="meta"))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    real = nn.Linear(4, 3)
    other = torch.optim.SGD(real.parameters(), lr=0.1)
    for _ in range(4):
        other.zero_grad()
        real(torch.ones(2, 4)).sum().backward()
        other.step()
    session.finish("completed")
    run = session.made[0]
    lost = [text for _, _, text in run.lost]
    assert lost == [], "what has no values is not lost"
    assert not session.needs_device_lane
    assert np.array_equal(run.train[-1]["Linear_weight"].shape, (3, 4)) and len(run.train) == 16


def test_a_value_of_the_scripts_without_memory(watch):
    from tdbg.adaptors.attached import Attached
    session = watch()
    model = two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attached = Attached(session)
    for _ in range(2):
        attached.record("mine", torch.ones(3, device="meta"))
        attached.scalar("one", torch.ones((), device="meta"))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert session.made[0].lost == [("unsupported", 1, f"{name}: on the meta device") for name in ("mine", "scalar/one")]


def test_what_is_not_looked_through_is_counted(watch):
    class Many(nn.Linear):
        def forward(self, x):
            return super().forward(x), [x] * 2000

    session = watch(kinds=OUTPUTS)
    model = Many(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 4))[0].sum().backward()
        optimizer.step()
    assert session.made[0].lost == [("unsupported", 1, "Many_output: more than we look through")]
    assert ("Many_output_900", 0, 0) in session.made[0].steps[1].values
