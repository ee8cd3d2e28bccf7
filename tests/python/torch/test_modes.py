"""The script's own modes (FlopCounterMode, one that logs) see what they see without a watch: no operation of ours."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch.unseen import hidden

KINDS = ("weight", "bias", "gradient", "buffer", "loss", "output", "input", "output_gradient", "label", "optimizer")


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen[getattr(function, "__name__", str(function))] += 1
        return function(*args, **(kwargs or {}))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head, self.frozen = nn.Linear(6, 3), nn.Linear(8, 3).requires_grad_(False)

    def forward(self, x):
        return self.head(checkpoint(self.inner, x, use_reentrant=False)) + self.frozen(x)


def train(mode):
    """Steps of three kinds, an evaluation, a NaN; what the mode saw."""
    torch.manual_seed(0)
    model = Net()
    trained = [p for p in model.parameters() if p.requires_grad]
    adam, lbfgs = torch.optim.Adam(trained), torch.optim.LBFGS(trained, lr=1e-3, max_iter=2)
    scaler = torch.amp.GradScaler("cpu")

    def loss(spoilt=False):
        found = nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,)))
        return found * float("nan") if spoilt else found

    def closure():
        lbfgs.zero_grad()
        found = loss()
        found.backward()
        return found

    def steps():
        for step in range(4):
            adam.zero_grad()
            loss(spoilt=step == 2).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            if step != 2:
                adam.step()
        adam.zero_grad()
        scaler.scale(loss()).backward()
        scaler.step(adam)
        scaler.update()
        lbfgs.step(closure)
        model.eval()
        with torch.no_grad():
            loss()
        model.train()

    with mode:
        steps()
    return mode.seen


@pytest.mark.parametrize("options", [
    {}, {"force_lane": True}, {"plan": {"step_by": "forward"}}, {"plan": {"black_box_bytes": 1 << 20}}],
    ids=["run", "lane", "forward", "black box"])
@pytest.mark.parametrize("mode", [Dispatched, Called])
def test_a_mode_sees_no_operation_of_ours(watch, tmp_path, mode, options):
    bare = train(mode())
    session = watch(kinds=KINDS, directory=str(tmp_path), **options)
    assert train(mode()) == bare and sum(bare.values()) > 100
    assert session.made[0].steps


def test_modes_are_where_they_were_whatever_happens_meanwhile():
    outer, inner, called = Dispatched(), Dispatched(), Called()
    with outer, called, inner:
        with pytest.raises(ValueError), hidden():
            torch.ones(2) + 1
            raise ValueError
        assert not outer.seen and not called.seen
        torch.ones(2)
    assert inner.seen == outer.seen == {"aten.ones.default": 1} and called.seen["ones"] == 1
