"""The loops that people write around more than one model or optimizer: what of them is a step, whose loss is whose.

Each loop says what it did: (mode, {name: losses}) per step. The record must be that to the last bit, and the loop must leave
the same weights watched or not.
"""

import copy
import gc
import itertools
import sys
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.steps import EVAL, TRAIN

MSE, BCE, OWN = "MSELoss_output", "BCEWithLogitsLoss_output", "backward_loss"
RAW = ("weight", "bias", "gradient", "loss", "output")


class Net(nn.Module):
    def __init__(self, ins=3, outs=2):
        super().__init__()
        self.inner, self.head = nn.Linear(ins, 4), nn.Linear(4, outs)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(x)))


def net(ins=3, outs=2, seed=0):
    torch.manual_seed(seed)
    return Net(ins, outs)


def sgd(*models):
    return torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)


def batch(n, ins=3, rows=4):
    return torch.randn(rows, ins, generator=torch.Generator().manual_seed(n))


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def weights(*models):
    return b"".join(p.detach().numpy().tobytes() for m in models for p in m.parameters())


# Each returns ([(mode, {name: value})], bytes of what it leaves).

def frozen_teacher(no_grad=True, first=False):
    class Distiller(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = Net(), Net().eval().requires_grad_(False)

    torch.manual_seed(0)
    both = Distiller()
    optimizer, seen = sgd(both.student), []
    for n in range(4):
        x, y = batch(n), torch.zeros(4, 2)
        with torch.set_grad_enabled(not no_grad):
            target = both.teacher(x) if first else None
        out = both.student(x)
        hard = F.mse_loss(out, y)
        if not first:
            with torch.set_grad_enabled(not no_grad):
                target = both.teacher(x)
        soft = F.mse_loss(out, target)
        if first:
            seen.append((EVAL, {}))         # between two steps, for all that can be known
        seen.append((TRAIN, {MSE + "_0": hard.item(), MSE + "_1": soft.item()}))
        update(optimizer, hard + soft)
    return seen, weights(both)


def rollouts(updates=1):
    """A2C, PPO (updates > 1): the policy collects in evaluation mode, then is asked by another method than forward."""
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.value = Net(outs=4), nn.Linear(4, 1)

        def forward(self, x):
            return self.body(x), self.value(self.body(x))

        def evaluate(self, x):
            return self.value(self.body(x)), self.body(x).log_softmax(1)

    torch.manual_seed(0)
    policy = Policy()
    optimizer, seen = sgd(policy), []
    for n in range(3):
        policy.eval()
        with torch.no_grad():
            for step in range(2):
                policy(batch(10 * n + step))
                seen.append((EVAL, {}))
        policy.train()
        for _ in range(updates):
            value, log_prob = policy.evaluate(batch(n))
            loss = F.mse_loss(value, torch.ones(4, 1))
            seen.append((TRAIN, {MSE + "_0": loss.item()}))
            update(optimizer, loss - log_prob[:, 0].mean())
    return seen, weights(policy)


def sac(change=False):
    """Three optimizers; the target network is asked, in evaluation mode, between their steps. `change`: their order does."""
    torch.manual_seed(0)
    actor, critic = Net(outs=1), Net(ins=4, outs=1)
    target = copy.deepcopy(critic).eval()

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic, self.target = actor, critic, target

    agent = Agent()
    entropy = torch.zeros(1, requires_grad=True)
    actor_optimizer, critic_optimizer = torch.optim.Adam(actor.parameters(), 1e-2), torch.optim.Adam(critic.parameters(), 1e-2)
    entropy_optimizer = torch.optim.Adam([entropy], 1e-2)
    seen = []
    for n in range(6):
        x = batch(n)

        def of_entropy():
            action = actor(x)
            return update(entropy_optimizer, (entropy * action.detach()).mean())

        def of_critic():
            with torch.no_grad():
                wanted = target(torch.cat([x, actor(x)], 1))
            return update(critic_optimizer, (critic(torch.cat([x, actor(x).detach()], 1)) - wanted - 1).pow(2).mean())

        def of_actor():
            return update(actor_optimizer, -critic(torch.cat([x, actor(x)], 1)).mean())

        todo = [(OWN, of_entropy), (OWN + "_1", of_critic), (OWN + "_2", of_actor)]
        if change and n % 2:
            todo.reverse()
        seen.append((TRAIN, {name: work() for name, work in todo}))
    return seen, weights(agent) + entropy.detach().numpy().tobytes()


def td3(delay=2, first=False):
    """The actor is updated in every `delay`-th iteration, and in the first one, or not."""
    actor, critic = net(outs=1), net(ins=4, outs=1, seed=1)
    actor_optimizer, critic_optimizer = sgd(actor), sgd(critic)
    seen = []
    for n in range(8):
        x = batch(n)
        loss = F.mse_loss(critic(torch.cat([x, actor(x).detach()], 1)), torch.ones(4, 1))
        values = {MSE + "_0": update(critic_optimizer, loss)}
        if n % delay == (0 if first else delay - 1):
            values[OWN + "_1"] = update(actor_optimizer, -critic(torch.cat([x, actor(x)], 1)).mean())
        seen.append((TRAIN, values))
    return seen, weights(actor, critic)


def wgan(critics=5, inner=True):
    """`inner`: a loop of the critic's steps, then the generator's; else one of both every fifth time, the first one, too."""
    generator, critic = net(ins=2, outs=3), net(outs=1, seed=1)
    generator_optimizer, critic_optimizer = sgd(generator), sgd(critic)
    seen = []
    for n in range(critics * 3):
        fake = generator(batch(n, ins=2)).detach()
        values = {OWN: update(critic_optimizer, critic(fake).mean() - critic(batch(n)).mean())}
        if n % critics == (critics - 1 if inner else 0):
            values[OWN + "_1"] = update(generator_optimizer, -critic(generator(batch(n, ins=2))).mean())
        seen.append((TRAIN, values))
    return seen, weights(generator, critic)


def gan(frozen=False):
    """`frozen`: the discriminator is in evaluation mode while the generator is trained through it."""
    generator, critic = net(ins=2, outs=3), net(outs=1, seed=1)
    generator_optimizer, critic_optimizer = sgd(generator), sgd(critic)
    one, zero, seen = torch.ones(4, 1), torch.zeros(4, 1), []
    for n in range(4):
        fake = generator(batch(n, ins=2))
        real_loss = F.binary_cross_entropy_with_logits(critic(batch(n)), one)
        fake_loss = F.binary_cross_entropy_with_logits(critic(fake.detach()), zero)
        values = {BCE + "_0": real_loss.item(), BCE + "_1": fake_loss.item()}
        update(critic_optimizer, real_loss + fake_loss)
        critic.train(not frozen)
        loss = F.binary_cross_entropy_with_logits(critic(fake), one)
        values[BCE + "_2"] = update(generator_optimizer, loss)
        critic.train()
        seen.append((TRAIN, values))
    return seen, weights(generator, critic)


def evaluation_between():
    """A critic that is evaluated, for real, in iterations of which nobody knows yet whether the actor will follow."""
    actor, critic = net(outs=1), net(ins=4, outs=1, seed=1)
    actor_optimizer, critic_optimizer = sgd(actor), sgd(critic)
    seen = []
    for n in range(6):
        x = torch.cat([batch(n), batch(n, ins=1)], 1)
        values = {MSE + "_0": update(critic_optimizer, F.mse_loss(critic(x), torch.ones(4, 1)))}
        if n % 2:
            values[OWN + "_1"] = update(actor_optimizer, actor(batch(n)).pow(2).mean())
        seen.append((TRAIN, values))
        critic.eval()
        with torch.no_grad():
            seen.append((EVAL, {MSE + "_0": F.mse_loss(critic(x), torch.zeros(4, 1)).item()}))
        critic.train()
    return seen, weights(actor, critic)


LOOPS = {
    "frozen teacher": frozen_teacher, "frozen teacher with gradients": lambda: frozen_teacher(no_grad=False),
    "teacher first": lambda: frozen_teacher(first=True),
    "A2C": rollouts, "PPO": lambda: rollouts(updates=4), "SAC": sac, "SAC in changing order": lambda: sac(change=True),
    "TD3": td3, "TD3, actor first": lambda: td3(first=True), "TD3, every third": lambda: td3(delay=3),
    "WGAN": wgan, "WGAN, both first": lambda: wgan(inner=False), "GAN": gan, "GAN through a frozen critic": lambda: gan(True),
    "evaluated in between": evaluation_between,
}


def found_in(step):
    """{name: value} of the step's own losses."""
    losses = {k: v.item() for (k, sub, point), v in step.values.items() if sub == point == 0 and ("oss" in k)}
    losses.update({k: v for (k, sub), v in step.scalars.items() if sub == 0 and k.startswith(OWN)})
    return losses


def compare(run, seen):
    assert [s.mode for s in run.steps] == [mode for mode, _ in seen]
    beside = {OWN} if any(name != OWN and not name.startswith(OWN) for _, values in seen for name in values) else set()
    for n, (step, (_, values)) in enumerate(zip(run.steps, seen)):
        found = found_in(step)
        if beside:       # what was differentiated, recorded beside the losses that it was made of
            found = {k: v for k, v in found.items() if k in values or not k.startswith(OWN)}
        assert found == values, f"step {n}"


def repeats_under_watch(watch, loop, kinds):
    """Watched, the loop does what it does bare, and what is recorded is what it saw."""
    bare = loop()
    session = watch(kinds=kinds)
    seen, left = loop()
    session.finish("completed")
    run = session.made[0]
    assert (seen, left) == bare, "the loop repeats, watched or not"
    assert run.twice == [] and run.lost == []
    compare(run, seen)


@pytest.mark.parametrize("kinds", [RAW[:4], RAW], ids=["", "with outputs"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_steps_modes_and_losses_are_the_loops_own(watch, loop, kinds):
    repeats_under_watch(watch, loop, kinds)


def test_outputs_of_every_forward_of_a_step_have_a_place_of_their_own(watch):
    """A GAN's critic runs twice before its own step and once after it."""
    session = watch(kinds=RAW)
    gan()
    (step, *_) = session.made[0].steps
    places = sorted((name, sub) for name, sub, _ in step.values if name.startswith("head_output") or "_output_" in name)
    assert session.made[0].twice == [] and len(set(places)) == len(places)
    assert ("Net_1_output_0", 0) in places and ("Net_1_output_1", 0) in places and ("Net_1_output_0", 2) in places


def test_losses_of_an_optimizer_keep_their_numbers_whoever_steps_first(watch):
    session = watch()
    a, b = net(), net(seed=1)
    oa, ob = sgd(a), sgd(b)
    seen = {MSE + "_0": [], MSE + "_1": []}
    for n, order in enumerate([(0, 1), (1, 0), (0, 1), (1, 0)]):
        for which in order:
            model, optimizer = ((a, oa), (b, ob))[which]
            seen[f"{MSE}_{which}"].append(update(optimizer, F.mse_loss(model(batch(n)), torch.ones(4, 2))))
    steps = session.made[0].steps
    assert {name: [s[name].item() for s in steps] for name in seen} == seen


def test_an_optimizer_that_was_freed_gives_its_numbers_back(watch):
    session = watch()
    for seed in range(2):
        model = net(seed=seed)
        optimizer = sgd(model)
        for n in range(2):
            update(optimizer, F.mse_loss(model(batch(n)), torch.ones(4, 2)))
        del optimizer
    assert {name for s in session.made[0].steps for name, _, _ in s.values if name.startswith(MSE)} == {MSE + "_0"}


def test_micro_steps_of_two_optimizers_have_sub_keys_of_their_own(watch):
    session = watch(kinds=RAW)
    a, b = net(), net(seed=1)
    optimizers = sgd(a), sgd(b)
    for n in range(2):
        for model, optimizer in zip((a, b), optimizers):
            optimizer.zero_grad()
            for micro in range(3):
                F.mse_loss(model(batch(micro)), torch.ones(4, 2)).backward()
            optimizer.step()
    run = session.made[0]
    assert len(run.steps) == 2 and run.twice == []
    subs = [sorted(sub for name, sub, _ in run.steps[1].values if name == f"{MSE}_{k}") for k in range(2)]
    assert subs == [[0, 1, 2, 3], [0, 4, 5, 6]]
    assert all(np.isfinite(v).all() for v in run.steps[1].values.values())
    assert list(itertools.chain(*subs)).count(0) == 2


# Steps that the script says, and updates that it makes itself -------------------------------------------------------------


def own_loss(y):
    return y.pow(2).sum()


def by_hand(model, loss, steps=4, at=lambda: None):
    seen = []
    for n in range(steps):
        value = loss(model(batch(n)))
        value.backward()
        seen.append((value.item(), [p.detach().clone().numpy() for p in model.parameters()],
                     [p.grad.clone().numpy() for p in model.parameters()]))
        at()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    return seen


@pytest.mark.parametrize("named", [True, False], ids=["attached to the model", "to nothing"])
@pytest.mark.parametrize("name, loss", [(MSE + "_0", lambda y: F.mse_loss(y, torch.ones(4, 2))), (OWN, own_loss)])
def test_an_update_by_hand_is_a_step_where_the_script_says_so(watch, named, name, loss):
    bare = by_hand(net(), loss)
    gc.collect()            # models of earlier tests, which nothing but a circle of their own holds
    session, model = watch(), net()
    session.watch([model] if named else [])
    seen = by_hand(model, loss, at=session.step_ends)
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN] * 4 and run.lost == []
    names = [n for n, _ in model.named_parameters()]
    for step, (value, before, gradients), (bare_value, *_) in zip(run.steps, seen, bare):
        assert step[name].item() == value == bare_value
        for parameter, weight, gradient in zip(names, before, gradients):
            assert (step[f"Net_{parameter}"] == weight).all() and (step[f"gradient/Net_{parameter}"] == gradient).all()


def test_what_was_seen_of_an_update_that_nobody_speaks_of_is_counted(watch):
    session, model = watch(), net()
    session.watch([model])
    by_hand(model, lambda y: F.mse_loss(y, torch.ones(4, 2)), steps=3)
    session.finish("completed")
    (_, _, said), = session.made[0].lost
    assert "3 forwards of the model, 3 losses, 3 calls of backward, and no optimizer stepped" in said and "tdbg.step()" in said


def test_forwards_of_a_model_that_nobody_named_are_counted_and_change_nothing(watch):
    bare, session, model = by_hand(net(), own_loss), watch(), net()
    plain = {name: dict(vars(m)["_forward_pre_hooks"]) for name, m in model.named_modules()}
    seen = by_hand(model, own_loss)
    assert all(a[0] == b[0] and all((x == y).all() for x, y in zip(a[1] + a[2], b[1] + b[2])) for a, b in zip(seen, bare))
    assert "torch: 4 forwards of the model, 4 calls of backward, and no optimizer stepped" in session.what_was_seen()
    torch.jit.script(model)
    assert not copy.deepcopy(model)._forward_pre_hooks
    session.finish("completed")
    assert not session.made and {name: dict(m._forward_pre_hooks) for name, m in model.named_modules()} == plain


def test_a_model_that_gets_an_optimizer_late_is_counted_no_more_and_recorded_as_ever(watch):
    session, model = watch(), net()
    own_loss(model(batch(0))).backward()          # to find a learning rate
    counting = len(model._forward_pre_hooks)
    model.zero_grad()
    optimizer = sgd(model)
    for n in range(2):
        optimizer.zero_grad()
        own_loss(model(batch(n))).backward()
        optimizer.step()
    assert counting == 1 and session.unknown.called == 1 and len(session.made[0].steps) == 2


def test_a_model_that_is_never_called_itself_has_no_number_of_forwards(watch):
    session, model = watch(), net()
    for _ in range(3):
        model.head(torch.ones(2, 4)).sum().backward()
    assert session.what_was_seen().startswith("torch: 3 calls of backward, and no optimizer stepped")


def test_a_step_that_the_script_says_has_every_update_in_it(watch):
    """WGAN, a step as the paper counts: five of the critic, one of the generator."""
    session = watch(plan={"step_by": "call"})
    generator, critic = net(ins=2, outs=3), net(outs=1, seed=1)
    generator_optimizer, critic_optimizer = sgd(generator), sgd(critic)
    seen = []
    for n in range(3):
        losses = [update(critic_optimizer, F.mse_loss(critic(batch(5 * n + k)), torch.ones(4, 1))) for k in range(5)]
        before = critic.head.weight.detach().clone().numpy()
        losses.append(update(generator_optimizer, F.mse_loss(critic(generator(batch(n, ins=2))), torch.ones(4, 1))))
        critic.eval()
        with torch.no_grad():
            evaluated = F.mse_loss(critic(batch(n)), torch.ones(4, 1)).item()
        critic.train()
        session.step_ends()
        seen.append((losses, before, evaluated))
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN, EVAL] * 3 and run.twice == []
    for step, evaluation, (losses, _, evaluated) in zip(run.train, run.eval, seen):
        of_critic = {sub: v.item() for (name, sub, _), v in step.values.items() if name == MSE + "_0"}
        assert of_critic == dict(zip((0, 2, 3, 4, 5), losses))
        assert step[MSE + "_1"].item() == losses[5]
        assert sorted(sub for name, sub, _ in step.values if name == "Net_1_head.weight") == [0, 2, 3, 4, 5]
        assert evaluation[MSE + "_0"].item() == evaluated


def test_a_step_that_is_said_after_one_optimizer_is_that_optimizers(watch):
    session, model = watch(), net()
    optimizer = sgd(model)
    for n in range(3):
        update(optimizer, F.mse_loss(model(batch(n)), torch.ones(4, 2)))
        session.step_ends()
    assert len(session.made[0].steps) == 3
    assert "context/lr/HandWritten/0" not in session.made[0].series


def test_attached_to_a_model_whose_optimizer_is_there_the_first_loss_is_seen(watch):
    model = net()
    optimizer = sgd(model)
    session = watch()
    session.watch([model])
    loss = update(optimizer, model(batch(0)).pow(2).sum())
    step, = session.made[0].steps
    assert step[OWN].item() == loss and step.scalars["context/batch_size", 0] == 4


def test_attached_to_whatever_trains_the_first_loss_is_seen(watch):
    model = net()
    optimizer = sgd(model)
    session = watch()
    session.watch([])
    losses = [update(optimizer, model(batch(n)).pow(2).sum()) for n in range(2)]
    assert [s[OWN].item() for s in session.made[0].steps] == losses


def test_a_model_whose_forward_is_never_called_is_evaluated_before_it_trains(watch):
    """As Lightning's sanity check does, where the steps of a module call what is in it."""
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def loss(self, n):
            return F.mse_loss(self.net(batch(n)), torch.ones(4, 2))

    session, task = watch(), Task()
    optimizer = sgd(task)
    task.eval()
    with torch.no_grad():
        checked = task.loss(0).item()
    task.train()
    update(optimizer, task.loss(1))
    run = session.made[0]
    assert [s.mode for s in run.steps] == [EVAL, TRAIN] and run.steps[0][MSE + "_0"].item() == checked


def test_the_children_of_a_root_that_is_called_are_left_alone(watch):
    session, model = watch(), net()
    optimizer = sgd(model)
    update(optimizer, F.mse_loss(model(batch(0)), torch.ones(4, 2)))
    assert session.made and not model.inner._forward_pre_hooks and not model.head._forward_pre_hooks


@pytest.mark.parametrize("directly", [True, False])
def test_an_evaluation_inside_of_a_loss_that_stays_in_training_mode(watch, directly):
    """sentence-transformers trains a loss that holds the model, and evaluates the model; its Trainer through the loss, too."""
    class Trainable(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = net()

        def forward(self, x):
            return F.mse_loss(self.model(x), torch.ones(4, 2))

    session, whole = watch(), Trainable()
    optimizer = sgd(whole)
    for n in range(2):
        update(optimizer, whole(batch(n)))
        whole.model.eval()
        with torch.no_grad():
            evaluated = (F.mse_loss(whole.model(batch(9)), torch.ones(4, 2)) if directly else whole(batch(9))).item()
        whole.model.train()
    session.finish("completed")
    run = session.made[0]
    assert [s.mode for s in run.steps] == [TRAIN, EVAL] * 2 and run.steps[3][MSE + "_0"].item() == evaluated


def test_fastais_optimizers_step_through_a_class_of_their_own(watch, monkeypatch):
    """A class as fastai 2.8's: lists of parameters and of their settings, param_groups made of both when asked."""
    class Optimizer:
        def __init__(self, params, lr):
            self.param_lists, self.hypers, self.state = [list(params)], [{"lr": lr}], {}

        @property
        def param_groups(self):
            return [{"params": p, **h} for p, h in zip(self.param_lists, self.hypers)]

        def step(self, closure=None):
            with torch.no_grad():
                for p in self.param_lists[0]:
                    p -= self.hypers[0]["lr"] * p.grad
                    p.grad.zero_()

    module = types.ModuleType("fastai.optimizer")
    module.Optimizer = Optimizer
    session, plain = watch(), Optimizer.__dict__["step"]
    model, other = net(), net(seed=1)
    early = Optimizer(model.parameters(), 0.5)       # made before anybody could know of the class
    monkeypatch.setitem(sys.modules, "fastai.optimizer", module)
    seen = []
    for model, optimizer in ((model, early), (other, None)):
        optimizer = optimizer or Optimizer(model.parameters(), 0.25)
        for n in range(2):
            loss = model(batch(n)).pow(2).sum()
            loss.backward()
            seen.append((loss.item(), optimizer.hypers[0]["lr"]))
            optimizer.step()
    session.finish("completed")
    assert [(s[OWN].item(), next(v for (k, _), v in s.scalars.items() if "/lr/" in k)) for s in session.made[0].steps] == seen
    assert Optimizer.__dict__["step"] is plain


@pytest.mark.parametrize("give", [lambda y, loss: loss, lambda y, loss: (y, loss), lambda y, loss: {"logits": y, "loss": loss}])
def test_a_loss_that_no_function_of_torch_computed_is_what_the_evaluated_model_returned(watch, give):
    class Own(Net):
        def forward(self, x):
            y = super().forward(x)
            return give(y, (y - 1).pow(2).mean())

    def loss_of(given):
        return given if torch.is_tensor(given) else given["loss"] if isinstance(given, dict) else given[1]

    session, model = watch(), Own()
    optimizer, seen = sgd(model), []
    for n in range(2):
        model.eval()
        with torch.no_grad():
            seen.append((EVAL, {OWN: loss_of(model(batch(n))).item()}))
        model.train()
        seen.append((TRAIN, {OWN: update(optimizer, loss_of(model(batch(n))))}))
    compare(session.made[0], seen)
    assert session.made[0].spec(OWN)["collections"] == ["losses"]


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize("wrapped_first", [False, True])
def test_a_wrapper_that_stays_in_training_mode_or_is_left_out(watch, wrapped_first, directly):
    """DeepSpeed's engine switches what is in it and not itself; around DistributedDataParallel scripts evaluate `ddp.module`."""
    class DataParallel(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

        def train(self, mode=True):
            self.module.train(mode)
            return self

    session, model = watch(), net()
    wrapper = DataParallel(model) if wrapped_first else None
    optimizer = sgd(model)
    wrapper = wrapper or DataParallel(model)
    seen = []
    for n in range(2):
        seen.append((TRAIN, {MSE + "_0": update(optimizer, F.mse_loss(wrapper(batch(n)), torch.ones(4, 2)))}))
        wrapper.eval()
        with torch.no_grad():
            out = (wrapper.module if directly else wrapper)(batch(9))
            seen.append((EVAL, {MSE + "_0": F.mse_loss(out, torch.ones(4, 2)).item()}))
        wrapper.train()
    session.finish("completed")
    compare(session.made[0], seen)
