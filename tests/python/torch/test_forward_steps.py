"""step_by: forward: a step is a root forward; and the modes of forwards that train nothing."""

import numpy as np
import torch
from torch import nn

from tdbg.adaptors.attached import AttachedLoop
from tdbg.adaptors.steps import EVAL, PREDICT, TRAIN
from tdbg.adaptors.torch.forward import ForwardSteps

FORWARD = {"step_by": "forward"}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def backward(model):
    loss = nn.functional.mse_loss(model(torch.randn(5, 4)), torch.zeros(5, 2))
    loss.backward()
    return loss


def test_accumulation_is_a_step_for_every_forward(watch):
    session = watch(plan=FORWARD)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights, losses, sums = [], [], []
    for n in range(4):
        weights.append(model[0].weight.detach().clone().numpy())
        losses.append(backward(model).item())
        sums.append(model[0].weight.grad.clone().numpy())
        if n % 2:
            optimizer.step()
            optimizer.zero_grad()
    session.finish("completed")
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN] * 4
    for n, step in enumerate(run.steps):
        np.testing.assert_array_equal(step["Sequential_0.weight"], weights[n])
        assert step["MSELoss_output_0"] == np.float32(losses[n])
    np.testing.assert_array_equal(run.steps[0]["gradient/Sequential_0.weight"], sums[0])
    np.testing.assert_allclose(run.steps[1]["gradient/Sequential_0.weight"], sums[1] - sums[0], rtol=1e-4, atol=1e-6)
    assert ("context/lr/SGD/0", 0) in run.steps[1].scalars and ("context/lr/SGD/0", 0) not in run.steps[0].scalars


def test_modes_are_those_of_the_forwards(watch):
    session = watch(plan=FORWARD)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model)
    optimizer.step()
    model.eval()
    with torch.no_grad():
        nn.functional.mse_loss(model(torch.ones(5, 4)), torch.zeros(5, 2))
    with torch.inference_mode():
        model(torch.ones(5, 4))
    session.finish("completed")
    train, evaluation, prediction = session.made[0].steps
    assert [train.mode, evaluation.mode, prediction.mode] == [TRAIN, EVAL, PREDICT]
    assert "MSELoss_output_0" in {k[0] for k in evaluation.values}
    assert not any(k[0].startswith("gradient") for k in evaluation.values)
    assert "Sequential_0.weight" in {k[0] for k in prediction.values}


def test_where_steps_are_optimizer_steps_inference_without_a_loss_is_prediction(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attached = AttachedLoop(session)
    backward(model)
    optimizer.step()
    model.eval()
    with torch.inference_mode():
        model(torch.ones(5, 4))
        nn.functional.mse_loss(model(torch.ones(5, 4)), torch.zeros(5, 2))
    attached.set_mode("predict")
    with torch.no_grad():
        model(torch.ones(5, 4))
    attached.set_mode(None)
    with torch.no_grad():
        model(torch.ones(5, 4))
    session.finish("completed")
    assert [s.mode for s in session.made[0].steps] == [TRAIN, PREDICT, EVAL, PREDICT, EVAL]


def test_a_gradient_that_cannot_be_captured_costs_only_itself(watch, monkeypatch):
    capture = ForwardSteps._gradient

    def broken(self, named, grad):
        if named.name == "Sequential_0.weight":
            raise RuntimeError("broken")
        capture(self, named, grad)

    monkeypatch.setattr(ForwardSteps, "_gradient", broken)
    session = watch(strict=False, plan=FORWARD)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(13):
        backward(model)
        optimizer.step()
    run = session.made[0]
    assert session.listening
    assert [cause for cause, _, _ in run.lost] == ["adaptor_error"] * 11
    assert run.lost[-1][2] == "gradient/Sequential_0.weight: given up after 10 failures"
    session.finish("completed")
    assert all("gradient/Sequential_2.weight" in {name for name, _, _ in step.values} for step in run.steps)
