"""Modes that modules are left in: what of it is recorded with each step of the training."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

EVALUATED, TRAINED = ("context/evaluated_in_training", 0), ("context/trained_in_evaluation", 0)


class DropPath(nn.Module):
    """As timm's."""

    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return x


def model_with(*modules):
    return nn.Sequential(nn.Linear(4, 8), *modules, nn.Linear(8, 3))


def fit(model, optimizer, batches=2):
    for _ in range(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.ones(6, 4)), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
        optimizer.step()


def compare(model, count=3):
    with torch.no_grad():
        for _ in range(count):
            F.cross_entropy(model(torch.ones(6, 4)), torch.tensor([0, 1, 2, 0, 1, 2]))


def numbers(session, key):
    """Of each training step that has it: (step, number)."""
    return [(n, s.scalars[key]) for n, s in enumerate(session.made[0].steps) if key in s.scalars]


@pytest.mark.parametrize("odd, differs", [
    (nn.Dropout(0.5), True), (nn.Dropout(0.0), False), (nn.BatchNorm1d(8), True),
    (nn.BatchNorm1d(8, track_running_stats=False), False), (nn.LayerNorm(8), False), (DropPath(0.1), True),
    (DropPath(0.0), False), (nn.AlphaDropout(0.1), True)])
def test_losses_without_gradients_in_training_mode_are_counted(watch, odd, differs):
    session = watch()
    model = model_with(odd)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        fit(model, optimizer)
        compare(model)
    fit(model, optimizer)
    assert numbers(session, EVALUATED) == ([(2, 3), (4, 3)] if differs else [])
    assert numbers(session, TRAINED) == []


def test_what_is_no_evaluation_is_not_counted(watch):
    """Metrics of the training's own output, forwards without a loss, an evaluation in its mode, a model that is not called."""
    session = watch()
    model = model_with(nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        output = model(torch.ones(6, 4))
        F.cross_entropy(output, torch.zeros(6, dtype=torch.long)).backward()
        optimizer.step()
        with torch.no_grad():
            F.cross_entropy(output, torch.zeros(6, dtype=torch.long))
            model(torch.ones(6, 4))
        model.eval()
        compare(model)
        model.train()
        with torch.no_grad():
            F.mse_loss(torch.ones(3), torch.zeros(3))
    assert numbers(session, EVALUATED) == [] and numbers(session, TRAINED) == []


def test_a_training_that_goes_on_in_evaluation_mode_is_said_with_how_many_modules(watch):
    session = watch()
    model = model_with(nn.Dropout(0.5), nn.BatchNorm1d(8), nn.LayerNorm(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, optimizer)
    model.eval()
    fit(model, optimizer)
    model[1].train()        # one that is kept on purpose: a look at its uncertainty
    fit(model, optimizer, 1)
    model.train()
    fit(model, optimizer)
    assert numbers(session, TRAINED) == [(2, 2), (3, 2)] and numbers(session, EVALUATED) == []


def test_where_modes_make_no_difference_nothing_is_said(watch):
    session = watch()
    model = model_with(nn.LayerNorm(8)).eval()
    fit(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert numbers(session, TRAINED) == []


def test_of_two_models_each_has_its_own_mode(watch):
    """A teacher is in evaluation mode and without gradients; the student trains."""
    session = watch()
    student, teacher = model_with(nn.Dropout(0.5)), model_with(nn.Dropout(0.5)).eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(3):
        with torch.no_grad():
            wanted = teacher(torch.ones(6, 4)).argmax(1)
        optimizer.zero_grad()
        F.cross_entropy(student(torch.ones(6, 4)), wanted).backward()
        optimizer.step()
    assert numbers(session, EVALUATED) == [] and numbers(session, TRAINED) == []


@pytest.mark.parametrize("kind, differs", [(nn.LSTM, True), (nn.GRU, False)])
def test_recurrent_layers_and_attention_have_a_dropout_of_their_own(watch, kind, differs):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = kind(4, 8, num_layers=2, dropout=0.3 if differs else 0.0, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.cell(x[:, None])[0][:, -1])

    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, optimizer, 1)
    compare(model, 2)
    fit(model, optimizer, 1)
    assert numbers(session, EVALUATED) == ([(1, 2)] if differs else [])
