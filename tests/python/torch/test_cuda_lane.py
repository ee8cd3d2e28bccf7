"""Host tensors that pose as a GPU's, through the kernels' own source on the CPU: what a run then holds is what it holds of the
same training on the host."""

import sys
import threading

import fake_cuda
import numpy as np
import pytest
import torch
from torch import nn

from tdbg.adaptors.torch import cuda, late_steps

CLOSE = dict(rtol=1e-5, atol=1e-7)     # of moments: docs/statistics.md


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    fake_cuda.pose(monkeypatch, cuda)
    yield
    fake_cuda.reset()


def reference(x):
    x = np.asarray(x, np.float64).reshape(-1)
    ok = x[np.isfinite(x)]
    counts = [x.size, np.isnan(x).sum(), (x == np.inf).sum(), (x == -np.inf).sum(), (x == 0).sum()]
    d, a = ok - ok.mean(), np.abs(ok)
    return np.array(counts + [ok.min(), ok.max(), ok.mean(), (d ** 2).mean(), (d ** 3).mean(), (d ** 4).mean(),
                              a.sum(), np.sqrt((ok ** 2).sum()), a.min(), a.max()])


def train(steps=4, optimizer=None, model=None, before=lambda step: None):
    torch.manual_seed(0)
    model = model or nn.Linear(20, 10)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    weights = []
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
        weights.append(model.weight.detach().clone())
        optimizer.step()
    return model, optimizer, weights


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
    train(2, optimizer, _with_weight(model))
    before = fake_cuda.calls("cuLaunchKernel")
    train(1, optimizer, _with_weight(model))
    assert fake_cuda.calls("cuLaunchKernel") - before == 2
    del session


def _with_weight(model):
    model.weight = model[0].weight
    return model


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
    keep = train(3, model=_with_weight(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))))
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


def test_raw_values_in_a_graph_are_counted_where_they_are_due(watch):
    session = watch(force_lane="cuda", plan=RAW)
    model, optimizer, _ = train(3)
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    torch.manual_seed(0)
    nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
    optimizer.step()
    graph.capture_end()
    for _ in range(4):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert raw_steps(run) == [True, False, True, False, False, False, False]
    assert all(("Linear_weight", 0, 0) in s.summaries for s in run.steps)
    assert [(count, "replayed from a CUDA graph" in why) for _, count, why in run.lost] == [(2, True)] * 2


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


def part_of_a_step(watch, kinds):
    """(run, model) of a training whose forward and backward are a graph, and its update is not."""
    session = watch(force_lane="cuda", kinds=kinds)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def forward_and_backward():
        model(torch.ones(8, 20)).square().mean().backward()

    for _ in range(2):
        forward_and_backward()
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    forward_and_backward()
    graph.capture_end()
    for _ in range(5):
        graph.replay()
        optimizer.step()
    session.finish("completed")
    return session.made[0]


def test_forward_and_backward_in_a_graph_and_an_update_that_is_not_are_a_step(watch):
    run = part_of_a_step(watch, ("weight", "gradient", "loss"))
    assert len(run.train) == 7 and not run.lost
    assert all(("gradient/0.weight" in {n for n, *_ in s.summaries}) or any("gradient" in n for n, *_ in s.summaries)
               for s in run.train)


def test_outputs_and_their_gradients_in_a_graph_belong_to_the_step_whose_update_follows(watch):
    run = part_of_a_step(watch, ("weight", "output", "output_gradient"))
    assert len(run.train) == 7 and not run.lost
    wanted = {f"{what}{n}_output_0" for what in ("", "output_gradient/") for n in range(3)}
    for step in run.train:
        assert wanted <= {name for name, *_ in step.summaries}, "three of one shape among them"


def test_a_whole_step_in_a_graph_has_its_outputs_and_their_gradients(watch):
    session = watch(force_lane="cuda", kinds=("weight", "output", "output_gradient"))
    model, optimizer, _ = train(2, model=_with_weight(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))))
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
    optimizer.step()
    graph.capture_end()
    for _ in range(4):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 6
    for step in run.steps:
        assert {"0_output_0", "output_gradient/0_output_0", "output_gradient/1_output_0"} <= {n for n, *_ in step.summaries}


def test_what_a_graph_has_and_no_step_before_it_had_is_counted_with_every_replay(watch):
    session = watch(force_lane="cuda", kinds=("weight", "output"))
    model, optimizer, _ = train(2, model=_with_weight(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))))
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    model(torch.ones(3, 20)).square().mean().backward()       # another batch size
    optimizer.step()
    graph.capture_end()
    for _ in range(2):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert [("nothing was prepared" in why) for *_, why in run.lost] == [True, True]
    assert all(("0_output_0", 0, 0) not in s.summaries for s in run.steps[2:])


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


def test_a_whole_step_in_a_graph_is_a_step_with_every_replay(watch):
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(3)          # warm, as torch's documentation has it

    def update():
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)

    graph = torch.cuda.CUDAGraph(update)
    graph.capture_begin()
    torch.manual_seed(0)
    nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
    optimizer.step()
    graph.capture_end()
    weights = []
    for _ in range(10):
        weights.append(model.weight.detach().clone())
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 13, "three by hand, none of the capture, ten replays"
    for step, weight in zip(run.steps[3:], weights, strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)


def whole_step(model, optimizer, graph):
    graph.capture_begin()
    torch.manual_seed(0)
    nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
    optimizer.step()
    graph.capture_end()


def test_a_graph_that_another_thread_launches_leaves_later_steps_their_own_values(watch):
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(3)

    def update():
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)

    graph = torch.cuda.CUDAGraph(update)
    whole_step(model, optimizer, graph)
    weights = []
    for n in range(6):
        if n == 2:
            thread = threading.Thread(target=graph.replay)
            thread.start()
            thread.join()
        weights.append(model.weight.detach().clone())
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert len(run.steps) == 9
    for step, weight in zip(run.steps[3:], weights, strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)
    assert [(cause, "another thread" in why) for cause, _, why in run.lost] == [("unsupported", True)]


def test_an_object_that_is_captured_into_again_holds_its_last_capture_alone(watch):
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(3)
    graph = torch.cuda.CUDAGraph()
    for _ in range(2):          # torch's has a `reset()`
        whole_step(model, optimizer, graph)
        for _ in range(2):
            graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 3 + 2 + 2


def test_a_capture_before_anything_was_seen_is_left_alone_and_said(watch, capfd):
    session = watch(force_lane="cuda")
    model = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    train(1, optimizer, model)
    graph.capture_end()
    for _ in range(3):
        graph.replay()
    train(2, optimizer, model)
    session.finish("completed")
    assert len(session.made[0].steps) == 2
    assert capfd.readouterr().err.count("captured in a CUDA graph") == 1


def test_graphed_callables_see_no_hooks(watch, monkeypatch):
    seen = []

    def make_graphed_callables(callables, sample_args):
        module = callables
        seen.append([len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()])
        if any(seen[-1]):
            raise RuntimeError("Modules must not have hooks registered at the time they are passed.")
        module.register_forward_hook(mine)
        return module

    def mine(module, args, output):
        pass

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make_graphed_callables)
    session = watch(force_lane="cuda", kinds=("weight", "gradient", "loss", "output"))
    model = _with_weight(nn.Sequential(nn.Linear(20, 10)))
    model, optimizer, _ = train(2, model=model)
    before = [list(m._forward_hooks.values()) for m in model.modules()]
    assert any(before)
    torch.cuda.make_graphed_callables(model, (torch.ones(2, 20),))
    assert seen == [[0] * len(before)]
    assert [[h for h in m._forward_hooks.values() if h is not mine] for m in model.modules()] == before
    assert mine in model._forward_hooks.values()
    train(1, optimizer, model)
    session.finish("completed")
    assert len(session.made[0].steps) == 3


def test_nothing_of_a_tensor_is_held_beyond_its_launch(watch):
    session = watch(force_lane="cuda")
    keep = train(2)
    assert session.port._waiting == {}
    assert session.port.device_bytes <= (16 << 20) + 9216 * 8
    del keep
