"""Loops in which a step is easily cut in two, given twice or missed: as in test_loops.py, each says what it did."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_loops import MSE, OWN, RAW, Net, batch, found_in, net, repeats_under_watch, sgd, update, weights
from torch import nn

from tdbg.adaptors.steps import EVAL, TRAIN

ONES, ONE, ZERO = torch.ones(4, 2), torch.ones(4, 1), torch.zeros(4, 1)


def evaluated(model, n):
    """A step of an evaluation."""
    model.eval()
    with torch.no_grad():
        loss = F.mse_loss(model(batch(n)), ONES).item()
    model.train()
    return EVAL, {MSE + "_0": loss}


def cyclegan():
    """Two generators in one optimizer; a discriminator is frozen while it is not its turn, as Lightning's toggle_optimizer does."""
    ab, ba, of_a, of_b = net(outs=3), net(outs=3, seed=1), net(outs=1, seed=2), net(outs=1, seed=3)
    generators, a_optimizer, b_optimizer = sgd(ab, ba), sgd(of_a), sgd(of_b)
    seen = []
    for n in range(4):
        a, b = batch(n), batch(n + 30)
        for p in (*of_a.parameters(), *of_b.parameters()):
            p.requires_grad_(False)
        fake_a, fake_b = ba(b), ab(a)
        losses = [F.mse_loss(of_b(fake_b), ONE), F.mse_loss(of_a(fake_a), ONE)]
        update(generators, sum(losses))
        for p in (*of_a.parameters(), *of_b.parameters()):
            p.requires_grad_(True)
        for judge, optimizer, real, fake in ((of_a, a_optimizer, a, fake_a), (of_b, b_optimizer, b, fake_b)):
            losses += F.mse_loss(judge(real), ONE), F.mse_loss(judge(fake.detach()), ZERO)
            update(optimizer, sum(losses[-2:]))
        seen.append((TRAIN, {f"{MSE}_{k}": loss.item() for k, loss in enumerate(losses)}))
    return seen, weights(ab, ba, of_a, of_b)


def evaluated_inside_a_closure():
    model = net()
    optimizer, seen = torch.optim.LBFGS(model.parameters(), max_iter=3), []
    for n in range(3):
        losses, evaluations = [], []

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch(n)), ONES)
            loss.backward()
            losses.append(loss.item())
            if len(losses) == 1:
                evaluations.append(evaluated(model, n + 10))
            return loss

        optimizer.step(closure)
        seen += [(TRAIN, {MSE + "_0": losses[0]}), *evaluations]
    return seen, weights(model)


LOOPS = {"CycleGAN": cyclegan, "evaluated inside a closure": evaluated_inside_a_closure}


@pytest.mark.parametrize("kinds", [RAW[:4], RAW], ids=["", "with outputs"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_steps_modes_and_losses_are_the_loops_own(watch, loop, kinds):
    repeats_under_watch(watch, loop, kinds)


@pytest.mark.parametrize("kinds", [RAW[:4], RAW], ids=["", "with outputs"])
def test_an_evaluation_between_micro_steps_is_a_step_of_its_own(watch, kinds):
    """Where outputs are recorded the TRAIN step is open by then, and the evaluation comes after it, with its outputs."""
    session, model = watch(kinds=kinds), net()
    optimizer, losses, outputs = sgd(model), [], []
    for n in range(2):
        for micro in range(3):
            loss = F.mse_loss(model(batch(3 * n + micro)), ONES)
            loss.backward()
            losses.append(loss.item())
            if micro == 1:
                evaluation = evaluated(model, 10)[1]
                outputs.append(model(batch(10)).detach().numpy())
        optimizer.step()
        optimizer.zero_grad()
    run = session.made[0]
    assert run.twice == [] and run.lost == []
    assert [s.mode for s in run.steps] == ([TRAIN, EVAL] if "output" in kinds else [EVAL, TRAIN]) * 2
    assert [found_in(s) for s in run.eval][-1] == evaluation
    for n, step in enumerate(run.train):
        found = {sub: v.item() for (name, sub, _), v in step.values.items() if name == MSE + "_0"}
        assert [found[k + 1] for k in range(3)] == losses[3 * n:3 * n + 3]
        assert found[0] == torch.tensor(losses[3 * n:3 * n + 3]).mean().item()
        assert step.scalars["context/batch_size", 0] == 4
        if "output" in kinds:
            assert [("head_output_0", k, 0) in step.values for k in range(5)] == [True, False, True, True, False]
            assert np.array_equal(run.eval[n]["head_output_0"], outputs[n])


def test_final_weights_of_two_optimizers_that_share_them_are_put_once(watch):
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            self.inner.step()

    session, model = watch(), net()
    optimizer = Lookahead(sgd(model))
    update(optimizer, F.mse_loss(model(batch(0)), ONES))
    again = torch.optim.Adam([*model.head.parameters(), extra := nn.Parameter(torch.ones(2))])
    (model(batch(1)) * extra).sum().backward()
    again.step()
    session.finish("completed")
    run = session.made[0]
    assert run.twice == []
    for name, parameter in model.named_parameters():
        assert (run.end_values[f"Net_{name}", 0, 0] == parameter.detach().numpy()).all()
    assert (run.end_values["parameter_0", 0, 0] == extra.detach().numpy()).all()


def test_a_prediction_for_one_row_is_no_loss(watch):
    """Of a training whose loss is the script's own arithmetic, and an evaluation of batches of one row."""
    for squeeze in (False, True):
        class One(Net):
            def forward(self, x):
                y = super().forward(x)
                return y.squeeze() if squeeze else y

        session = watch()
        torch.manual_seed(0)
        model = One(outs=1)
        optimizer = sgd(model)
        for n in range(2):
            update(optimizer, (model(batch(n)) - 1).pow(2).mean())
            model.eval()
            with torch.no_grad():
                model(batch(n, rows=1))
            model.train()
        session.finish("completed")
        run = session.made[0]
        assert [s.mode for s in run.steps] == [TRAIN, EVAL] * 2
        assert not [s.values for s in run.eval if any(name == OWN for name, _, _ in s.values)]


def test_an_evaluation_of_several_parts_is_one_step(watch):
    """A LightningModule with an encoder, a decoder and a loss, each of which its steps call."""
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.act, self.decoder, self.criterion = nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.MSELoss()

        def loss(self, n):
            x = batch(n)
            return self.criterion(self.act(self.decoder(self.act(self.encoder(x)))), x)

    session, task = watch(), Task()
    optimizer = sgd(task)

    def evaluate(*batches):
        task.eval()
        with torch.no_grad():
            losses = [task.loss(n).item() for n in batches]
        task.train()
        return losses

    expected = evaluate(0, 1)
    for n in range(2):
        update(optimizer, task.loss(n))
        expected += evaluate(2, 3, 4)
    session.finish("completed")
    run = session.made[0]
    assert [s.mode for s in run.steps] == [EVAL] * 2 + ([TRAIN] + [EVAL] * 3) * 2
    assert [s[MSE + "_0"].item() for s in run.steps if s.mode == EVAL] == expected
