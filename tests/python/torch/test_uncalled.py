"""Outputs that nobody can see, because a module's forward() is called and not the module: said once, and only then."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act = nn.Linear(6, 6), nn.Tanh()

    def forward(self, x):
        return self.act(self.inner(x))


class Net(nn.Module):
    """`way`: how the second block is called."""

    def __init__(self, way=lambda block, x: block(x)):
        super().__init__()
        self.first, self.second, self.head, self.way = Block(), Block(), nn.Linear(6, 3), way

    def forward(self, x):
        return self.head(self.way(self.second, self.first(x)))


def train(watch, call=lambda model, x: model(x), model=None, steps=6, parameters=None, clear=True, **options):
    torch.manual_seed(0)
    session = watch(kinds=("weight", "gradient", "loss", "output"), **options)
    model = model or Net()
    optimizer = torch.optim.SGD((parameters or (lambda m: m.parameters()))(model), lr=0.01)
    for step in range(steps):
        if clear:
            optimizer.zero_grad()
        model.step = step
        F.cross_entropy(call(model, torch.randn(8, 6)), torch.arange(8) % 3).backward()
        optimizer.step()
    session.finish("closed")
    run = session.made[0]
    return [said for cause, _, said in run.lost if "outputs of" in said], run


def direct(block, x):
    return block.forward(x)


@pytest.mark.parametrize("steps", [3, 6])
def test_a_root_whose_forward_is_called(watch, steps):
    said, run = train(watch, lambda model, x: model.forward(x), steps=steps)
    assert said == ["outputs of Net: its forward() is called directly, so no hook runs: call the module. From step 0 on"]
    assert ("Net_output_0", 0, 0) not in run.steps[-1].values and ("first_output_0", 0, 0) in run.steps[-1].values


def test_a_block_whose_forward_is_called(watch):
    said, _ = train(watch, model=Net(direct))
    assert said == ["outputs of second: its forward() is called directly, so no hook runs: call the module. From step 0 on"]


def test_a_layer_whose_forward_is_called(watch):
    said, _ = train(watch, model=Net(lambda block, x: block.act(block.inner.forward(x))))
    assert said == ["outputs of second.inner: its forward() is called directly, or another module uses its parameters, so no hook runs: "
                    "call the module. From step 0 on"]


def test_a_model_that_is_one_layer(watch):
    said, _ = train(watch, lambda model, x: model.forward(x), model=nn.Linear(6, 3))
    assert len(said) == 1 and said[0].startswith("outputs of Linear: its forward() is called directly, or another")


def test_a_forward_behind_a_decorator(watch):
    def decorated(function):
        def around(*args, **kwargs):
            return function(*args, **kwargs)
        return around

    class Wrapped(Block):
        forward = decorated(Block.forward)

    model = Net(direct)
    model.second = Wrapped()
    assert [s.split(":")[0] for s in train(watch, model=model)[0]] == ["outputs of second"]


def test_it_begins_later(watch):
    def way(block, x):
        return block(x) if model.step < 5 else block.forward(x)

    model = Net(way)
    said, _ = train(watch, model=model, steps=12)
    assert [s.partition(":")[0] for s in said] == ["outputs of second"] and said[0].endswith("From step 5 on")


def test_several_backwards(watch):
    def call(model, x):
        F.cross_entropy(model.forward(x), torch.arange(8) % 3).backward()
        return model.forward(x)
    assert len(train(watch, call)[0]) == 1


# What is none ------------------------------------------------------------------------------------------------------------


class Held(nn.Module):
    """A part that only holds others, one that is not used, one that takes turns, attention, and weights that are shared."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.unused, self.sometimes = nn.Linear(6, 6), nn.Linear(6, 6)
        self.embed, self.head = nn.Linear(6, 3, bias=False), nn.Linear(6, 3)
        self.tied = nn.Linear(6, 3, bias=False)
        self.tied.weight = self.embed.weight

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        x = x + self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]
        if self.step % 3 == 2:
            x = self.sometimes(x)
        return self.head(x) + self.embed(x)


@pytest.mark.parametrize("clear", [True, False])
def test_what_is_called_when_it_is_used_is_not_named(watch, clear):
    said, _ = train(watch, model=Held(), steps=18, clear=clear)
    assert said == []


class Lit(nn.Module):
    """Whose own forward nobody calls."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)

    def training_step(self, x):
        return self.net(x)


def test_a_model_whose_own_forward_does_not_run_is_not_named(watch):
    assert train(watch, lambda model, x: model.training_step(x), model=Lit(), steps=10)[0] == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block_is_not_named(watch, reentrant):
    model = Net(lambda block, x: checkpoint(block, x, use_reentrant=reentrant))
    assert train(watch, model=model, steps=10)[0] == []


def test_a_model_that_trains_in_evaluation_mode_is_not_named(watch):
    assert train(watch, model=Net().eval(), steps=10)[0] == []


def test_steps_in_which_nothing_is_due_say_nothing(watch):
    said, _ = train(watch, model=Net(), steps=20, due=lambda mode, step: step % 5 == 0)
    assert said == []


def test_two_models_in_turn_are_not_named(watch):
    torch.manual_seed(0)
    session = watch(kinds=("weight", "gradient", "loss", "output"))
    models = [Net(), Net()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
    for step in range(12):
        model, optimizer = models[step % 2], optimizers[step % 2]
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 6)), torch.arange(8) % 3).backward()
        optimizer.step()
    session.finish("closed")
    assert [said for *_, said in session.made[0].lost] == []


def test_training_is_bit_identical(watch):
    def weights(watched):
        torch.manual_seed(0)
        session = watch(kinds=("weight", "output")) if watched else None
        model = Net(direct)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model.forward(F.dropout(torch.randn(8, 6))), torch.arange(8) % 3).backward()
            optimizer.step()
        if session:
            session.finish("closed")
            assert not any(m._forward_pre_hooks for m in model.modules())
        return [p.detach() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(weights(False), weights(True)))
