"""Layers that run over the samples of a batch, and what only looks like that."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

SERIES = ("context/batch_axis", 0)
ROWS, TIME, SIZE = 12, 7, 8


class Recurrent(nn.Module):
    def __init__(self, kind=nn.LSTM, batch_first=False, turned=False, outputs=3, size=SIZE):
        super().__init__()
        self.cell, self.turned = kind(size, 6, batch_first=batch_first), turned
        self.head = nn.Linear(6, outputs)

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        out = self.cell(x)[0]
        return self.head(out[-1] if self.turned else out[:, -1])


class Attentive(nn.Module):
    """Any of torch's Transformers."""

    def __init__(self, make, turned=False, **given):
        super().__init__()
        self.body, self.turned, self.given = make(), turned, given
        self.head = nn.Linear(SIZE, 3)

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        if isinstance(self.body, nn.MultiheadAttention):
            out = self.body(x, x, x, **self.given)[0]
        elif isinstance(self.body, (nn.TransformerDecoder, nn.Transformer)):
            out = self.body(x, x)
        else:
            out = self.body(x)
        return self.head(out.mean(0 if self.turned else 1))


def classes(x):
    return torch.randint(0, 3, (x.shape[0],))


def looks(watch, model, size=(ROWS, TIME, SIZE), target=classes, steps=6, loss=lambda out, y: F.cross_entropy(out, y),
          forward=None):
    """[topic], and of each step 1 where a layer ran over the batch."""
    session = watch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(steps):
        optimizer.zero_grad()
        x = torch.randn(*(size(n) if callable(size) else size))
        loss((forward or model)(x), target(x)).backward()
        optimizer.step()
    session.finish("closed")
    run = session.made[0]
    return [said for _, said in run.contexts.get("batch_axis", ())], [step.scalars.get(SERIES) for step in run.train]


SEEN, NONE = [None, 1, 1, 1, 1, 1], ([], [None] * 6)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(watch, kind):
    told = {"module": "Recurrent_cell", "kind": kind.__name__, "batch_first": False, "shape": [ROWS, TIME, SIZE]}
    assert looks(watch, Recurrent(kind)) == ([told], SEEN)
    assert looks(watch, Recurrent(kind, batch_first=True)) == NONE
    assert looks(watch, Recurrent(kind, turned=True)) == NONE
    told |= {"batch_first": True, "shape": [TIME, ROWS, SIZE]}
    assert looks(watch, Recurrent(kind, batch_first=True, turned=True)) == ([told], SEEN)


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(SIZE, 2, 16, **options)


TRANSFORMERS = {
    "attention": (lambda **o: nn.MultiheadAttention(SIZE, 2, **o), "body"),
    "encoder layer": (encoder_layer, "body.self_attn"),
    "encoder": (lambda **o: nn.TransformerEncoder(encoder_layer(**o), 1, enable_nested_tensor=False), "body.layers.0.self_attn"),
    "decoder": (lambda **o: nn.TransformerDecoder(nn.TransformerDecoderLayer(SIZE, 2, 16, **o), 1),
                "body.layers.0.self_attn"),
    "both": (lambda **o: nn.Transformer(SIZE, 2, 1, 1, 16, **o), "body.encoder.layers.0.self_attn"),
}


@pytest.mark.parametrize("make, name", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_transformers(watch, make, name):
    topics, seen = looks(watch, Attentive(make))
    assert seen == SEEN and topics == [{"module": f"Attentive_{name}", "kind": "MultiheadAttention",
                                        "batch_first": False, "shape": [ROWS, TIME, SIZE]}]
    assert looks(watch, Attentive(lambda: make(batch_first=True))) == NONE
    assert looks(watch, Attentive(make, turned=True)) == NONE


def test_a_row_of_targets(watch):
    model = Recurrent(outputs=5)
    assert looks(watch, model, target=lambda x: torch.randn(len(x), 5), loss=lambda out, y: F.mse_loss(out, y))[1] == SEEN


def test_a_length_that_is_a_multiple_of_the_batch(watch):
    assert looks(watch, Recurrent(), (6, 24, SIZE))[1] == SEEN


class Alone(nn.GRU):
    """The layer is the model."""


def test_a_layer_that_is_the_model(watch):
    cell = Alone(SIZE, 3)
    assert looks(watch, cell, forward=lambda x: cell(x)[0][:, -1])[1] == SEEN


def tagged(x):
    return torch.randint(0, 3, (x.shape[0], x.shape[1]))


class Tagger(Recurrent):
    def forward(self, x):
        return self.head(self.cell(x)[0]).transpose(1, 2)


class Sentence(Recurrent):
    """One sentence: [words, features]."""

    def forward(self, x):
        return self.head(self.cell(x[:, None])[0][:, 0])


class Films(nn.Module):
    """[films, frames, places, features]: over the frames of each place, the films beside these."""

    def __init__(self):
        super().__init__()
        self.over_time, self.head = nn.MultiheadAttention(SIZE, 2), nn.Linear(SIZE, 3)

    def forward(self, x):
        x = x.transpose(0, 1).flatten(1, 2)
        return self.head(self.over_time(x, x, x)[0].mean(0).unflatten(0, (-1, 5)).mean(1))


class StepByStep(Recurrent):
    def forward(self, x):
        state = None
        for t in range(x.shape[1]):
            out, state = self.cell(x[:, t][None], state)
        return self.head(out[0])


class OwnAxes(nn.LSTM):
    def forward(self, x):
        return super().forward(x.transpose(0, 1))[0].transpose(0, 1), None


HEALTHY = {
    "as long as the batch": (Recurrent(), (TIME, TIME, SIZE), classes),
    "few rows": (Recurrent(), (3, TIME, SIZE), classes),
    "targets of each moment": (Tagger(turned=False), (ROWS, TIME, SIZE), tagged),
    "time first all along": (Recurrent(turned=False), (ROWS, TIME, SIZE), lambda x: classes(x.transpose(0, 1))),
    "a sentence": (Sentence(), (ROWS, SIZE), classes),
    "as many frames as films": (Films(), (6, 6, 5, SIZE), classes),
    "step by step": (StepByStep(), (ROWS, TIME, SIZE), classes),
    "axes of its own": (Recurrent(lambda *a, batch_first: OwnAxes(*a)), (ROWS, TIME, SIZE), classes),
    "no layer of that kind": (nn.Sequential(nn.Flatten(), nn.Linear(TIME * SIZE, 3)), (ROWS, TIME, SIZE), classes),
    "a mask of padding": (
        Attentive(lambda: nn.MultiheadAttention(SIZE, 2), key_padding_mask=torch.zeros(TIME, ROWS, dtype=torch.bool)),
        (ROWS, TIME, SIZE), classes),
}


@pytest.mark.parametrize("model, size, target", HEALTHY.values(), ids=HEALTHY)
def test_what_is_none(watch, model, size, target):
    def loss(out, y):
        return F.cross_entropy(out, y) if len(out) == len(y) else F.cross_entropy(out[:len(y)], y)
    assert looks(watch, copy.deepcopy(model), size, target, loss=loss) == NONE


def test_a_loss_that_nobody_sees(watch):
    model = Recurrent()
    assert looks(watch, model, loss=lambda out, y: out.pow(2).mean()) == NONE


def test_a_length_that_is_the_batchs_by_chance(watch):
    """Frames of films, pooled by a convolution: another number than the batch has, or its own."""
    model = Recurrent(turned=True)
    model.cell.batch_first = True
    _, seen = looks(watch, model, lambda n: (ROWS, ROWS if n % 2 else TIME, SIZE))
    assert seen == [None, None, 1, 0, 1, 0]


def hooks_of(model):
    return sum(len(module._forward_pre_hooks) for module in model.modules() if module is not model)


def test_hooks_are_there_in_training_forwards_alone(watch):
    model = Attentive(lambda: encoder_layer(batch_first=True))
    inside = []
    model.head.register_forward_hook(lambda *_: inside.append(hooks_of(model)))
    session = watch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    outside = []
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(ROWS, TIME, SIZE)), torch.zeros(ROWS, dtype=torch.long)).backward()
        optimizer.step()
        outside.append(hooks_of(model))
        model.eval()
        with torch.no_grad():
            model(torch.randn(ROWS, TIME, SIZE))
        model.train()
    assert inside == [0, 0, *[1, 0] * 9, *[0, 0] * 2] and outside == [0] * 12
    session.finish("closed")


def test_none_is_left_by_a_forward_that_raises(watch):
    session, model = watch(), Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(4):
        if n == 2:
            with pytest.raises(RuntimeError):
                model(torch.randn(ROWS, TIME, SIZE + 1))
            assert hooks_of(model) == 0
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(ROWS, TIME, SIZE)), torch.zeros(ROWS, dtype=torch.long)).backward()
        optimizer.step()
    assert session.made[0].train[3].scalars[SERIES] == 1


def test_a_frozen_part_goes_its_own_way(watch):
    """In evaluation mode, where torch has a faster way that hooks would close."""
    frozen = encoder_layer(batch_first=True).eval().requires_grad_(False)

    class Net(Recurrent):
        def train(self, mode=True):
            super().train(mode)
            frozen.eval()
            return self

        def forward(self, x):
            with torch.no_grad():
                x = self.frozen(x)
            assert not frozen.self_attn._forward_pre_hooks
            return super().forward(x)
    net = Net()
    net.frozen = frozen
    net.train()
    assert looks(watch, net)[1] == SEEN


def test_where_anything_is_compiled_there_are_no_hooks(watch):
    model = Recurrent()
    model.head = torch.compile(model.head, backend="eager")
    assert looks(watch, model) == NONE


def test_a_compiled_model_is_compiled_once(watch):
    def compiled(model):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        optimizer, call = torch.optim.SGD(model.parameters(), lr=0.01), torch.compile(model, backend="eager")
        for _ in range(12):
            optimizer.zero_grad()
            F.cross_entropy(call(torch.ones(ROWS, TIME, SIZE)), torch.zeros(ROWS, dtype=torch.long)).backward()
            optimizer.step()
        return dict(torch._dynamo.utils.counters["frames"]), dict(torch._dynamo.utils.counters["graph_break"])

    def make():
        return Attentive(lambda: nn.MultiheadAttention(SIZE, 2, batch_first=True))
    without = compiled(make())
    watch()
    assert compiled(make()) == without
