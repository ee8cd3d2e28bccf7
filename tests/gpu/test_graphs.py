"""CUDA graphs and compiled code: nothing of the script's captures breaks, and what is captured is recorded with every replay."""

import threading

import pytest
import torch
import torch.nn.functional as F
from suite import Program, Truth, check, compare, lost, parameters, same, settings, watched
from test_gpu_trainings import OPTIMIZERS, batch, mlp, plain
from torch import nn

import tdbg

pytestmark = pytest.mark.gpu
TRAIN = tdbg.ModeKeys.TRAIN


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model(tmp_path, mode):
    def make():
        model = mlp()
        program = plain(model, OPTIMIZERS["adamw_fused"](model.parameters()), call=torch.compile(model, mode=mode))
        step = program.step

        def marked(n):
            torch.compiler.cudagraph_mark_step_begin()
            step(n)

        program.step = marked
        return program
    check(tmp_path / "run", make, steps=12)


def test_a_compiled_model_with_one_graph_and_outputs_that_are_wanted(tmp_path):
    def make():
        model = mlp()
        return plain(model, OPTIMIZERS["adamw_fused"](model.parameters()), call=torch.compile(model, fullgraph=True))
    # Outputs that are wanted are outputs of the graph: the compiler fuses otherwise, and the last bits are others.
    check(tmp_path / "run", make, config={"collections": {"outputs": {"raw": False}}}, same_bits=False)


def capturable():
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x, y = batch(0)
    return model, optimizer, x, y


def warmed(model, optimizer, x, y, kept=None):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if kept is not None:
                kept.step_is_over()
    torch.cuda.current_stream().wait_stream(side)


def whole_step(directory, replays=10, config=None, synchronize=True):
    """(trial, [(weights and gradients that a replay began with)])"""
    model, optimizer, x, y = capturable()
    session = tdbg.attach(model, dir=str(directory), config=settings(**(config or {})))
    warmed(model, optimizer, x, y)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    before = {n: torch.empty_like(p) for n, p in parameters(model)}
    with torch.cuda.graph(graph):
        F.cross_entropy(model(x), y).backward()
        for name, p in parameters(model):
            before[name].copy_(p)
        optimizer.step()
    rows = []
    for n in range(replays):
        x.copy_(batch(n)[0])
        graph.replay()
        rows.append({**{n: t.clone() for n, t in before.items()}, **{"gradient/" + n: p.grad.clone() for n, p in parameters(model)}})
        if synchronize:
            torch.cuda.synchronize()
    session.close()
    return tdbg.open(str(directory)), rows


def test_a_whole_step_is_a_step_with_every_replay(tmp_path):
    trial, rows = whole_step(tmp_path / "run")
    assert not lost(trial), lost(trial)
    steps = trial.steps(mode=TRAIN)
    assert len(steps) == 3 + len(rows)
    for at, row in zip(steps[3:], rows, strict=True):
        for name, tensor in row.items():
            same(trial.tensor(name).summary(at), tensor, f"{name} at {at}")


def test_an_object_that_is_reset_and_captured_into_again(tmp_path):
    model, optimizer, x, y = capturable()
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    warmed(model, optimizer, x, y)
    graph = torch.cuda.CUDAGraph()
    for again in range(2):
        if again:
            torch.cuda.synchronize()
            graph.reset()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        for _ in range(4):
            graph.replay()
    torch.cuda.synchronize()
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial), lost(trial)
    assert len(trial.steps(mode=TRAIN)) == 3 + 4 + 4


def test_replays_far_ahead_of_the_host_are_right_or_counted(tmp_path):
    trial, rows = whole_step(tmp_path / "run", replays=300, synchronize=False)
    steps = trial.steps(mode=TRAIN)
    assert len(steps) == 303
    there = 0
    for at, row in zip(steps[3:], rows, strict=True):
        for name in set(row) & set(trial.tensor_names(step=at)):
            same(trial.tensor(name).summary(at), row[name], f"{name} at {at}")
            there += 1
    assert there == 300 * len(rows[0]) or lost(trial)


def test_a_whole_step_with_outputs_and_their_gradients(tmp_path):
    trial, _ = whole_step(tmp_path / "run", config={"collections": {"outputs": {"raw": False}, "output_gradients": {"raw": False}}})
    assert not lost(trial), lost(trial)
    for at in trial.steps(mode=TRAIN):
        names = set(trial.tensor_names(step=at))
        assert {f"{what}{n}_output_0" for what in ("", "output_gradient/") for n in range(5)} <= names


def test_raw_values_in_a_graph_are_counted_and_the_statistics_are_there(tmp_path):
    trial, rows = whole_step(tmp_path / "run", config={"collections": {"gradients": {"save_interval": 1}}})
    assert [(some.cause, some.count) for some in trial.dropped()] == [("device_late", 5 * len(rows))], lost(trial)
    for at, row in zip(trial.steps(mode=TRAIN)[3:], rows, strict=True):
        for name, tensor in row.items():
            same(trial.tensor(name).summary(at), tensor, name)


def test_a_graph_without_a_step_before_it_is_left_alone(tmp_path):
    model, optimizer, x, y = capturable()
    warmed(model, optimizer, x, y)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    session.close()


def test_forward_and_backward_in_a_graph_and_an_eager_update(tmp_path):
    model, optimizer, x, y = capturable()
    program = Program(model, [optimizer], lambda n: None)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(collections={
        "outputs": {"raw": False}, "output_gradients": {"raw": False}}))
    kept = Truth(program)
    warmed(model, optimizer, x, y, kept)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        F.cross_entropy(model(x), y).backward()
    for n in range(8):
        x.copy_(batch(n)[0])
        graph.replay()
        optimizer.step()
        kept.step_is_over()
    kept.remove()
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    compare(trial, kept)
    for at in trial.steps(mode=TRAIN):
        assert {"0_output_0", "output_gradient/0_output_0"} <= set(trial.tensor_names(step=at))


def test_graphed_callables(tmp_path):
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    program = plain(model, optimizer)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    program.step(0)                                  # our hooks are there
    graphed = torch.cuda.make_graphed_callables(model, (batch(0)[0],))
    kept = Truth(program)
    for n in range(6):
        x, y = batch(n)
        optimizer.zero_grad()
        F.cross_entropy(graphed(x), y).backward()
        optimizer.step()
        kept.step_is_over()
    kept.remove()
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial), lost(trial)
    for at, row in zip(trial.steps(mode=TRAIN)[1:], kept.rows, strict=True):
        for name, tensor in row.items():
            same(trial.tensor(name).summary(at), tensor, name)


@pytest.mark.parametrize("config", [{}, {"collections": {"gradients": {"save_interval": 1}}}], ids=["statistics", "raw"])
def test_somebody_elses_capture_in_the_middle_of_a_training_is_whole(tmp_path, config):
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train, said = program.step, torch.zeros(1000, device="cuda")

    def step(n):
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            said.add_(1)
            with torch.cuda.stream(torch.cuda.Stream()):
                pass
        graph.replay()
        train(n)

    program.step = step
    trial, truth = watched(program, tmp_path / "run", 4, config)
    assert float(said[0]) == 4
    compare(trial, truth)


@pytest.mark.parametrize("config", [{}, {"collections": {"gradients": {"save_interval": 1}}}], ids=["statistics", "raw"])
def test_a_whole_run_while_another_thread_captures_in_the_default_mode(tmp_path, config):
    """Its first batch allocates and loads kernels, its end frees: all of it forbidden in a capture, of whatever thread."""
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = [batch(n) for n in range(4)]
    optimizer = program.optimizers[0]

    def step(n):
        optimizer.zero_grad()
        F.cross_entropy(model(data[n][0]), data[n][1]).backward()
        optimizer.step()

    program.step = step
    step(0)                                            # torch has its own memory by now
    torch.cuda.synchronize()
    said, graph, side = torch.zeros(1000, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    capturing, go_on, errors = threading.Event(), threading.Event(), []

    def capture():
        try:
            with torch.cuda.graph(graph, stream=side):
                said.add_(1)
                capturing.set()
                go_on.wait(60)
                said.add_(1)
        except Exception as error:
            errors.append(error)
        finally:
            capturing.set()

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        assert capturing.wait(60)
        trial, truth = watched(program, tmp_path / "run", 4, config)
    finally:
        go_on.set()
        thread.join()
    assert not errors, errors
    graph.replay()
    torch.cuda.synchronize()
    assert float(said[0]) == 2
    assert len(trial.steps(mode=TRAIN)) == 4 and len(truth.rows) == 4


def test_a_captured_evaluation(tmp_path):
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    program.step(0)
    x, _ = batch(1)
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        expected = nn.functional.linear(model[:4](x), model[4].weight, model[4].bias)
    assert torch.allclose(out, expected, atol=1e-5)
    model.train()
    program.step(1)
    session.close()
    assert len(tdbg.open(str(tmp_path / "run")).steps(mode=TRAIN)) == 2
