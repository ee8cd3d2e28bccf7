"""What no optimizer changes: frozen weights, a teacher's, buffers. A row at every step, and no look where nothing changed."""

import copy
import gc
import math
import os
import subprocess
import weakref

import numpy as np
import pytest
import tdbg
import torch
from torch import nn

from tdbg import _capture
from tdbg.adaptors.torch import params, untrained

STEPS = 4


class Net(nn.Module):
    def __init__(self, frozen=3):
        super().__init__()
        self.frozen, self.norm, self.head = nn.Linear(4, frozen), nn.BatchNorm1d(frozen), nn.Linear(frozen, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.norm(self.frozen(x)))


def train(model, steps=STEPS, before_step=None, optimizer=None):
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    seen = []
    for n in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        if before_step:
            before_step(n)
        seen.append({k: v.detach().clone().numpy() for k, v in model.state_dict().items() if v.is_floating_point()})
        optimizer.step()
    return seen


def test_buffers_and_frozen_weights_have_a_row_at_every_step(watch):
    session = watch()
    model = Net()
    seen = train(model)
    run = session.made[0]
    for step, values in zip(run.steps, seen, strict=True):
        assert {name for name, _, _ in step.values} >= {f"Net_{k}" for k in values}
        for key, value in values.items():
            assert np.array_equal(step[f"Net_{key}"], value), key
    assert run.spec("Net_norm.running_var")["kind"] == "buffer" and run.spec("Net_frozen.bias")["kind"] == "bias"
    assert run.spec("Net_norm.running_mean")["module_kind"] == "norm"
    assert "Net_norm.num_batches_tracked" not in [s["name"] for s in run.specs], "a count is no weight"
    assert run.said["Net_frozen.weight"] == [False, True, True, True]
    assert run.said["Net_norm.running_mean"] == [False] * STEPS
    assert "Net_head.weight" not in run.said


def test_of_what_did_not_change_the_statistics_are_said_again_without_a_look(tmp_path):
    torch.manual_seed(1)
    model = Net(frozen=100)                       # 400 elements: a histogram goes with it
    with tdbg.attach(dir=str(tmp_path / "run"), config={"rules": [], "summaries": {"histograms": 1}}) as attached:
        train(model)
        run = attached._session.run
    assert run.counters()["repeats"] == 2 * (STEPS - 1), "of the frozen weight and bias"
    frozen = tdbg.open(str(tmp_path / "run"))["frozen.weight"]
    values = model.frozen.weight.detach().numpy()
    for step in range(STEPS):
        row = frozen.summary(step)
        assert row.min == values.min() and row.max == values.max() and row.count == 400
        for found, first in zip(frozen.histogram(step), frozen.histogram(0), strict=True):
            assert np.array_equal(found, first)


class Beside(torch.Tensor):
    """Lies in memory like any other, and only torch can tell."""


def all_in(model):
    """An optimizer of everything, frozen or not, as scripts make it."""
    return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)


def test_what_an_optimizer_has_and_cannot_change_is_looked_at_once(tmp_path):
    """It has no gradient. Counted are the looks: each is a pass over the memory."""
    model = Net(frozen=100)
    model.unused = nn.Linear(3, 3)                # may be trained, and no loss reaches it
    with tdbg.attach(dir=str(tmp_path / "run"), config={"rules": []}) as attached:
        train(model, optimizer=all_in(model))
        run = attached._session.run
    assert run.counters()["repeats"] == 4 * (STEPS - 1)
    trial = tdbg.open(str(tmp_path / "run"))
    for name in ("frozen.weight", "unused.bias"):
        assert trial[name].steps() == [0, 1, 2, 3]
        assert trial[name].summary(3).max == dict(model.named_parameters())[name].max().item()
    assert trial.dropped() == []


@pytest.mark.parametrize("way", ["read in C", "read by torch", "of a subclass", "gradients not wanted"])
def test_frozen_in_an_optimizer_or_not_the_rows_are_the_same(watch, monkeypatch, way):
    if way == "read by torch":
        for module in (params, untrained):
            monkeypatch.setattr(module, "READER", None)
    runs = []
    for whole in (False, True):
        torch.manual_seed(4)
        session = watch(**({"kinds": ("weight", "bias", "buffer", "loss")} if way == "gradients not wanted" else {}))
        model = Net()
        if way == "of a subclass":
            model.frozen.weight = nn.Parameter(torch.ones(3, 4).as_subclass(Beside), requires_grad=False)
        seen = train(model, 6, lambda n: in_place(model.frozen.weight) if n == 3 else None,
                     all_in(model) if whole else torch.optim.AdamW(
                         [p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1))
        session.finish("completed")
        runs.append(session.made[0])
        assert session.made[0].said["Net_frozen.weight"] == [False, True, True, False, True, True]
        for step, values in zip(session.made[0].steps, seen, strict=True):
            assert np.array_equal(step["Net_frozen.weight"], values["frozen.weight"])
    beside, inside = runs
    assert inside.twice == [] and inside.lost == []
    for a, b in zip(beside.steps, inside.steps, strict=True):
        assert a.values.keys() == b.values.keys()
        assert all(np.array_equal(a.values[key], b.values[key]) for key in a.values)
    # The gradients that an optimizer lacks are named whether gradients are recorded or not.
    (_, absent), = inside.contexts["gradients_absent"]
    assert sorted(absent["names"]) == ["Net_frozen.bias", "Net_frozen.weight"]


def test_weights_that_have_a_gradient_now_and_then(watch):
    """Experts that are chosen by turns."""
    session = watch()
    model = nn.ModuleList([nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for n in (0, 0, 1, 0, 1, 1):
        optimizer.zero_grad()
        model[n](torch.ones(2, 3)).sum().backward()
        seen.append([m.weight.detach().clone().numpy() for m in model])
        optimizer.step()
    run = session.made[0]
    for step, values in zip(run.steps, seen, strict=True):
        for n, value in enumerate(values):
            assert np.array_equal(step[f"ModuleList_{n}.weight"], value)
    assert run.said["ModuleList_1.weight"] == [False, True, False], "at rest in steps 0, 1 and, changed meanwhile, in 3"


def test_in_an_optimizer_and_on_a_device_nothing_is_computed_again(watch):
    session = watch(force_lane=True)
    model = Net(frozen=40)
    train(model, optimizer=all_in(model))
    session.finish("completed")
    run = session.made[0]
    assert [("Net_frozen.weight", 0, 0) in s.summaries for s in run.steps] == [True] * STEPS and run.lost == []


def in_place(weight):
    with torch.no_grad():
        weight[1] += 1


def behind_its_back(weight):
    weight.data.mul_(0.9)               # as hand-written averages do; its version stays


def moved(weight):
    weight.data = weight.data * 0.9


def through_numpy(weight):
    weight.detach().numpy()[1] = 7


@pytest.mark.parametrize("change", [in_place, behind_its_back, moved, through_numpy])
@pytest.mark.parametrize("size", [3, 3000])
def test_a_change_is_seen_at_its_step(watch, change, size):
    session = watch()
    model = Net(frozen=size)
    seen = train(model, before_step=lambda n: change(model.frozen.weight) if n == 2 else None)
    run = session.made[0]
    assert run.said["Net_frozen.weight"] == [False, True, False, True]
    assert run.said["Net_frozen.bias"] == [False, True, True, True]
    assert np.array_equal(run.steps[2]["Net_frozen.weight"], seen[2]["frozen.weight"])


def test_what_reads_tensors_makes_no_difference(watch, monkeypatch):
    """With DLPack's table and without: the same rows, and the same that are said again. Whatever is at a place by turns."""
    runs = []
    for reader in (untrained.READER, None):
        monkeypatch.setattr(untrained, "READER", reader)
        torch.manual_seed(5)
        session = watch()
        model = Net(frozen=4)
        model.register_buffer("kept", torch.arange(16.0).view(4, 4))
        model.register_buffer("queue", torch.zeros(0))
        first, beside = model.kept, torch.arange(1.0, 17).view(4, 4).as_subclass(Beside)
        held = {1: first, 2: first.t(), 3: first, 4: beside, 5: beside, 6: first, 7: beside, 9: first.double(), 11: first}

        def change(n):
            model.kept = held.get(n, model.kept)
            if n in (3, 8):
                in_place(model.frozen.weight)
            if n == 5:
                behind_its_back(model.frozen.bias)
            model.queue = torch.ones(n % 3)

        values = train(model, 14, change)
        session.finish("completed")
        runs.append((session.made[0], values))
    (run, values), (other, _) = runs
    assert run.said == other.said
    assert [n for n in (3, 8) if run.said["Net_frozen.weight"][n]] == [] and True in run.said["Net_kept"]
    for step, same, seen in zip(run.steps, other.steps, values, strict=True):
        assert {k for k, _, _ in step.values} == {k for k, _, _ in same.values}
        for key in ("kept", "frozen.weight", "frozen.bias"):
            assert np.array_equal(step[f"Net_{key}"], seen[key]) and np.array_equal(same[f"Net_{key}"], seen[key]), key


def test_a_change_that_nothing_shows_is_seen_when_everything_is_looked_at_again(watch, monkeypatch):
    monkeypatch.setattr(untrained, "LOOK_EVERY", 8)
    session = watch()
    model = Net(frozen=3000)

    def change(n):
        if n == 2:
            model.frozen.weight.data.view(-1)[17] = math.inf        # between two pieces of the sample

    train(model, 12, change)
    said = session.made[0].said["Net_frozen.weight"]
    assert said[0] == 0 and said[1:].count(_capture.WORTH_A_LOOK) in (1, 2) and _capture.WORTH_A_LOOK in said[2:11]
    assert 0 not in said[1:]


def test_a_buffer_may_be_another_tensor_every_time(watch):
    class Averaging(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.register_buffer("average", torch.zeros(4))
            self.register_buffer("nothing", None)
            self.register_buffer("queue", torch.zeros(0))

        def forward(self, x):
            self.average = 0.9 * self.average + 0.1 * x.mean(0)
            self.queue = torch.cat([self.queue, x.mean().detach()[None]])
            return super().forward(x)

    session = watch()
    seen = train(Averaging())
    for step, values in zip(session.made[0].steps, seen, strict=True):
        assert np.array_equal(step["Averaging_average"], values["average"])
        assert np.array_equal(step["Averaging_queue"], values["queue"])


def test_a_buffer_that_grows_is_not_defined_at_every_step(watch):
    class Growing(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)
            self.register_buffer("queue", torch.zeros(0))

        def forward(self, x):
            self.queue = torch.cat([self.queue, x.mean().detach()[None]])
            return super().forward(x)

    session = watch()
    seen = train(Growing(), 6)
    run = session.made[0]
    assert len([s for s in run.specs if s["name"] == "Growing_queue"]) == 2, "as it was found, and as one whose length varies"
    for step, values in zip(run.steps, seen, strict=True):
        assert np.array_equal(step["Growing_queue"], values["queue"])


def test_memory_that_somebody_took_and_left_the_shape_is_not_read(watch):
    """As offloading libraries do: a look at it would be the training's end."""
    session, model = watch(), Net()
    model.register_buffer("large", torch.ones(5000))

    def empty_and_fill(n):
        if n == 2:
            model.large.untyped_storage().resize_(0)
        if n == 3:
            model.large.untyped_storage().resize_(5000 * 4)
            model.large.fill_(2)

    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    for n in range(4):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        empty_and_fill(n)
        optimizer.step()
    steps = session.made[0].steps
    assert [("Net_large", 0, 0) in s.values for s in steps] == [True, True, False, True]
    assert (steps[3]["Net_large"] == 2).all()


def test_a_teacher_that_the_session_knows(watch):
    torch.manual_seed(3)
    session = watch()
    model = Net()
    teacher = copy.deepcopy(model).requires_grad_(False)
    session.add_model(model)
    session.add_model(teacher)
    kept = []

    def average(n):
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters()):
                slow.mul_(0.5).add_(fast, alpha=0.5)
        kept.append(teacher.head.weight.detach().clone().numpy())

    train(model, before_step=average)
    steps = session.made[0].steps
    assert [np.array_equal(s["Net_1_head.weight"], k) for s, k in zip(steps, kept, strict=True)] == [True] * STEPS
    assert session.made[0].said["Net_1_norm.running_mean"] == [False, True, True, True]


def test_a_mask_is_infinite_by_design(watch):
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))
            self.register_buffer("table", torch.ones(4))

    session = watch()
    train(Masked())
    names = {s["name"] for s in session.made[0].specs}
    assert "Masked_table" in names and "Masked_mask" not in names


def test_weights_that_come_into_an_optimizer_and_leave_it(watch):
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def thaw(n):
        if n == 1:
            model.frozen.requires_grad_(True)
            optimizer.add_param_group({"params": list(model.frozen.parameters())})

    seen = train(model, before_step=thaw, optimizer=optimizer)
    run = session.made[0]
    for step, values in zip(run.steps, seen, strict=True):
        assert np.array_equal(step["Net_frozen.weight"], values["frozen.weight"])
    assert run.said["Net_frozen.weight"] == [False, False], "in step 1 it is the optimizer's, and has no gradient yet"


def test_one_made_in_inference_mode_has_no_version(watch):
    session = watch()
    model = Net()
    with torch.inference_mode():
        model.norm.register_buffer("extra", torch.ones(3))
    train(model)
    assert session.made[0].said["Net_norm.extra"][:3] == [False, True, True]


def test_a_model_that_the_script_drops_is_freed(watch):
    session = watch()
    model, teacher = Net(), Net()
    session.add_model(model)
    session.add_model(teacher)
    reference, kept = weakref.ref(teacher), weakref.ref(teacher.norm.running_mean)

    def drop(n):
        nonlocal teacher
        teacher = None

    train(model, before_step=drop)
    gc.collect()
    assert reference() is None and kept() is None
    assert ("Net_1_norm.running_mean", 0, 0) not in session.made[0].steps[-1].values


def test_the_final_values_are_recorded(watch):
    session = watch()
    model = Net()
    train(model)
    session.finish("completed")
    end = session.made[0].end_values
    for key in ("frozen.weight", "norm.running_var"):
        assert np.array_equal(end[f"Net_{key}", 0, 0], model.state_dict()[key].numpy())


def test_on_a_device_nothing_is_computed_again(watch):
    session = watch(force_lane=True)
    model = Net(frozen=40)
    train(model, before_step=lambda n: in_place(model.frozen.weight) if n == 2 else None)
    session.finish("completed")
    run = session.made[0]
    rows = [s.summaries["Net_frozen.weight", 0, 0] for s in run.steps]
    assert np.array_equal(rows[0], rows[1]) and np.array_equal(rows[2], rows[3]) and not np.array_equal(rows[1], rows[2])
    assert run.lost == []


def test_a_step_without_statistics_does_not_hide_a_change(tmp_path):
    model = Net()
    config = {"rules": [], "summaries": {"every": 2}, "collections": {"weights": {"save_interval": 1}}}
    with tdbg.attach(dir=str(tmp_path / "run"), config=config):
        train(model, before_step=lambda n: in_place(model.frozen.weight) if n == 1 else None)
    trial = tdbg.open(str(tmp_path / "run"))
    frozen = trial["frozen.weight"]
    assert frozen.steps(kind="raw") == [0, 1, 2, 3], "values are there at every step at which they are due"
    assert frozen.summary(2).max == model.frozen.weight.max().item()
    assert trial.dropped() == []


@pytest.mark.skipif("TDBG_CLI" not in os.environ, reason="the command line is not built")
def test_a_rule_that_compares_values_sees_that_a_frozen_weight_does_not_move(tmp_path):
    with tdbg.attach(dir=str(tmp_path / "run"), config={"rules": [], "collections": {"weights": {"save_interval": 1}}}):
        train(Net())
    for rule in (["weight_update_ratio"], ["unchanged_tensor", "collection_names=weights"]):
        done = subprocess.run([os.environ["TDBG_CLI"], "check", str(tmp_path / "run"), "--rule", *rule, "interval=1"],
                              capture_output=True, text=True, timeout=60)
        assert "Net_frozen.weight" in done.stdout and "Net_head.weight" not in done.stdout, (rule, done.stdout, done.stderr)


def test_forwards_as_steps_take_buffers_where_they_are_asked_for(watch):
    plan = {"step_by": "forward", "collections": [{"name": "buffers", "keep": True}]}
    for wanted in (True, False):
        session = watch(plan={**plan, "collections": plan["collections"] if wanted else []})
        train(Net())
        session.finish("completed")
        assert [("Net_norm.running_mean", 0, 0) in s.values for s in session.made[0].steps] == [wanted] * STEPS
