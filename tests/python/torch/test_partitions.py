"""Optimizers of flat partitions (DeepSpeed's ZeRO): what lies in them has its parameter's name. DeepSpeed itself is among
tests/programs; here something stands in that lays out, notes down and steps as it does."""

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from tdbg.adaptors.steps import TRAIN


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


class Zero:
    """`groups` of parameters, of which this rank updates the part that begins at element `begins[i]` and has `sizes[i]`."""

    def __init__(self, optimizer, begins=None, sizes=None):
        self.optimizer, self.groups, self.kept = optimizer, [g["params"] for g in optimizer.param_groups], []
        for number, group in enumerate(optimizer.param_groups):
            params = group["params"]
            begin = begins[number] if begins else 0
            size = sizes[number] if sizes else sum(p.numel() for p in params) - begin
            flat = torch.cat([p.detach().reshape(-1) for p in params])[begin:begin + size].clone().requires_grad_()
            place = 0
            for p in params:
                first, last = max(place, begin), min(place + p.numel(), begin + size)
                if first < last:
                    p._hp_mapping = types.SimpleNamespace(
                        hp_fragment=flat.narrow(0, first - begin, last - first),
                        lp_fragment_address=types.SimpleNamespace(start=first - place, numel=last - first))
                place += p.numel()
            group["params"] = [flat]
            self.kept.append((flat, begin, size))

    def step(self):
        for number, (params, (flat, begin, size)) in enumerate(zip(self.groups, self.kept)):
            flat.grad = torch.cat([p.grad.reshape(-1) for p in params])[begin:begin + size]
            for p in params:
                p.grad = None
            self._optimizer_step(number)
            flat.grad = None
            place = 0
            for p in params:
                first, last = max(place, begin), min(place + p.numel(), begin + size)
                if first < last:
                    p.data.reshape(-1)[first - place:last - place].copy_(flat.data[first - begin:last - begin])
                place += p.numel()

    def _optimizer_step(self, group_no):
        groups = self.optimizer.param_groups
        self.optimizer.param_groups = [groups[group_no]]
        self.optimizer.step()
        self.optimizer.param_groups = groups


@pytest.fixture
def zero(monkeypatch):
    kind = type("DeepSpeedZeroOptimizer", (Zero,), {"_optimizer_step": Zero._optimizer_step})
    module = types.ModuleType("deepspeed.runtime.zero.stage_1_and_2")
    module.DeepSpeedZeroOptimizer = kind
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.zero"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return kind


def train(model, optimizer, step, steps=3):
    """[{name: its value just before the update}]"""
    seen = []
    for number in range(steps):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(number))
        model(x).square().mean().backward()
        seen.append({name: value.detach().numpy().copy() for n, p in model.named_parameters()
                     for name, value in ((f"Net_{n}", p), (f"gradient/Net_{n}", p.grad))})
        step()
        optimizer.zero_grad()
    return seen


def two_groups(model):
    return torch.optim.Adam([{"params": [model.hidden.weight, model.out.weight], "lr": 0.01},
                             {"params": [model.hidden.bias, model.out.bias], "lr": 0.02}])


@pytest.mark.parametrize("device", [False, True])
def test_gradients_have_their_parameters_names_and_all_groups_are_one_step(watch, zero, device):
    session = watch(kinds=("weight", "bias", "gradient", "loss", "optimizer"), force_lane=device)
    torch.manual_seed(1)
    model = Net()
    optimizer = two_groups(model)
    seen = train(model, optimizer, zero(optimizer).step)
    session.finish("completed")
    run, = session.made
    assert [step.mode for step in run.steps] == [TRAIN] * 3 and not run.lost and not run.twice
    for step, values in zip(run.steps, seen):
        for name, value in values.items():
            np.testing.assert_array_equal(step[name], value, err_msg=name)
        assert {f"context/lr/Adam/{n}": step.scalars[f"context/lr/Adam/{n}", 0] for n in (0, 1)} == {
            "context/lr/Adam/0": 0.01, "context/lr/Adam/1": 0.02}
        assert step.scalars["context/gradients_absent", 0] == 0
    assert not [spec["name"] for spec in run.specs if "parameter_" in spec["name"]]
    assert run.steps[2]["optimizer/Net_out.weight/exp_avg"].shape == (2, 4)
    assert set(run.end_values) == {(f"Net_{n}", 0, 0) for n, _ in model.named_parameters()}


def test_a_parameter_of_which_a_part_is_here_is_a_part_of_a_whole(watch, zero):
    parts = {}
    session = watch()
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = train(model, optimizer, zero(optimizer, begins=[7], sizes=[12]).step, steps=2)
    run, = session.made
    session.finish("completed")
    parts = {spec["name"]: (spec["shape"], spec["whole_shape"], spec["part_begin"]) for spec in run.specs
             if spec["kind"] == "gradient"}
    assert parts == {"gradient/Net_hidden.weight": ((5,), [12], [7]), "gradient/Net_hidden.bias": ((4,), [], []),
                     "gradient/Net_out.weight": ((3,), [8], [0])}
    for step, values in zip(run.steps, seen):
        np.testing.assert_array_equal(step["gradient/Net_hidden.weight"], values["gradient/Net_hidden.weight"].reshape(-1)[7:])
        np.testing.assert_array_equal(step["gradient/Net_out.weight"], values["gradient/Net_out.weight"].reshape(-1)[:3])
        for name in ("hidden.weight", "hidden.bias", "out.weight", "out.bias"):      # the weights are here as a whole
            np.testing.assert_array_equal(step[f"Net_{name}"], values[f"Net_{name}"])


def test_partitions_that_nobody_explains_are_said_to_be_some(watch, zero, capsys):
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = zero(optimizer)
    for p in model.parameters():
        del p._hp_mapping
    train(model, optimizer, made.step)
    session.finish("completed")
    run, = session.made
    assert "gradient/parameter_0" in {spec["name"] for spec in run.specs} and len(run.steps) == 3
    assert capsys.readouterr().err.count("parameter_0") == 1
