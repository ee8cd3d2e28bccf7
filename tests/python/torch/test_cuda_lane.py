"""Host tensors that pose as a GPU's, through the kernels' own source on the CPU: what a run then holds is what it holds of the
same training on the host."""

import sys
import threading

import fake_cuda
import numpy as np
import pytest
import torch
from lane_training import CLOSE, reference, train, with_weight
from torch import nn

from tdbg.adaptors.torch import cuda, late_steps


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    fake_cuda.pose(monkeypatch, cuda)
    yield
    fake_cuda.reset()


def test_every_step_has_the_weights_before_its_update(watch):
    session = watch(force_lane="cuda")
    keep = train()
    session.finish("completed")
    run = session.made[0]
    assert len(run.steps) == 4 and not run.lost
    for step, weight in zip(run.steps, keep[2], strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)
        assert step.values["Linear_bias", 0, 0].shape == (10,), "small ones travel whole"
        assert step["MSELoss_output_0"].dtype == np.float32
        assert step.scalars["context/batch_size", 0] == 2
    assert run.steps[0].summaries["gradient/Linear_weight", 0, 0][0] == 200


def test_a_step_of_parameters_is_a_launch_or_two(watch):
    session = watch(force_lane="cuda")
    model = nn.Sequential(*(nn.Linear(20, 20) for _ in range(30)), nn.Linear(20, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(2, optimizer, with_weight(model))
    before = fake_cuda.calls("cuLaunchKernel")
    train(1, optimizer, with_weight(model))
    assert fake_cuda.calls("cuLaunchKernel") - before == 2
    del session


def test_steps_come_in_order_however_late(watch):
    session = watch(force_lane="cuda")
    fake_cuda.set("delay_us=3000")
    keep = train(12)
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and [s.mode_step for s in run.steps] == list(range(12))
    for step, weight in zip(run.steps, keep[2], strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)


def test_what_is_too_late_is_left_out_and_counted(watch, monkeypatch):
    monkeypatch.setattr(late_steps, "MAX_LAG", 3)
    session = watch(force_lane="cuda")
    fake_cuda.set("hold=1")
    keep = train(5)
    run = session.made[0]
    assert len(run.steps) == 2 and not run.steps[0].summaries and run.steps[0].scalars["context/batch_size", 0] == 2
    assert run.lost[0][:2] == ("device_late", 6)
    fake_cuda.set("hold=0")
    session.finish("completed")
    assert [bool(s.summaries) for s in run.steps] == [False, False, True, True, True]
    del keep


def test_the_end_waits_for_a_while_and_then_says_what_is_missing(watch, monkeypatch):
    monkeypatch.setattr(late_steps, "PATIENCE", 0.05)
    session = watch(force_lane="cuda")
    keep = train(1)
    fake_cuda.drain()
    fake_cuda.set("hold=1")
    keep2 = train(2, keep[1], keep[0])
    session.finish("completed")
    run = session.made[0]
    assert [bool(s.summaries) for s in run.steps] == [True, False, False]
    assert [cause for cause, *_ in run.lost] == ["device_late"] * 2
    del keep2


def test_a_context_that_dies_harms_nobody(watch):
    session = watch(force_lane="cuda")
    keep = train(3)
    fake_cuda.drain()
    fake_cuda.set("fail=1:700")
    keep = train(3, keep[1], keep[0])
    session.finish("completed")
    run = session.made[0]
    assert [bool(s.summaries) for s in run.steps] == [True] * 3 + [False] * 3
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in run.lost[-1][2]


def test_an_unknown_gpu_is_said_and_counted(watch):
    fake_cuda.set("image=209")
    session = watch(force_lane="cuda")
    keep = train(2)
    session.finish("completed")
    run = session.made[0]
    assert len(run.steps) == 2 and "takes none of the kernels" in run.lost[0][2]
    del keep


def test_two_optimizers_on_two_streams(watch):
    session = watch(force_lane="cuda")
    fake_cuda.set("delay_us=2000")
    torch.manual_seed(0)
    models = nn.Linear(20, 10), nn.Linear(20, 10)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    weights = []
    for _ in range(6):
        for n, (model, optimizer) in enumerate(zip(models, optimizers)):
            fake_cuda.Devices.current = 7 + n
            optimizer.zero_grad()
            model(torch.ones(2, 20)).square().mean().backward()
            weights.append(model.weight.detach().clone())
            optimizer.step()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    names = sorted((n for n, _, _ in run.steps[0].summaries if n.endswith("weight") and "gradient" not in n), key=len)
    for n, step in enumerate(run.steps):
        for k, name in enumerate(names):
            np.testing.assert_allclose(step.summaries[name, 0, 0], reference(weights[2 * n + k]), **CLOSE)


def test_evaluation_first_has_its_loss(watch):
    session = watch(force_lane="cuda")
    model = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10))
    model.train()
    train(2, optimizer, model)
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    assert run.steps[0].mode == 2 and run.steps[0]["MSELoss_output_0"] == loss.numpy()
    assert run.steps[1].summaries


def test_outputs_and_step_0(watch):
    session = watch(force_lane="cuda", kinds=("weight", "gradient", "loss", "output"))
    keep = train(3, model=with_weight(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))))
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    for step in run.steps:
        assert step.summaries["0_output_0", 0, 0][0] == 128 and step.summaries["1_output_0", 0, 0][0] == 128
    del keep


def test_a_fused_update_that_is_skipped(watch):
    session = watch(force_lane="cuda")

    def before(step):
        optimizer.found_inf = torch.tensor([1.0 if step == 1 else 0.0])

    model = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    optimizer.grad_scale = torch.tensor(2.0)
    train(3, optimizer, model, before)
    session.finish("completed")
    assert [s.skipped for s in session.made[0].steps] == [False, True, False]


def test_copies_that_are_made_of_gradients_are_not_all_held_until_the_step_is_launched(watch, monkeypatch):
    monkeypatch.setattr(cuda, "MOST_COPIES", 1000)
    session = watch(force_lane="cuda")
    model = nn.Sequential(*(nn.Linear(20, 20) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(2.0), torch.tensor([0.0])
    model(torch.ones(2, 20)).square().mean().backward()
    expected = [layer.weight.grad.detach().clone() / 2 for layer in model]
    before = fake_cuda.calls("cuLaunchKernel")
    optimizer.step()
    assert fake_cuda.calls("cuLaunchKernel") - before >= 12, "a batch for each gradient of 1,600 bytes"
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    for n, gradient in enumerate(expected):
        found = next(row for (name, *_), row in run.steps[0].summaries.items()
                     if name.startswith("gradient/") and name.endswith(f"{n}.weight"))
        np.testing.assert_allclose(found, reference(gradient), **CLOSE)


def test_a_copy_for_which_there_is_no_memory_is_left_out_alone(watch, monkeypatch):
    def contiguous(tensor):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    session = watch(force_lane="cuda")
    model = nn.Linear(20, 10)
    model.weight = nn.Parameter(torch.randn(10, 40)[:, ::2])
    with monkeypatch.context() as without:
        without.setattr(torch.Tensor, "contiguous", contiguous)
        keep = train(1, model=model)
    session.finish("completed")
    run = session.made[0]
    assert {name for name, *_ in run.steps[0].summaries} == {"gradient/Linear_weight"}
    (cause, count, why), = run.lost
    assert (cause, count) == ("device_late", 1) and "no memory left" in why
    del keep


RAW = {"collections": [{"name": "weights", "keep": True, "raw": {"train": {"interval": 2}}}]}


def raw_steps(run):
    return ["Linear_weight" in {name for name, *_ in s.values} for s in run.steps]


def test_raw_values_of_what_is_due_alone_beside_the_devices_own_statistics(watch):
    session = watch(force_lane="cuda", plan=RAW)
    keep = train()
    session.finish("completed")
    run = session.made[0]
    assert raw_steps(run) == [True, False, True, False] and not run.lost
    assert np.array_equal(run.steps[2]["Linear_weight"], keep[2][2].numpy())
    for step, weight in zip(run.steps, keep[2], strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)


def test_raw_values_of_many_steps_under_way_are_each_their_own_in_memory_that_does_not_grow(watch):
    session = watch(force_lane="cuda", plan=RAW)
    fake_cuda.set("delay_us=3000")
    model, optimizer, weights = train(4)
    pinned = session.port.raw_pinned_bytes
    weights += train(20, optimizer, model)[2]
    assert session.port.raw_pinned_bytes == pinned > 0
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and raw_steps(run) == [True, False] * 12
    for step, weight in list(zip(run.steps, weights, strict=True))[::2]:
        assert np.array_equal(step["Linear_weight"], weight.numpy())


def test_raw_values_without_memory_are_counted_and_have_their_statistics(watch):
    session = watch(force_lane="cuda", plan=RAW)
    fake_cuda.set("memory=3000000")       # for the statistics, and for no ring
    keep = train(2)
    session.finish("completed")
    run = session.made[0]
    assert raw_steps(run) == [False, False] and all(("Linear_weight", 0, 0) in s.summaries for s in run.steps)
    (cause, count, why), = run.lost
    assert (cause, count) == ("device_late", 2) and "no pinned memory" in why
    del keep


def test_of_a_context_that_dies_with_raw_values_under_way_what_arrived_is_there(watch):
    session = watch(force_lane="cuda", plan=RAW)
    model, optimizer, weights = train(3)
    fake_cuda.drain()
    fake_cuda.set("fail=1:700")
    train(3, optimizer, model)
    session.finish("completed")
    run = session.made[0]
    assert raw_steps(run) == [True, False, True, False, False, False]
    assert np.array_equal(run.steps[2]["Linear_weight"], weights[2].numpy())
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in run.lost[-1][2]


def test_gradients_of_outputs_are_what_autograd_says(watch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    x = torch.randn(8, 20)
    outputs = [x]
    for layer in model:
        outputs.append(layer(outputs[-1]))
    expected = torch.autograd.grad(outputs[-1].square().sum(), outputs[1:])
    session = watch(force_lane="cuda", kinds=("output_gradient",))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).square().sum().backward()
    optimizer.step()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    for n, gradient in enumerate(expected):
        np.testing.assert_allclose(run.steps[0].summaries[f"output_gradient/{n}_output_0", 0, 0], reference(gradient), **CLOSE)


def test_a_number_that_only_some_steps_have_takes_no_memory_for_the_parameters_once_more(watch):
    session = watch(force_lane="cuda")
    model = with_weight(nn.Sequential(*(nn.Linear(20, 20) for _ in range(60)), nn.Linear(20, 10)))
    _, optimizer, _ = train(1, model=model)
    before = session.port.device_bytes
    for n in range(4):
        for k in range(n):
            session.context.data._ready.append((f"seldom_{k}", torch.tensor(1.0)))     # as it is when it has looked
        train(1, optimizer, model)
    after = session.port.device_bytes
    session.finish("completed")
    assert not session.made[0].lost and session.made[0].steps[-1].scalars["context/seldom_2", 0] == 1.0
    assert after - before < before / 4, (before, after)


def test_threads_of_autograd_put_at_the_same_time_and_nothing_is_lost(watch):
    session = watch(force_lane="cuda", kinds=("weight", "output_gradient"))
    model, optimizer, _ = train(1)
    port = session.port
    tensors = [torch.full((300,), float(n)) for n in range(400)]
    ids = [session.define(f"output_gradient/{n}", f"{n}", "output_gradient", "", torch.float32, (300,), True)
           for n in range(400)]
    session.clock.train()
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda k=k: [port.put_device([ids[n]], [tensors[n]]) for n in range(k, 400, 2)])
                   for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    train(1, optimizer, model)
    session.finish("completed")
    run = session.made[0]
    assert not run.lost
    seen = {name: row[7] for name, row in ((n, r) for (n, *_), r in run.steps[1].summaries.items()) if "output" in name}
    assert seen == {f"output_gradient/{n}": float(n) for n in range(400)}


def test_nothing_of_a_tensor_is_held_beyond_its_launch(watch):
    session = watch(force_lane="cuda")
    keep = train(2)
    assert session.port._waiting == {}
    assert session.port.device_bytes <= (16 << 20) + 9216 * 8
    del keep
