"""What a model is given beside its first input."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.time = nn.Linear(6, 6), nn.Embedding(100, 6)

    def forward(self, x, t=None, **more):
        return self.layer(x) if t is None else self.layer(x) + self.time(t.long()).view(len(x), 6)


def series(watch, call, steps=3, size=(16, 6)):
    """What was told of arguments, step by step."""
    session, model = watch(), Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(*size)
        F.mse_loss(call(model, x, step), torch.zeros(16, 6)).backward()
        optimizer.step()
    session.finish("closed")
    start = "context/argument/"
    return [{k[len(start):]: v for (k, _), v in step.scalars.items() if k.startswith(start)} for step in session.made[0].steps]


def test_a_number_for_each_row(watch):
    assert series(watch, lambda model, x, n: model(x, torch.arange(16) + n)) == [
        {"1/least": n, "1/most": 15 + n} for n in range(3)]
    assert series(watch, lambda model, x, n: model(x, t=torch.zeros(16, 1))) == [{"t/least": 0, "t/most": 0}] * 3


def test_of_several_calls_in_a_step_all_count(watch):
    zeros = torch.zeros(16, dtype=torch.long)
    assert series(watch, lambda model, x, n: model(x, zeros) + model(x, zeros + 7)) == [{"1/least": 0, "1/most": 7}] * 3


OTHERS = {
    "nothing": (),
    "a flag": (torch.ones(16, dtype=torch.bool),),
    "positions": (torch.zeros(16, 6, dtype=torch.long),),
    "a number": (torch.tensor(3),),
    "the first again": (torch.zeros(6),),
    "lengths": (torch.full((16,), 6),),
    "scales": (torch.ones(16),),
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS)
def test_what_is_none_of_them(watch, more):
    assert series(watch, lambda model, x, n: model(x, **{f"other_{k}": v for k, v in enumerate(more)})) == [{}] * 3


def test_labels_are_none(watch):
    zeros = torch.zeros(16, dtype=torch.long)
    assert series(watch, lambda model, x, n: model(x, labels=zeros, sample_weight=zeros)) == [{}] * 3
