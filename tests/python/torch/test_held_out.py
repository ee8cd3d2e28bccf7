"""What evaluations are fed, beside what the training is."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.steps import EVAL
from tdbg.adaptors.torch import held_out as _held_out

NAME = "context/evaluated_input/"


class Training:
    def __init__(self, watch, model=None, **options):
        self.session = watch(**options)
        self.model = model or nn.Linear(6, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.data = torch.Generator().manual_seed(1)

    def batch(self, mean=0.0, deviation=1.0, rows=16):
        return mean + deviation * torch.randn(rows, 6, generator=self.data)

    def train(self, x=None):
        self.optimizer.zero_grad()
        self.model(self.batch() if x is None else x).square().mean().backward()
        self.optimizer.step()

    def evaluate(self, *batches, loss=True):
        self.model.eval()
        with torch.no_grad():
            for x in batches:
                out = self.model(x)
                if loss:
                    F.mse_loss(out, torch.zeros_like(out))
        self.model.train()

    def told(self):
        """(mean, std) of each EVAL step; None where it was not looked at."""
        self.session.finish("closed")
        steps = [step.scalars for step in self.session.made[0].steps if step.mode == EVAL]
        return [(one[NAME + "mean", 0], one[NAME + "std", 0]) if (NAME + "mean", 0) in one else None for one in steps]


def test_numbers_of_what_an_evaluation_is_fed(watch):
    training = Training(watch)
    training.train()
    x = training.batch(40, 7)
    training.evaluate(x)
    training.train()
    ((mean, deviation),) = training.told()
    assert mean == pytest.approx(x.double().mean().item(), rel=1e-6)
    assert deviation == pytest.approx(x.double().std(correction=0).item(), rel=1e-6)


def test_the_first_forwards_of_the_first_evaluations(watch):
    training = Training(watch)
    for _ in range(10):
        training.train()
        training.evaluate(*[training.batch() for _ in range(6)])
    told = training.told()
    looked = [sum(one is not None for one in told[i:i + 6]) for i in range(0, 60, 6)]
    assert looked == [_held_out.LOOKS] * _held_out.EVALUATIONS + [0, 0, _held_out.LOOKS, 0, 0]


@pytest.mark.parametrize("other", [
    lambda x: x.double(), lambda x: x[:, :, None].expand(-1, -1, 3), lambda x: torch.full_like(x, torch.inf)])
def test_what_is_not_like_the_trainings_is_not_looked_at(watch, other):
    training = Training(watch, model=Shapeless())
    training.train()
    x = training.batch()
    training.evaluate(other(x), x)
    first, second = training.told()
    assert first is None and second is not None


class Shapeless(nn.Module):
    """Takes anything."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.w * x.float().nan_to_num(0, 0, 0).mean()


def test_tokens_have_no_scale(watch):
    training = Training(watch, model=nn.Embedding(10, 3))
    tokens = torch.randint(0, 10, (4, 5))
    training.train(tokens)
    training.evaluate(tokens)
    assert training.told() == [None]


def test_of_a_large_input_some_rows(watch, monkeypatch):
    monkeypatch.setattr(_held_out, "LARGEST", 16 * 6 * 4)
    training = Training(watch)
    training.train()
    x = training.batch(rows=100)
    training.evaluate(x)
    ((mean, _),) = training.told()
    assert mean == pytest.approx(x[:16].double().mean().item(), abs=1e-6)


def test_a_training_in_evaluation_mode_has_no_evaluations(watch):
    training = Training(watch)
    training.model.eval()
    for _ in range(3):
        training.train()
    training.session.finish("closed")
    assert not any(name.startswith(NAME) for step in training.session.made[0].steps for name, _ in step.scalars)
