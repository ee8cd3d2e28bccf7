"""A TRAIN step is one step of the optimizer, whatever is evaluated around it, in whatever mode the model is trained."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_loops import MSE, RAW, batch, found_in, net, sgd

from tdbg.adaptors.steps import EVAL, TRAIN
from tdbg.adaptors.torch import evaluations

ONES = torch.ones(4, 2)
KINDS = pytest.mark.parametrize("kinds", [RAW[:4], RAW], ids=["", "with outputs"])


@KINDS
@pytest.mark.parametrize("micro_steps", [1, 3])
def test_fine_tuning_in_evaluation_mode(watch, kinds, micro_steps):
    """As one does to keep BatchNorm and dropout still; real evaluations in between."""
    session, model = watch(kinds=kinds), net().eval()
    optimizer, seen = sgd(model), []
    for n in range(3):
        losses, outputs = [], []
        for micro in range(micro_steps):
            out = model(batch(10 * n + micro))
            loss = F.mse_loss(out, ONES)
            loss.backward()
            losses.append(loss.item())
            outputs.append(out.detach().numpy().copy())
        optimizer.step()
        optimizer.zero_grad()
        seen.append((losses, outputs))
        with torch.no_grad():
            evaluated = F.mse_loss(model(batch(99)), ONES).item()
    session.finish("completed")
    run = session.made[0]
    assert run.twice == [] and run.lost == []
    assert [s.mode for s in run.steps] == [TRAIN, EVAL] * 3
    assert found_in(run.eval[-1])[MSE + "_0"] == evaluated
    for step, (losses, outputs) in zip(run.train, seen, strict=True):
        assert step[MSE + "_0"] == np.float32(torch.tensor(losses).mean())
        assert step.scalars["context/micro_steps", 0] == micro_steps and step.scalars["context/batch_size", 0] == 4
        assert ("Net_head.weight", 0, 0) in step.values
        given = [v for (name, _, _), v in sorted(step.values.items()) if name == "head_output_0"]
        assert len(given) == (micro_steps if "output" in kinds else 0)
        assert all(map(np.array_equal, given, outputs))


@KINDS
def test_two_forwards_in_evaluation_mode_and_one_backward(watch, kinds):
    session, model = watch(kinds=kinds), net().eval()
    optimizer = sgd(model)
    for n in range(3):
        with torch.no_grad():
            wanted = model(batch(50 + n))             # an evaluation, for all that can be known
        left, right = model(batch(n)), model(batch(n + 10))
        first, second = F.mse_loss(left, wanted), F.mse_loss(right, wanted)
        optimizer.zero_grad()
        (first + second).backward()
        optimizer.step()
    run = session.made[0]
    assert [s.mode for s in run.steps] == [EVAL, TRAIN] * 3
    assert found_in(run.train[-1])[MSE + "_0"] == first.item() and found_in(run.train[-1])[MSE + "_1"] == second.item()
    if "output" in kinds:
        assert [len([k for k in s.values if k[0].startswith("head_output")]) for s in run.steps] == [1, 2] * 3


@KINDS
def test_an_evaluation_with_gradients_that_nobody_asks_for(watch, kinds):
    """Whoever forgets no_grad, and trains in evaluation mode."""
    session, model = watch(kinds=kinds), net().eval()
    optimizer = sgd(model)
    for n in range(3):
        for k in range(3):
            validation = F.mse_loss(model(batch(20 + k)), ONES)
        loss = F.mse_loss(model(batch(n)), ONES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run = session.made[0]
    assert [s.mode for s in run.steps] == [EVAL, EVAL, EVAL, TRAIN] * 3
    assert found_in(run.train[-1]) == {MSE + "_0": loss.item(), "backward_loss": loss.item()}
    assert found_in(run.eval[-1]) == {MSE + "_0": validation.item()}


def test_outputs_that_wait_for_their_step_take_so_much_memory_and_no_more(watch, monkeypatch):
    monkeypatch.setattr(evaluations, "MAX_KEPT", 4 * 4 * 4 + 4 * 4 * 2 * 2)        # inner, head, root: 64, 32, 32 bytes
    session, model = watch(kinds=RAW), net().eval()
    optimizer = sgd(model)
    for n in range(3):
        left, right = model(batch(n)), model(batch(n + 10))
        optimizer.zero_grad()
        (left + right).sum().backward()
        optimizer.step()
    run = session.made[0]
    assert len(run.steps) == 3 and {cause for cause, _, _ in run.lost} == {"unsupported"}
    assert sum(n for _, n, _ in run.lost) == 9, "of the second forward"
    assert ("head_output_0", 0, 0) in run.steps[-1].values, "and in every step the first one's are there"


@KINDS
def test_a_model_that_trains_itself_in_its_forward(watch, kinds):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.optimizer = [sgd(self.net)]

        def forward(self, x):
            loss = F.mse_loss(self.net(x), ONES)
            loss.backward()
            self.optimizer[0].step()
            self.optimizer[0].zero_grad()
            return loss.detach()

    session, losses = watch(kinds=kinds), []
    model = Own().eval()
    for n in range(3):
        losses.append(model(batch(n)).item())
    session.finish("completed")
    run = session.made[0]
    assert len(run.train) == 3 and run.lost == []
    assert [found_in(s)[MSE + "_0"] for s in run.train] == losses


def two(ahead):
    """Two models and optimizers; `ahead`: both backwards, then both steps. The second loss reaches the first model, too."""
    first, second = net(), net(ins=2, outs=2, seed=1)
    optimizers, seen = (sgd(first), sgd(second)), []
    for n in range(4):
        def losses():
            yield F.mse_loss(first(batch(n)), ONES)
            yield F.mse_loss(second(first(batch(n + 20))), ONES)
        if ahead:
            # Each step's losses are of the weights before either update.
            values = list(losses())
            for value in values:
                value.backward()
            for optimizer in optimizers:
                optimizer.step()
        else:
            values = []
            for value, optimizer in zip(losses(), optimizers):
                value.backward()
                values.append(value)
                optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        seen.append([value.item() for value in values])
    return seen


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("ahead", [False, True], ids=["by turns", "backwards first"])
def test_losses_of_several_optimizers(watch, monkeypatch, ahead, scaled):
    if scaled:
        scaler, backward = torch.amp.GradScaler("cpu", init_scale=1.0), torch.Tensor.backward
        monkeypatch.setattr(torch.Tensor, "backward", lambda loss: backward(scaler.scale(loss)))
    session = watch()
    seen = two(ahead)
    run = session.made[0]
    assert len(run.steps) == len(seen)
    for step, values in zip(run.steps, seen, strict=True):
        assert found_in(step) == {MSE + "_0": values[0], MSE + "_1": values[1], "backward_loss": values[0],
                                  "backward_loss_1": values[1]}
        assert not [k for k in step.values if k[1]] and step.scalars["context/micro_steps", 0] == 1


def test_losses_of_an_optimizer_that_steps_in_every_second_iteration(watch):
    first, second = net(), net(seed=1)
    of_first, of_second = sgd(first), sgd(second)
    session = watch()
    of_first, of_second = sgd(first), sgd(second)
    seen = []
    for n in range(6):
        losses = [F.mse_loss(model(batch(n)), ONES) for model in (first, second)]
        for loss in losses:
            loss.backward()
        of_first.step()
        if n % 2:
            of_second.step()
        of_first.zero_grad()
        of_second.zero_grad()
        seen.append([loss.item() for loss in losses])
    session.finish("completed")
    run = session.made[0]
    assert len(run.train) == 6 and run.lost == [] and run.twice == []
    every = [value for values in seen for value in values]
    found = [v for step in run.train for k, v in found_in(step).items() if k.startswith(MSE)]
    assert found == every, "each at its own step, whoever stepped"


def random_loop(rng, model, stepped):
    """Trains and evaluates in any order; `stepped()` after each step of the optimizer. Returns [losses of the micro-steps] per optimizer step,
    [losses of evaluations]."""
    optimizer, trained, evaluated = sgd(model), [], []

    def evaluation():
        mode = model.training
        model.eval()
        grad = rng.random() < 0.3
        with torch.set_grad_enabled(grad):
            for _ in range(rng.randint(1, 3)):
                out = model(batch(rng.randint(0, 99)))
                evaluated.append(F.mse_loss(out, ONES).item())
        model.train(mode)

    for _ in range(rng.randint(3, 6)):
        model.train(rng.random() < 0.5)
        losses = []
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.4:
                evaluation()
            loss = F.mse_loss(model(batch(rng.randint(0, 99))), ONES)
            loss.backward()
            losses.append(loss.item())
        if rng.random() < 0.3:
            evaluation()
        optimizer.step()
        stepped()
        optimizer.zero_grad()
        trained.append(losses)
        if rng.random() < 0.3:
            evaluation()
    return trained, evaluated


@KINDS
@pytest.mark.parametrize("by_call", [False, True], ids=["", "step_by call"])
@pytest.mark.parametrize("seed", range(6))
def test_as_many_steps_as_the_optimizer_made(watch, kinds, by_call, seed):
    rng = random.Random(seed)
    session, model = watch(kinds=kinds, plan={"step_by": "call"} if by_call else {}), net()
    trained, evaluated = random_loop(rng, model, session.step_ends if by_call else lambda: None)
    session.finish("completed")
    run = session.made[0]
    assert run.twice == [] and run.lost == []
    assert len(run.train) == len(trained) and len(run.eval) == len(evaluated)
    assert sorted(found_in(s)[MSE + "_0"] for s in run.eval) == sorted(evaluated)
    for found, losses in zip(run.train, trained, strict=True):
        assert found[MSE + "_0"] == np.float32(torch.tensor(losses).mean())
        assert ("Net_head.weight", 0, 0) in found.values
        if "output" in kinds:
            assert len([k for k in found.values if k[0] == "head_output_0"]) == len(losses)
    if "output" in kinds:
        assert all(("head_output_0", 0, 0) in s.values for s in run.eval)
