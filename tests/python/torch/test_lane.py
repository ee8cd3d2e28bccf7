"""The lane of devices without kernels of ours, with host tensors forced through it."""

import functools
import threading

import numpy as np
import pytest
import torch
import lane_training
from lane_training import reference
from torch import nn

from tdbg.adaptors.torch import late_steps, other_devices


train = functools.partial(lane_training.train, inputs=6, outputs=5)


@pytest.mark.parametrize("values", [
    [1.0, -2.0, 0.0, 3.5], [float("nan"), float("inf"), -float("inf"), 1.0, 0.0], [float("nan")] * 3, [],
    np.linspace(-3, 5, 1000)])
def test_fifteen_numbers(values, monkeypatch):
    monkeypatch.setattr(other_devices, "CHUNK", 7)
    x = torch.tensor(values, dtype=torch.float64)
    np.testing.assert_allclose(other_devices.summarize(x).numpy(), reference(values), rtol=1e-12, atol=1e-12)


def test_integers_and_half():
    for dtype in (torch.int64, torch.bool, torch.bfloat16, torch.uint8):
        x = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
        np.testing.assert_allclose(other_devices.summarize(x).numpy(), reference(x.double().numpy()))


def test_statistics_of_the_weights_before_the_update(watch):
    session = watch(force_lane=True)
    keep = train()
    run = session.made[0]
    assert len(run.steps) == 4
    for step, weight in zip(run.steps, keep[2]):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight.numpy()), rtol=1e-9)
        assert step.values["Linear_bias", 0, 0].shape == (5,), "small ones travel whole"
        assert step["MSELoss_output_0"].dtype == np.float32
        assert step.scalars["context/batch_size", 0] == 2


def test_small_tensors_of_the_type_that_travels_are_those_before_the_update(watch):
    session = watch(force_lane=True)
    model = nn.Linear(2, 2).double()
    optimizer, weights = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 2, dtype=torch.float64)).sum().backward()
        weights.append(model.weight.detach().clone().numpy())
        optimizer.step()
    for step, weight in zip(session.made[0].steps, weights, strict=True):
        assert np.array_equal(step["Linear_weight"], weight)


def test_raw_values_where_they_are_due(watch):
    plan = {"collections": [{"name": "weights", "keep": True, "raw": {"train": {"interval": 2}}}]}
    session = watch(force_lane=True, plan=plan)
    keep = train()
    run = session.made[0]
    assert [("Linear_weight", 0, 0) in s.values for s in run.steps] == [True, False, True, False]
    assert np.array_equal(run.steps[2]["Linear_weight"], keep[2][2].numpy())


class Slow(other_devices._Copy):
    """A copy that has not arrived until somebody says so."""

    arrived = False

    def ready(self):
        return Slow.arrived


def test_steps_wait_their_turn_and_the_late_go_without(watch, monkeypatch):
    monkeypatch.setattr(other_devices, "_Copy", Slow)
    monkeypatch.setattr(late_steps, "MAX_LAG", 3)
    Slow.arrived = False
    session = watch(force_lane=True)
    model, optimizer, _ = train(5)
    run = session.made[0]
    assert len(run.steps) == 2, "three are under way"
    assert run.steps[0].summaries == {} and run.steps[0].scalars["context/batch_size", 0] == 2
    assert run.lost[0][0] == "device_late" and run.lost[0][1] == 6
    Slow.arrived = True
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    assert len(run.steps) == 6 and [s.mode_step for s in run.steps] == list(range(6))
    assert run.steps[2].summaries and run.steps[5].summaries


def test_the_end_waits_for_what_is_under_way(watch, monkeypatch):
    monkeypatch.setattr(other_devices, "_Copy", Slow)
    monkeypatch.setattr(late_steps, "PATIENCE", 60.0)
    Slow.arrived = False
    session = watch(force_lane=True)
    model, _, _ = train(2)
    threading.Timer(0.05, lambda: setattr(Slow, "arrived", True)).start()
    assert session.made[0].steps == []
    session.finish("completed")
    run = session.made[0]
    assert len(run.steps) == 2 and run.steps[1].summaries
    assert np.array_equal(run.end_values["Linear_weight", 0, 0], model.weight.detach().numpy())


def test_nothing_due_enqueues_nothing(watch):
    session = watch(force_lane=True, plan={"summaries_every": 2}, due=lambda mode, s: s % 2 == 0)
    keep = train()
    assert [bool(s.summaries) for s in session.made[0].steps] == [True, False, True, False]
    del keep
