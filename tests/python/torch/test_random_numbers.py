"""Random numbers that are set back at each step, and what only looks like that."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch import random_numbers as _random_numbers

OF_CPU = "context/random/cpu"


class Net(nn.Module):
    def __init__(self, dropout=0.5):
        super().__init__()
        self.first, self.drop, self.head = nn.Linear(6, 8), nn.Dropout(dropout), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.drop(self.first(x).relu()))


def steps(watch, before=lambda n: None, model=None, compute=None, count=8, after=lambda n: None, **options):
    """Of each step: 1 where random numbers were set back, 0 where not, None where nothing is said."""
    session, model = watch(**options), model or Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 6), torch.randint(0, 4, (16,))
    for n in range(count):
        given = before(n)
        optimizer.zero_grad()
        F.cross_entropy((compute or model)(x if given is None else given), y).backward()
        optimizer.step()
        after(n)
    session.finish("closed")
    return [step.scalars.get((OF_CPU, 0)) for step in session.made[0].train]


BACK = [None] + [1] * 7


def noise_of_one_seed(n):
    torch.manual_seed(0)
    return torch.randn(16, 6)


def restored():
    state = torch.get_rng_state()
    return lambda n: torch.set_rng_state(state)


class InsideTheModel(Net):
    def forward(self, x):
        torch.manual_seed(0)
        return super().forward(x)


def test_a_seed_at_each_step(watch):
    assert steps(watch, lambda n: torch.manual_seed(0) and None) == BACK
    assert steps(watch, restored()) == BACK
    assert steps(watch, model=InsideTheModel()) == [None, None, *[1] * 6]       # before the first one it was another


def test_what_is_drawn_before_the_forward(watch):
    assert steps(watch, noise_of_one_seed, Net(0)) == BACK
    back = restored()

    def drawn(n):
        back(n)
        return torch.randn(16, 6)
    assert steps(watch, drawn, Net(0)) == BACK


def test_one_past_our_functions(watch):
    """A generator's own method is seen by what the dropout draws."""
    assert steps(watch, lambda n: torch.default_generator.manual_seed(3) and None) == BACK


def test_an_evaluation_that_seeds_after_each_step(watch):
    def evaluate(n):
        torch.manual_seed(0)
        torch.randn(3)
    assert steps(watch, after=evaluate) == [None, None, *[1] * 6]


def augmented_by_their_own_seeds(n):
    rows = []
    for index in range(16):
        torch.manual_seed(index)
        rows.append(torch.randn(6))
    return torch.stack(rows)


def own_generator(n):
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(0))


def forked(n):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.randn(16, 6)


HEALTHY = {
    "nothing is set": (lambda n: None, 0.5),
    "nothing is drawn": (lambda n: None, 0),
    "a seed, and nothing is drawn": (lambda n: torch.manual_seed(0) and None, 0),
    "a seed of the step's": (lambda n: torch.manual_seed(n) and None, 0.5),
    "drawn with a seed of the step's": (lambda n: torch.manual_seed(n) and torch.randn(16, 6), 0),
    "a generator of its own": (own_generator, 0.5),
    "a generator of its own alone": (own_generator, 0),
    "forked": (forked, 0.5),
    "forked alone": (forked, 0),
    "forked after a draw": (lambda n: torch.rand(1) * 0 + forked(n), 0),
    "augmented by their own seeds": (augmented_by_their_own_seeds, 0),
}


@pytest.mark.parametrize("before, dropout", HEALTHY.values(), ids=HEALTHY)
def test_what_goes_on_is_none(watch, before, dropout):
    assert steps(watch, before, Net(dropout)) == [None] * 8


def test_an_evaluation_now_and_then(watch):
    found = steps(watch, after=lambda n: torch.manual_seed(0) if n in (2, 5) else None)
    assert found == [None] * 8


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_part_that_is_computed_again(watch, reentrant):
    model = Net()

    def compute(x):
        hidden = checkpoint(lambda x: model.drop(model.first(x)), x, use_reentrant=reentrant)
        return model.head(hidden)

    def inputs(n):
        return torch.randn(16, 6).requires_grad_()
    assert steps(watch, inputs, model, compute) == [None] * 8


def test_a_step_that_is_executed_again(watch, monkeypatch):
    monkeypatch.setenv("TDBG_VERIFY_EVERY", "1")
    assert steps(watch) == [None] * 8
    assert steps(watch, lambda n: torch.manual_seed(0) and None) == BACK


def test_members_that_share_a_seed_each_round(watch):
    """Each has an optimizer, whose steps are compared with its own."""
    session, members = watch(), [Net() for _ in range(3)]
    optimizers = [torch.optim.SGD(member.parameters(), lr=0.01) for member in members]
    for n in range(5):
        for member, optimizer in zip(members, optimizers):
            torch.manual_seed(n)
            optimizer.zero_grad()
            F.cross_entropy(member(torch.ones(16, 6)), torch.zeros(16, dtype=torch.long)).backward()
            optimizer.step()
            session.step_ends()
    session.finish("closed")
    assert len(session.made[0].train) == 15
    assert not any((OF_CPU, 0) in step.scalars for step in session.made[0].train)


def test_accumulation_begins_with_its_first_part(watch):
    session, model = watch(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(4):
        torch.manual_seed(0)
        optimizer.zero_grad()
        for _ in range(1 + n % 2):
            F.cross_entropy(model(torch.ones(16, 6)), torch.zeros(16, dtype=torch.long)).backward()
        optimizer.step()
    session.finish("closed")
    assert [step.scalars.get((OF_CPU, 0)) for step in session.made[0].train] == BACK[:4]


def test_it_is_looked_at_in_the_first_steps_alone(watch):
    looks = _random_numbers.LOOKS
    found = steps(watch, lambda n: torch.manual_seed(0) and None, count=looks + 5)
    assert found == [None, *[1] * (looks - 1), *[None] * 5]


def test_steps_that_are_not_recorded_are_no_steps_before(watch):
    found = steps(watch, lambda n: torch.manual_seed(0) and None, due=lambda mode, step: step % 2 == 0)
    assert found == [None] * 8


def test_functions_are_the_scripts_own(watch):
    seed, bring_back = torch.manual_seed, torch.set_rng_state
    session = watch()
    assert torch.manual_seed is seed and torch.set_rng_state is torch.random.set_rng_state is not bring_back
    torch.manual_seed(7)
    expected = torch.randn(3)
    assert torch.manual_seed(7) is torch.default_generator
    assert torch.equal(torch.randn(3), expected)
    session.finish("closed")
    assert torch.set_rng_state is torch.random.set_rng_state is bring_back


def test_a_devices_numbers_are_looked_at_by_themselves(watch, monkeypatch):
    """A generator of the host stands in for the device's."""
    of_device = torch.Generator()
    own = _random_numbers._marks
    monkeypatch.setattr(_random_numbers, "_marks", lambda: {
        **own(), "cuda": _random_numbers._mark(of_device.get_state())})
    session, model = watch(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(6):
        of_device.manual_seed(0 if n < 4 else n)
        x = torch.randn(16, 6, generator=of_device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), torch.zeros(16, dtype=torch.long))
        torch.randn(16, generator=of_device)
        loss.backward()
        optimizer.step()
    session.finish("closed")
    steps = session.made[0].train
    assert [step.scalars.get(("context/random/cuda", 0)) for step in steps] == [None, 1, 1, 1, 0, 0]
    assert not any((OF_CPU, 0) in step.scalars for step in steps)


def test_the_current_device_is_asked_unless_a_graph_is_captured(monkeypatch):
    generators = [torch.Generator().manual_seed(n) for n in range(2)]
    captured = []
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(captured))
    assert set(_random_numbers._marks()) == {"cpu"}             # CUDA is not in use
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert _random_numbers._marks()["cuda"] == _random_numbers._mark(generators[1].get_state())
    captured.append(1)
    assert set(_random_numbers._marks()) == {"cpu"}


def compiled(seeds):
    """(how often the compiler broke off, what came out)"""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    found = torch.compile(seeds, backend="eager")(torch.ones(3))
    return sum(torch._dynamo.utils.counters["graph_break"].values()), found.tolist()


def test_the_compiler_breaks_off_where_it_did(watch):
    def seeds(x):
        torch.manual_seed(0)
        state = torch.get_rng_state()
        x = x + torch.rand(3)
        torch.set_rng_state(state)
        return x + torch.rand(3)
    without = compiled(seeds)
    session, model = watch(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model(torch.ones(16, 6)).sum().backward()
    optimizer.step()
    assert compiled(seeds) == without and session.context.random_numbers.due
