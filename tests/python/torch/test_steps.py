"""Where steps begin and end: docs/semantics.md, "What a step is"."""

import pytest
import torch
from torch import nn

from tdbg.adaptors.steps import EVAL, TRAIN, Clock


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def loss_of(model):
    return nn.functional.mse_loss(model(torch.ones(5, 4)), torch.zeros(5, 2))


def step(model, optimizer):
    optimizer.zero_grad()
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    return loss


def test_one_optimizer_closes_every_step_at_once(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(3):
        before = [p.detach().clone() for p in model.parameters()]
        step(model, optimizer)
        run = session.made[0]
        assert len(run.steps) == n + 1
        assert (run.steps[n]["Sequential_0.weight"] == before[0].numpy()).all(), "weights are those before the update"
        assert (run.steps[n]["gradient/Sequential_2.bias"] == model[2].bias.grad.numpy()).all()
        assert run.steps[n].skipped is False


def test_several_optimizers_are_one_step(watch):
    session = watch()
    a, b = net(), net()
    oa, ob = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.Adam(b.parameters())
    for n in range(3):
        step(a, oa)
        assert len(session.made[0].steps) == n
        step(b, ob)
        assert len(session.made[0].steps) == n + 1
    first = session.made[0].steps[0]
    assert {"Sequential_0.weight", "Sequential_1_0.weight"} <= {k[0] for k in first.values}
    # The second optimizer's loss is a later call of the same step, not a value on top of the first one's.
    assert {"MSELoss_output_0", "MSELoss_output_1"} <= {k[0] for k in first.values}


def test_optimizer_that_steps_twice_opens_the_next_step(watch):
    session = watch()
    a, b = net(), net()
    oa, ob = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
    step(a, oa)
    assert session.made[0].steps == []      # b is trainable and has not stepped
    step(a, oa)
    assert len(session.made[0].steps) == 1  # b may still follow
    step(b, ob)
    assert len(session.made[0].steps) == 2  # and did: nobody is left
    step(a, oa)
    step(a, oa)
    step(b, ob)
    assert len(session.made[0].steps) == 4
    step(a, oa)
    assert len(session.made[0].steps) == 5, "b is in every second step: nobody waits for it in this one"


def test_forward_in_evaluation_mode_is_an_eval_step(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            loss_of(model)
    model.train()
    step(model, optimizer)
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN, EVAL, EVAL, TRAIN]
    assert "MSELoss_output_0" in {k[0] for k in run.steps[1].values}
    assert {k[0] for k in run.steps[1].values} == {"MSELoss_output_0"}
    assert run.steps[3].mode_step == 1


def test_training_in_evaluation_mode_is_training(watch):
    session = watch()
    model = net().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        step(model, optimizer)
    assert [s.mode for s in session.made[0].steps] == [TRAIN, TRAIN]
    assert "MSELoss_output_0" in {k[0] for k in session.made[0].steps[0].values}


def test_training_forward_without_gradients_is_no_step(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    with torch.no_grad():
        loss_of(model)
    step(model, optimizer)
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN, TRAIN]
    assert sorted(k[0] for k in run.steps[1].values if "oss" in k[0]) == ["MSELoss_output_0"]


def test_micro_steps_are_sub_keys_and_their_mean_is_the_steps(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        values = []
        for k in range(3):
            loss = nn.functional.mse_loss(model(torch.full((5, 4), float(k))), torch.zeros(5, 2))
            values.append(loss.item())
            (loss / 3).backward()
        optimizer.step()
        s = session.made[0].steps[-1]
        assert [s.values["MSELoss_output_0", n + 1, 0] for n in range(3)] == pytest.approx(values)
        assert s["MSELoss_output_0"] == pytest.approx(sum(values) / 3)
        assert s.scalars["backward_loss", 0] == pytest.approx(sum(values) / 3)
        assert s.scalars["context/micro_steps", 0] == 3


def test_closure_captures_final_gradients_and_old_weights(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    for n in range(2):
        before = model[0].weight.detach().clone()
        optimizer.step(closure)
        s = session.made[0].steps[n]
        assert (s["Sequential_0.weight"] == before.numpy()).all()
        assert (s["gradient/Sequential_0.weight"] == model[0].weight.grad.numpy()).all()
        assert "MSELoss_output_0" in {k[0] for k in s.values}


def test_lbfgs_evaluations_are_sub_keys(watch):
    session = watch()
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        calls.append(loss.item())
        return loss

    before = model[0].weight.detach().clone()
    optimizer.step(closure=closure)
    run = session.made[0]
    assert len(run.steps) == 1 and len(calls) > 1
    s = run.steps[0]
    assert (s["Sequential_0.weight"] == before.numpy()).all()
    subs = sorted(sub for name, sub, _ in s.values if name == "MSELoss_output_0")
    assert subs == [0] + [n + 1 for n in range(1, len(calls))]
    assert s.values["MSELoss_output_0", subs[-1], 0] == pytest.approx(calls[-1])


def test_exception_inside_step_leaves_a_step_that_the_next_one_closes(watch):
    session = watch()

    class Breaking(torch.optim.SGD):
        broken = False

        def step(self, closure=None):
            if self.broken:
                raise RuntimeError("the script's own")
            return super().step(closure)

    model = net()
    optimizer = Breaking(model.parameters(), lr=0.1)
    step(model, optimizer)
    optimizer.broken = True
    with pytest.raises(RuntimeError, match="the script's own"):
        step(model, optimizer)
    optimizer.broken = False
    step(model, optimizer)
    assert len(session.made[0].steps) == 3


def test_nested_optimizer_is_one_step(watch):
    session = watch()

    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    model = net()
    optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        step(model, optimizer)
    assert len(session.made[0].steps) == 3


def test_nothing_due_takes_nothing(watch):
    session = watch(due=lambda mode, s: s % 2 == 0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        step(model, optimizer)
    run = session.made[0]
    assert [bool(s.values) for s in run.steps] == [True, False, True, False]
    assert run.steps[1].scalars == {}


def test_plan_that_takes_nothing_is_foreseen(watch):
    session = watch(plan={"summaries_every": 2}, due=lambda mode, s: s % 2 == 0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(4):
        loss_of(model).backward()
        # The first is seen before the plan says anything of the second.
        assert bool(session.losses.train) is (n % 2 == 0), "no copy is made for a step that takes nothing"
        optimizer.step()
    assert ["MSELoss_output_0" in {k[0] for k in s.values} for s in session.made[0].steps] == [True, False] * 2


def test_clock_keeps_its_set_when_an_evaluation_cuts_a_step_short():
    log = []
    clock = Clock(lambda mode: log.append(("begin", mode)) or True, lambda mode, skipped: log.append(("end", mode)))
    for optimizer in (1, 2):
        clock.about_to_step(optimizer)
        clock.has_stepped(optimizer)
    clock.about_to_step(1)                       # closes the first step
    clock.has_stepped(1)
    clock.evaluate()
    clock.about_to_step(2)
    clock.has_stepped(2)
    assert clock.mode == TRAIN and clock.waits(), "for the first, which was in the last step as well"
    clock.about_to_step(1)
    assert clock.has_stepped(1)
    assert log[-1] == ("end", TRAIN)


def test_final_weights_are_recorded_at_the_end(watch):
    session = watch()

    def main():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        return model[0].weight.detach().clone()

    final = main()                               # model and optimizer are gone
    session.finish("completed")
    run = session.made[0]
    assert run.ended == ("completed", "")
    assert (run.end_values["Sequential_0.weight", 0, 0] == final.numpy()).all()
    assert ("gradient/Sequential_0.weight", 0, 0) not in run.end_values


def test_stop_request_is_a_sigterm_to_ourselves(watch):
    import signal
    session = watch()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    got = []
    old = signal.signal(signal.SIGTERM, lambda *a: got.append(1))
    try:
        session.made[0].requests.append('{"id": 1, "action": "stop"}')
        step(model, optimizer)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert got == [1]


class Counting:
    def __init__(self, model):
        self.model, self.calls = model, 0

    def __call__(self):
        self.calls += 1
        loss = loss_of(self.model)
        loss.backward()
        return loss


def test_a_closure_is_the_scripts_own_in_all_but_its_calls(watch):
    session = watch()
    seen = []

    class Asking(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            assert isinstance(closure, Counting) and closure.calls == 2 * len(seen)
            seen.append(torch.enable_grad()(closure)())
            closure.calls += 1
            closure.last = seen[-1]
            del closure.last
            return super().step()

    model = net()
    optimizer, closure = Asking(model.parameters(), lr=0.1), Counting(model)
    for n in range(3):
        optimizer.zero_grad()
        optimizer.step(closure)
        s = session.made[0].steps[n]
        assert (s["gradient/Sequential_0.weight"] == model[0].weight.grad.numpy()).all()
        assert s["MSELoss_output_0"] == seen[-1].item()
    assert closure.calls == 6 and not hasattr(closure, "last")


def test_what_a_step_takes_that_is_no_closure_is_handed_on_as_it_is(watch):
    session = watch()
    given = []

    class Own(torch.optim.SGD):
        def step(self, source, closure=None):
            given.append((source, closure))
            return super().step()

    model, function = net(), lambda: None
    optimizer = Own(model.parameters(), lr=0.1)
    for source, named in ((model, {}), (function, {}), (model, {"closure": model})):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step(source, **named)
        assert given[-1][0] is source and given[-1][1] is named.get("closure")
        assert "gradient/Sequential_0.weight" in {k[0] for k in session.made[0].steps[-1].values}
    assert len(session.made[0].steps) == 3


def test_a_closure_of_a_step_that_takes_anything_is_one(watch):
    session = watch()

    class Anything(torch.optim.SGD):
        def step(self, *args, **kwargs):
            return super().step(*args, **kwargs)

    model = net()
    optimizer = Anything(model.parameters(), lr=0.1)
    optimizer.step(Counting(model))
    assert "MSELoss_output_0" in {k[0] for k in session.made[0].steps[0].values}
