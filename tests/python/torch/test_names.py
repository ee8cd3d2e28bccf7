"""smdebug's names, kinds and aliases, whatever the model went through."""

import copy
import time

import torch
from torch import nn

from tdbg.adaptors.torch import names as tdbg_names
from tdbg.adaptors.torch.names import discover, output_unit_axis, strip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.relu(self.fc(x.flatten(1)))


def train(model, steps=1, call=None):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (call or model)(torch.ones(3, 1, 4, 4)).sum().backward()
        optimizer.step()
    return optimizer


def tensor_names(run):
    return {s["name"] for s in run.specs}


def test_parameters_and_gradients(watch):
    session = watch()
    train(Net())
    run = session.made[0]
    assert tensor_names(run) == {p + n for n in ("Net_conv1.weight", "Net_conv1.bias", "Net_fc.weight", "Net_fc.bias")
                                 for p in ("", "gradient/")} | {"backward_loss"}
    spec = run.spec("gradient/Net_conv1.weight")
    assert spec["short_name"] == "gradient/conv1.weight" and spec["kind"] == "gradient"
    assert spec["shape"] == (2, 1, 3, 3) and spec["dtype"] == "float32"
    assert run.spec("Net_fc.bias")["kind"] == "bias" and run.spec("Net_fc.weight")["module_kind"] == "linear"


def test_wrappers_leave_no_trace_in_names(watch):
    session = watch()
    model = Net()
    train(nn.DataParallel(model))
    assert "Net_conv1.weight" in tensor_names(session.made[0])
    assert strip("_orig_mod.a._checkpoint_wrapped_module.b") == "a.b"


def test_copied_model_is_found_without_construction_hooks(watch):
    session = watch()
    train(copy.deepcopy(Net()))
    assert "Net_fc.weight" in tensor_names(session.made[0])


def test_tied_weights_are_one_tensor_with_aliases(watch):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(4, 3)
            self.head = nn.Linear(3, 4, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(torch.zeros(2, dtype=torch.long)))

    session = watch()
    train(Tied())
    run = session.made[0]
    assert run.spec("Tied_embed.weight")["aliases"] == ["Tied_head.weight"]
    assert run.spec("gradient/Tied_embed.weight")["aliases"] == ["gradient/Tied_head.weight"]
    assert not any("Tied_head" in n for n in tensor_names(run))


def test_two_models_of_one_class_have_two_labels(watch):
    session = watch()
    a, b = Net(), Net()
    oa, ob = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
    (a(torch.ones(1, 1, 4, 4)) + b(torch.ones(1, 1, 4, 4))).sum().backward()
    oa.step(), ob.step()
    assert {"Net_fc.weight", "Net_1_fc.weight"} <= tensor_names(session.made[0])


def test_tensor_without_a_module(watch):
    session = watch()
    w = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    (w.sum() ** 2 + w.sum()).backward()
    optimizer.step()
    run = session.made[0]
    assert (run.steps[0]["parameter_0"] == 0).all() and (run.steps[0]["gradient/parameter_0"] == 1).all()


def test_parametrized_module_keeps_its_parameters_paths(watch):
    session = watch()
    model = Net()
    nn.utils.parametrizations.weight_norm(model.fc)
    train(model)
    assert "Net_fc.parametrizations.weight.original0" in tensor_names(session.made[0])


def test_parameters_that_move_are_followed(watch):
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(3):
        if n == 1:
            model.fc.weight.data = model.fc.weight.data.clone()
        if n == 2:
            model.double()
        optimizer.zero_grad()
        model(torch.ones(3, 1, 4, 4, dtype=model.fc.weight.dtype)).sum().backward()
        before = model.fc.weight.detach().clone()
        optimizer.step()
        assert (session.made[0].steps[n]["Net_fc.weight"] == before.numpy()).all()
    assert {s["dtype"] for s in session.made[0].specs if s["name"] == "Net_fc.weight"} == {"float32", "float64"}


def test_groups_that_grow_are_followed(watch):
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    for n in range(2):
        model(torch.ones(3, 1, 4, 4)).sum().backward()
        optimizer.step()
        if n == 0:
            optimizer.add_param_group({"params": model.conv1.parameters(), "lr": 0.01})
    run = session.made[0]
    assert ("gradient/Net_conv1.weight", 0, 0) in run.steps[-1].values
    assert len(run.contexts["optimizer/SGD"][-1][1]["groups"]) == 2


def test_root_that_contains_the_model_wins_over_the_model():
    model = Net()
    whole = nn.Sequential(model)
    assert discover(list(model.parameters())) == [whole]


def test_unit_axes():
    assert [output_unit_axis("conv", 4), output_unit_axis("linear", 3), output_unit_axis("relu", 4),
            output_unit_axis("relu", 2), output_unit_axis("", 1)] == [1, 2, 1, 1, -1]


def test_model_is_freed_when_the_script_drops_it(watch):
    import gc
    import weakref
    watch()
    model = Net()
    train(model)
    ref = weakref.ref(model)
    del model
    gc.collect()
    assert ref() is None


def test_what_a_search_waits_for_a_busy_machine_is_not_its_own_time(monkeypatch):
    """A second model in the process went unseen where 0.2 s of searching had taken two."""
    names = tdbg_names.Names()
    names._search_seconds_left = 0.05
    monkeypatch.setattr(tdbg_names, "discover", lambda parameters: time.sleep(0.2) or [])
    names.resolve([torch.nn.Parameter(torch.ones(1))])
    assert names._search_seconds_left > 0
