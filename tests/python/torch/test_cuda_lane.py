"""Host tensors that pose as a GPU's, through the kernels' own source on the CPU: what a run then holds is what it holds of the
same training on the host."""

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


def test_raw_values_of_what_is_due_alone(watch):
    plan = {"collections": [{"name": "weights", "keep": True, "raw": {"train": {"interval": 2}}}]}
    session = watch(force_lane="cuda", plan=plan)
    keep = train()
    session.finish("completed")
    run = session.made[0]
    assert [("Linear_weight", 0, 0) in s.values for s in run.steps] == [True, False, True, False]
    assert np.array_equal(run.steps[2]["Linear_weight"], keep[2][2].numpy())


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
