"""CUDA graphs that a training captures and replays, on host tensors that pose as a GPU's."""

import threading

import fake_cuda
import numpy as np
import pytest
import torch
from lane_training import CLOSE, reference, train, with_weight
from test_cuda_lane import RAW, raw_steps
from torch import nn

from tdbg.adaptors.torch import cuda


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    fake_cuda.pose(monkeypatch, cuda)
    yield
    fake_cuda.reset()


def whole_step(model, optimizer, graph):
    graph.capture_begin()
    torch.manual_seed(0)
    nn.functional.mse_loss(model(torch.ones(2, 20)), torch.zeros(2, 10)).backward()
    optimizer.step()
    graph.capture_end()


def test_raw_values_in_a_graph_are_counted_where_they_are_due(watch):
    session = watch(force_lane="cuda", plan=RAW)
    model, optimizer, _ = train(3)
    graph = torch.cuda.CUDAGraph()
    whole_step(model, optimizer, graph)
    for _ in range(4):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert raw_steps(run) == [True, False, True, False, False, False, False]
    assert all(("Linear_weight", 0, 0) in s.summaries for s in run.steps)
    assert [(count, "replayed from a CUDA graph" in why) for _, count, why in run.lost] == [(2, True)] * 2


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
    model, optimizer, _ = train(2, model=with_weight(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))))
    graph = torch.cuda.CUDAGraph()
    whole_step(model, optimizer, graph)
    for _ in range(4):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 6
    for step in run.steps:
        assert {"0_output_0", "output_gradient/0_output_0", "output_gradient/1_output_0"} <= {n for n, *_ in step.summaries}


def test_what_a_graph_has_and_no_step_before_it_had_is_in_every_replay(watch):
    session = watch(force_lane="cuda", kinds=("weight", "output"))
    model, optimizer, _ = train(2, model=with_weight(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))))
    kept = []
    handle = model[0].register_forward_hook(lambda module, args, output: kept.append(output))
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    model(torch.ones(3, 20)).square().mean().backward()       # another batch size
    optimizer.step()
    graph.capture_end()
    handle.remove()
    for _ in range(2):
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 4
    for step in run.steps[2:]:
        np.testing.assert_allclose(step.summaries["0_output_0", 0, 0], reference(kept[0].detach()), **CLOSE)


def test_a_graph_for_which_there_is_no_memory_is_whole_and_counted_with_every_replay(watch, capfd):
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(2)
    fake_cuda.set("memory=1000")
    graph = torch.cuda.CUDAGraph()
    whole_step(model, optimizer, graph)
    for _ in range(2):
        graph.replay()
    session.finish("completed")
    assert len(session.made[0].steps) == 2
    assert "no memory for what tdbg does in it" in " ".join(capfd.readouterr().err.split())


def test_a_whole_step_in_a_graph_is_a_step_with_every_replay(watch):
    session = watch(force_lane="cuda")
    model, optimizer, _ = train(3)          # warm, as torch's documentation has it

    def update():
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)

    graph = torch.cuda.CUDAGraph(update)
    whole_step(model, optimizer, graph)
    weights = []
    for _ in range(10):
        weights.append(model.weight.detach().clone())
        graph.replay()
    session.finish("completed")
    run = session.made[0]
    assert not run.lost and len(run.steps) == 13, "three by hand, none of the capture, ten replays"
    for step, weight in zip(run.steps[3:], weights, strict=True):
        np.testing.assert_allclose(step.summaries["Linear_weight", 0, 0], reference(weight), **CLOSE)


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
    model = with_weight(nn.Sequential(nn.Linear(20, 10)))
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
