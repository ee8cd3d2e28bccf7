"""The end of a training whose tensors are on a GPU, which may be behind, or hang."""

import fake_cuda
import pytest
import torch
from lane_training import train
from torch import nn

from tdbg.adaptors.torch import cuda, late_steps, other_devices


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    fake_cuda.pose(monkeypatch, cuda)
    yield
    fake_cuda.reset()


def test_steps_that_are_under_way_when_failures_disarm_us_are_put_all_the_same(watch):
    session = watch(force_lane="cuda")
    fake_cuda.set("hold=1")
    keep = train(3)
    session.disarm()
    fake_cuda.set("hold=0")
    session.finish("completed")
    assert [bool(s.summaries) for s in session.made[0].steps] == [True] * 3 and session.made[0].ended
    del keep


def a_device_hangs(watch, monkeypatch):
    """A session whose last step is behind a kernel that never ends, what its earlier steps needed being there."""
    monkeypatch.setattr(late_steps, "PATIENCE", 0.05)
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(2)
    fake_cuda.drain()
    train(1, optimizer, model)
    fake_cuda.drain()
    other = nn.Linear(20, 10, bias=False)
    fake_cuda.set("hold=1")
    keep = train(1, torch.optim.SGD(other.parameters(), lr=0.1), other)
    return session, (model, keep)


def test_at_the_end_of_the_process_nothing_is_freed_since_that_waits_for_the_device(watch, monkeypatch):
    session, keep = a_device_hangs(watch, monkeypatch)
    session.at_exit()
    assert not fake_cuda.calls("cuMemFree_v2") and not fake_cuda.calls("cuMemFreeHost")
    del keep


def test_a_script_that_failed_ends_although_its_device_hangs(watch, monkeypatch):
    session, keep = a_device_hangs(watch, monkeypatch)
    fake_cuda.CurrentStream.idle = False
    monkeypatch.setattr(other_devices.Final, "put_device", lambda *a, **k: pytest.fail("it waits for the device"))
    session.finish("exception", "KeyboardInterrupt: ")
    run = session.made[0]
    assert any("there are no final weights" in why for _, _, why in run.lost)
    assert not fake_cuda.calls("cuMemFree_v2")
    del keep
