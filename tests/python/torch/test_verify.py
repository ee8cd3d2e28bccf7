"""`--verify-every N`: forward and backward of every N-th step are executed again, compared to the bit, and leave no trace."""

import json
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

STEPS = 9


class Net(nn.Module):
    """Dropout draws, BatchNorm writes buffers: what has to be restored for the second execution, and after it."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 3)

    def forward(self, x):
        return self.b(self.drop(self.norm(torch.relu(self.a(x)))))


def train(make=Net, steps=STEPS, step=None):
    """(losses, final state), all bits of them."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for n in range(steps):
        x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
        optimizer.zero_grad()
        if step is not None:
            loss = step(model, x, y, n)
        else:
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: t.clone() for name, t in model.state_dict().items()}


@pytest.fixture
def verified(watch, monkeypatch, capfd):
    """Trains under watch; returns (what train returns, its records, what was said)."""

    def run(interval=2, **arguments):
        monkeypatch.setenv("TDBG_VERIFY_EVERY", str(interval))
        session = watch()
        result = train(**arguments)
        session.finish("completed")
        records = [record for *_, record in session.made[0].contexts.get("not_repeatable", [])]
        return result, records, " ".join(capfd.readouterr().err.split())
    return run


def same(a, b):
    (losses_a, state_a), (losses_b, state_b) = a, b
    return losses_a == losses_b and all(torch.equal(state_a[k], state_b[k]) for k in state_b)


def draws(model, x, y, n):
    """Draws between the model's forward and backward: a second forward leaves other random states behind than that."""
    loss = functional.cross_entropy(model(x), y) * (1 + torch.rand(()))
    loss.backward()
    return loss


@pytest.mark.parametrize("step", [None, draws])
def test_the_training_is_the_same_to_the_bit_and_all_steps_agree(verified, step):
    plain = train(step=step)
    watched, records, said = verified(interval=2, step=step)
    assert same(watched, plain)
    assert records == []
    assert "5 of 5 steps that were executed again gave the same bits" in said


class Unsteady(Net):
    """Never gives the same twice, whatever the random states: it counts on its own, outside of its attributes."""

    calls = [0]

    def forward(self, x):
        self.calls[0] += 1
        return super().forward(x) * (1 + 1e-6 * self.calls[0])


def test_what_never_gives_the_same_is_called_nondeterminism(verified):
    _, records, said = verified(interval=4, make=Unsteady)
    first = records[0]
    assert first["likelier"] == "nondeterminism" and first["odd"] == "" and first["what"] == "output"
    assert first["step"] == 0 and first["rank"] == 0
    assert "three executions gave three results" in first["sentence"] and "nondeterminism is likelier" in said


class Flips(Net):
    """The n-th call flips one bit of one gradient, once."""

    def __init__(self, at):
        super().__init__()
        self.calls, self.at = [0], at
        self.a.weight.register_hook(self.flip)

    def flip(self, gradient):
        self.calls[0] += 1
        if self.calls[0] != self.at:
            return None
        damaged = gradient.clone()
        damaged.view(torch.int32)[3, 2] ^= 1 << 20
        return damaged


# Steps 0, 4 and 8 are executed again, so backward's calls are 1 (the training's), 2 (again), 3, 4, 5, 6 (step 4), 7 (again).
@pytest.mark.parametrize("at, odd", [(6, "the training's own"), (7, "the second")])
def test_a_bit_that_flips_once_is_called_corruption_and_says_which_execution(verified, at, odd):
    _, records, said = verified(interval=4, make=lambda: Flips(at))
    (record,) = records
    assert record["likelier"] == "corruption" and record["odd"] == odd and record["step"] == 4
    assert record["what"] == "gradient" and record["which"] == "a.weight" and record["tensor"] == "gradient/Flips_a.weight"
    assert "2 of 3 steps that were executed again gave the same bits" in said


def test_a_flip_in_the_check_leaves_the_training_alone(verified):
    watched, _, _ = verified(interval=4, make=lambda: Flips(7))
    plain = train(make=lambda: Flips(10**9))
    assert same(watched, plain)


class Counts(Net):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def twice(model, x, y, n):
    loss = functional.cross_entropy(model(x), y) + functional.cross_entropy(model(x * 2), y)
    loss.backward()
    return loss


def penalty(model, x, y, n):
    loss = functional.cross_entropy(model(x), y) + 1e-3 * sum((p ** 2).sum() for p in model.parameters())
    loss.backward()
    return loss


def written(model, x, y, n):
    output = model(x)
    output += 1
    loss = functional.cross_entropy(output, y)
    loss.backward()
    return loss


@pytest.mark.parametrize("arguments, why", [
    ({"make": Counts}, "the forward of Counts changes the module's own attributes"),
    ({"step": twice}, "it is called several times in a step"), ({"step": penalty}, "a penalty is added"),
    ({"step": written}, "output was written to")])
def test_what_cannot_be_executed_again_is_said_once_and_left_alone(verified, arguments, why):
    plain = train(**arguments)
    watched, records, said = verified(interval=2, **arguments)
    assert same(watched, plain) and records == []
    assert said.count("cannot be executed again") == 1 and why in said


def micro_steps(model, x, y, n):
    for part, labels in zip(x.chunk(2), y.chunk(2)):
        loss = functional.cross_entropy(model(part), labels) / 2
        loss.backward()
    return loss


def test_of_accumulated_micro_steps_the_first_is_executed_again(verified):
    plain = train(step=micro_steps)
    watched, records, said = verified(interval=3, step=micro_steps)
    assert same(watched, plain) and records == [] and "3 of 3 steps" in said


def test_a_forward_that_fails_the_second_time_does_not_reach_the_training(verified):
    class Once(Net):
        calls = [0]

        def forward(self, x):
            self.calls[0] += 1
            if self.calls[0] == 2:
                raise RuntimeError("not twice")
            return super().forward(x)

    (losses, _), records, said = verified(make=Once)
    assert len(losses) == STEPS and records == [] and "RuntimeError: not twice" in said


def test_what_is_no_number_of_steps_is_said_and_left_out(watch, monkeypatch, capfd):
    monkeypatch.setenv("TDBG_VERIFY_EVERY", "often")
    session = watch()
    train()
    assert session.verify is None and "found 'often', expected a number of steps" in capfd.readouterr().err


def test_without_being_asked_nothing_is_held(watch):
    session = watch()
    train()
    assert session.verify is None and session.black_box._flight is None


class Codes(Net):
    """Reads a buffer that another rank may have written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.ones(8))

    def forward(self, x):
        return super().forward(x * self.codes)


class DistributedDataParallel(nn.Module):
    """As it spreads the first rank's buffers, seen from another rank."""

    def __init__(self, module):
        super().__init__()
        self.module, self.calls = module, iter(range(1, 100))

    def forward(self, x):
        with torch.no_grad():
            self.module.codes.fill_(next(self.calls))
        return self.module(x)


def test_buffers_are_those_that_the_module_was_called_with(verified):
    _, records, said = verified(interval=2, make=lambda: DistributedDataParallel(Codes()))
    assert records == [] and "5 of 5 steps that were executed again gave the same bits" in said


def test_a_forward_without_a_backward_is_held_no_longer_than_its_step(watch, monkeypatch):
    monkeypatch.setenv("TDBG_VERIFY_EVERY", "100")
    session, model = watch(), nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    looked_at = weakref.ref(model(torch.randn(4, 8)))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert session.verify is not None and looked_at() is None


def test_a_backward_that_raises_is_no_reason_to_verify_nothing_any_more(verified):
    def step(model, x, y, n):
        if n == 2:
            handle = model.a.weight.register_hook(lambda gradient: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                functional.cross_entropy(model(x), y).backward()
            handle.remove()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    _, records, said = verified(interval=2, step=step)
    assert records == [] and "4 of 4 steps that were executed again gave the same bits" in said
    assert "cannot be executed again" not in said


# The flight recorder ---------------------------------------------------------------------------------------------


def test_the_last_gradients_are_written_with_a_black_box_and_only_then(watch, monkeypatch, tmp_path, capfd):
    from tdbg.blackbox.opened import Opened
    monkeypatch.setenv("TDBG_FLIGHT", "3")
    session = watch(plan={"black_box_bytes": 1 << 20}, directory=str(tmp_path))
    kept = {}

    def step(model, x, y, n):
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        kept[n] = model.a.weight.grad.clone()
        if n == 5:
            session.made[0].requests.append(json.dumps({"id": "1", "action": "blackbox", "because": "x > 1"}))
        return loss

    train(step=step)
    assert "gradients of the last 3 steps, 0.0 MiB of memory" in capfd.readouterr().err
    (directory,) = tmp_path.glob("black_box/0/worker_0/*")
    box = Opened(str(directory))
    assert box.step == 6 and box.because == "x > 1"     # asked for behind step 5: the next one is kept
    found = {s: g for s, _, name, g in box.flight() if name == "a.weight"}
    assert sorted(found) == [4, 5, 6]
    assert all(torch.equal(found[s], kept[s]) for s in found)


def test_a_ring_without_room_holds_fewer_steps_or_none(watch, monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("TDBG_FLIGHT", "1000")
    size = sum(p.numel() * 4 for p in Net().parameters())
    watch(plan={"black_box_bytes": 2 * size}, directory=str(tmp_path))
    train()
    assert "the last 2 steps (--black-box has no room for 1000)" in " ".join(capfd.readouterr().err.split())


def test_a_ring_keeps_to_the_limit_whichever_optimizer_steps_first(watch, monkeypatch, tmp_path):
    monkeypatch.setenv("TDBG_FLIGHT", "1000")
    first, second = nn.Linear(8, 8), nn.Linear(8, 64)
    size = sum(p.numel() * 4 for model in (first, second) for p in model.parameters())
    session = watch(plan={"black_box_bytes": 3 * size}, directory=str(tmp_path))
    optimizers = [torch.optim.SGD(model.parameters(), 1e-3) for model in (first, second)]
    for _ in range(8):
        second(first(torch.randn(4, 8))).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    held = [gradient for _, step in session.black_box._flight._ring for _, gradient in step.values()]
    assert 0 < sum(gradient.numel() * 4 for gradient in held) <= 3 * size
