"""How a training is set: read once of modules, and at the first calls of functions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def settings(watch, model, loss=F.cross_entropy, steps=5, clip=None, frozen=(), size=(16, 6), answers=None, **options):
    """{(of, setting): [(value, count, where)]} of the last topic."""
    session = watch(**options)
    for part in frozen:
        part.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    compared = getattr(F, loss.__name__) if hasattr(F, loss.__name__) else loss
    for _ in range(steps):
        optimizer.zero_grad()
        y = torch.randint(0, 4, size[:1]) if answers is None else answers
        compared(model(torch.randn(*size)), y).backward()
        if clip is not None:
            clip(model.parameters())
        optimizer.step()
    session.finish("closed")
    said = session.made[0].contexts.get("settings", [])
    found = {}
    for entry in said[-1][1] if said else ():
        found.setdefault((entry["of"], entry["setting"]), []).append((entry["value"], entry["count"], entry["where"]))
    return found


class DropPath(nn.Module):
    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return x


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_dropout, self.drop, self.patch_drop_rate, self.dropout_keep, self.drop_last = 0.9, 0.2, 0.75, 0.9, True
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x)


def test_modules_by_the_value_that_they_have(watch):
    drops = [nn.Dropout(0.1) for _ in range(6)]
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, 0.8), nn.LeakyReLU(True), *drops, nn.Dropout(0.95), nn.ELU(),
                          nn.LayerNorm(8), DropPath(0.3), nn.Linear(8, 4))
    found = settings(watch, model)
    assert found["dropout", "p"] == [(0.1, 6, [f"Sequential_{n}" for n in (3, 4, 5, 6)]), (0.95, 1, ["Sequential_9"])]
    assert found["batch_norm", "eps"] == [(0.8, 1, ["Sequential_1"])], "the second argument"
    assert found["batch_norm", "momentum"] == [(0.1, 1, ["Sequential_1"])]
    assert found["leaky_relu", "negative_slope"] == [(1.0, 1, ["Sequential_2"])]
    assert found["elu", "alpha"] == [(1.0, 1, ["Sequential_10"])] and found["norm", "eps"] == [(1e-5, 1, ["Sequential_11"])]
    assert found["drop_path", "p"] == [(0.3, 1, ["Sequential_12"])]
    assert ("norm", "elements") not in found


def test_what_a_script_drops_with_a_functional_has_its_modules_number(watch):
    found = settings(watch, nn.Sequential(Attention(), nn.Linear(6, 4)))
    assert found == {("own", "attention_dropout"): [(0.9, 1, ["Sequential_0"])], ("own", "drop"): [(0.2, 1, ["Sequential_0"])]}


def test_a_norm_over_one_number_and_recurrent_layers(watch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.one = nn.GRU(6, 4, num_layers=2, dropout=0.9, batch_first=True), nn.LayerNorm(1)
            self.single = nn.LSTM(4, 4, batch_first=True)

        def forward(self, x):
            y = self.cell(x)[0]
            return self.single(y)[0][:, -1] + self.one(y[:, :1, :1])[:, 0]

    found = settings(watch, Net(), size=(16, 3, 6))
    assert found["norm", "elements"] == [(1.0, 1, ["Net_one"])]
    assert found["recurrent", "dropout"] == [(0.9, 1, ["Net_cell"])]


@pytest.mark.parametrize("momentum, pretrained, frozen, said", [
    (0.0, False, False, True), (0.0, True, False, False), (0.0, False, True, False), (None, False, False, False)])
def test_a_norm_whose_averages_never_move_is_told_where_they_are_those_it_was_made_with(
        watch, momentum, pretrained, frozen, said):
    norm = nn.BatchNorm1d(6, momentum=momentum)
    if pretrained:
        norm.running_mean += 1
    found = settings(watch, nn.Sequential(norm, nn.Linear(6, 4)), frozen=[norm] if frozen else [])
    assert (("batch_norm", "momentum") in found) is said


def test_modules_in_evaluation_mode_and_models_that_are_not_trained_are_left_alone(watch):
    model = nn.Sequential(nn.Dropout(0.95), nn.Linear(6, 4))
    model[0].eval()
    assert settings(watch, model) == {}


def test_functions_as_they_are_called_first(watch):
    model, y = nn.Linear(6, 4), torch.randint(0, 4, (16,))
    weight = torch.tensor([0.0, 1.0, 2.0, 3.0])

    def loss(out, y):
        return F.cross_entropy(out, y, weight, label_smoothing=0.9, ignore_index=3)

    found = settings(watch, model, loss, answers=y.clamp(0, 2))
    assert found["cross_entropy", "label_smoothing"][0][0] == 0.9 and found["cross_entropy", "ignore_index"][0][0] == 3
    assert found["cross_entropy", "weight_least"][0][0] == 0 and found["cross_entropy", "weight_most"][0][0] == 3
    assert settings(watch, model) == {}, "as torch has them"
    nan = torch.full((4,), math.nan)
    found = settings(watch, model, lambda out, y: F.cross_entropy(out, y, nan) * 0 + out.sum())
    assert found["cross_entropy", "weight_least"][0][0] == "nan"


def test_the_weights_of_classes_are_told_one_by_one(watch):
    session, model = watch(), nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    loss(model(torch.randn(16, 6)), torch.randint(0, 4, (16,))).backward()
    optimizer.step()
    session.finish("closed")
    (_, said), = session.made[0].contexts["settings"]
    assert [entry.get("all") for entry in said] == [[1.0, 2.0, 3.0, 4.0], None]


def test_clipping(watch):
    model = nn.Linear(6, 4)
    found = settings(watch, model, clip=lambda p: nn.utils.clip_grad_value_(p, 0.0))
    assert found["clip_grad_value_", "clip_value"][0][0] == 0
    found = settings(watch, model, clip=lambda p: nn.utils.clip_grad_norm_(p, max_norm=math.inf))
    assert found["clip_grad_norm_", "max_norm"][0][0] == "inf"


def test_the_topic_is_bounded_and_nothing_is_looked_at_later(watch):
    model = nn.Sequential(*(nn.Dropout(n / 200) for n in range(100)), nn.Linear(6, 4))
    assert len(settings(watch, model)["dropout", "p"]) == 64
    called = []

    def loss(out, y):
        called.append(1)
        return F.cross_entropy(out, y, label_smoothing=0.01 * len(called))

    assert len(settings(watch, nn.Linear(6, 4), loss, steps=30)["cross_entropy", "label_smoothing"]) == 3
