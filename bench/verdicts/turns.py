"""Trainings whose optimizers take turns: a Wasserstein GAN's critic makes five steps for one of its generator, an actor is
updated at every second step of its critics. Written with the detectors' histories of such sets, and so not unseen by them.
What a kind is: faults.py; what is healthy: healthy.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from faults import kind
from healthy import healthy
from torch import nn
from workloads import FAULT_AT, Gan, Work, optimizer_of


def layers(*sizes: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Wasserstein(Work):
    """A mixture of Gaussians; the critic's weights are clipped. A step is one of the critic."""

    def __init__(self, name: str, steps: int = 500) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adam", "rmsprop"], schedules=["constant"], steps=steps)
        self.family, width = "wgan", self.r.choice([32, 64])
        self.generator, self.critic = layers(8, width, width, 8), layers(8, width, width, 1)
        self.rate, self.critic_rate, self.bound = 5e-4, 5e-4, 0.1
        self.turn: Callable[[int], int] = lambda turn: 5        # steps of the critic
        self.made: Callable[[torch.Tensor], torch.Tensor] = lambda fake: fake

    def clip(self) -> None:
        with torch.no_grad():
            for p in self.critic.parameters():
                p.clamp_(-self.bound, self.bound)

    def run(self) -> None:
        of_critic = optimizer_of(self.optimizer_name, self.critic.parameters(), self.critic_rate)
        of_generator = optimizer_of(self.optimizer_name, self.generator.parameters(), self.rate)
        centres = torch.randn(4, 8, generator=self.data)
        turn, left = 0, self.turn(0)
        for step in range(self.steps):
            self.step = step
            real = centres[torch.randint(0, 4, (self.batch_size,), generator=self.order)] + 0.2 * torch.randn(self.batch_size, 8)
            noise = torch.randn(self.batch_size, 8)
            of_critic.zero_grad()
            (self.critic(self.generator(noise).detach()).mean() - self.critic(real).mean()).backward()
            of_critic.step()
            self.clip()
            left -= 1
            if left == 0:
                of_generator.zero_grad()
                (-self.critic(self.made(self.generator(noise))).mean()).backward()
                of_generator.step()
                turn, left = turn + 1, self.turn(turn + 1)
            self.after()


class Delayed(Work):
    """An actor that is to bring a point to rest, and the two critics that it learns from. A step is one of the critics."""

    def __init__(self, name: str, steps: int = 400) -> None:
        super().__init__(name, families=["mlp"], optimizers=["adam"], schedules=["constant"], steps=steps)
        self.family, width = "delayed policy", self.r.choice([32, 64])
        self.actor = layers(6, width, width, 3)
        self.critics = nn.ModuleList(layers(9, width, width, 1) for _ in range(2))
        self.rate, self.delay = 1e-3, 2
        self.squash: Callable[[torch.Tensor], torch.Tensor] = torch.tanh
        self.reward: Callable[[torch.Tensor], torch.Tensor] = lambda place: -(place ** 2).sum(1, keepdim=True)
        self.kept: list[tuple[torch.Tensor, ...]] = []
        self.state = torch.randn(16, 6, generator=self.data)

    def live(self, noise: float) -> None:
        """One step of sixteen points."""
        with torch.no_grad():
            action = (self.squash(self.actor(self.state)) + noise * torch.randn(16, 3)).clamp(-1, 1)
            speed = 0.9 * self.state[:, 3:] + 0.2 * action
            place = (self.state[:, :3] + 0.2 * speed).clamp(-3, 3)
            following = torch.cat([place, speed], 1)
            self.kept = [*self.kept[-200:], (self.state, action, self.reward(place), following)]
            again = torch.rand(16, 1, generator=self.data) < 0.02
            self.state = torch.where(again, torch.randn(16, 6, generator=self.data), following)

    def sample(self) -> tuple[torch.Tensor, ...]:
        chosen = torch.randint(0, len(self.kept), (self.batch_size // 16,), generator=self.order)
        state, action, reward, following = (torch.cat(parts) for parts in zip(*(self.kept[i] for i in chosen)))
        return state, action, reward, following

    def run(self) -> None:
        of_critics = torch.optim.Adam(self.critics.parameters(), self.rate)
        of_actor = torch.optim.Adam(self.actor.parameters(), self.rate)
        actor, critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        for _ in range(20):
            self.live(1.0)
        for step in range(self.steps):
            self.step = step
            self.live(0.2)
            state, action, reward, following = self.sample()
            with torch.no_grad():
                then = (self.squash(actor(following)) + (0.2 * torch.randn(len(state), 3)).clamp(-0.5, 0.5)).clamp(-1, 1)
                least = torch.stack([q(torch.cat([following, then], 1)) for q in critics]).amin(0)
                target = 0.1 * reward + 0.95 * least
            of_critics.zero_grad()
            sum(F.mse_loss(q(torch.cat([state, action], 1)), target) for q in self.critics).backward()
            of_critics.step()
            if step % self.delay == self.delay - 1:
                of_actor.zero_grad()
                (-self.critics[0](torch.cat([state, self.squash(self.actor(state))], 1)).mean()).backward()
                of_actor.step()
                with torch.no_grad():
                    for old, new in ((actor, self.actor), (critics, self.critics)):
                        for a, b in zip(old.parameters(), new.parameters()):
                            a.lerp_(b, 0.02)
            self.after()


# Faults --------------------------------------------------------------------------------------------------------------

@kind("wiring", "no_gradient", "F", make=Wasserstein)
def generator_of_detached(w: Wasserstein) -> None:
    w.made = torch.Tensor.detach


@kind("wiring", "zero_rate weights_unchanged", "F", make=Wasserstein)
def critic_without_a_rate(w: Wasserstein) -> None:
    w.critic_rate = 0.0


@kind("systems", "weights_unchanged", "T", make=Wasserstein)
def critic_put_back(w: Wasserstein) -> None:
    """What is to bound the weights copies back those of the beginning."""
    first = [p.detach().clone().clamp_(-w.bound, w.bound) for p in w.critic.parameters()]

    def clip() -> None:
        with torch.no_grad():
            for p, was in zip(w.critic.parameters(), first):
                p.copy_(was)
    w.clip = clip


@kind("data", "same_batch", "F", late=True, make=Delayed)
def memory_of_one_batch(w: Delayed) -> None:
    own, held = w.sample, []

    def sample() -> tuple[torch.Tensor, ...]:
        if not w.late():
            return own()
        if not held:
            held.append(own())
        return held[0]
    w.sample = sample


@kind("optimisation", "zero_gradient", "F", make=Delayed)
def actions_cut_off(w: Delayed) -> None:
    """Actions are scaled and then cut off, behind which nothing flows back."""
    w.squash = lambda action: (1000 * action + 200).clamp(-1, 1)


@kind("systems", "weights_replaced weight_jump", "T", late=True, make=Delayed)
def critic_of_a_checkpoint(w: Delayed) -> None:
    def after() -> None:
        if w.step == FAULT_AT:
            with torch.no_grad():
                for p in w.critics[0].parameters():
                    p.mul_(0.3)
    w.after = after


# Healthy -------------------------------------------------------------------------------------------------------------

@healthy
def wasserstein(name: str) -> Work:
    return Wasserstein(name, steps=1500)


@healthy
def wasserstein_of_long_turns(name: str) -> Work:
    """As it was first published: the critic is trained for long at the beginning, and again now and then."""
    w = Wasserstein(name, steps=1500)
    w.turn = lambda turn: 100 if turn < 3 or turn % 40 == 0 else 5
    return w


@healthy
def delayed_policy(name: str) -> Work:
    return Delayed(name, steps=1200)


@healthy
def delayed_policy_with_seldom_rewards(name: str) -> Work:
    w = Delayed(name, steps=800)
    w.reward = lambda place: ((place ** 2).sum(1, keepdim=True) < 0.1).float() * 5
    return w


@healthy
def alternating_gan(name: str) -> Work:
    """The judge, then the generator, which maximises what the judge minimises; each with one loss. A run counts both as one step."""
    w = Gan(name, steps=600)

    def run() -> None:
        of_generator, of_judge = (torch.optim.Adam(n.parameters(), 1e-3, betas=(0.5, 0.999)) for n in (w.generator, w.judge))
        centres = torch.randn(4, 8, generator=w.data)
        half = w.batch_size // 2
        labels = torch.cat([torch.ones(half, 1), torch.zeros(half, 1)])
        for step in range(w.steps):
            w.step = step
            fake = w.generator(torch.randn(half, 8))
            if step % 2 == 0:
                real = centres[torch.randint(0, 4, (half,), generator=w.order)] + 0.2 * torch.randn(half, 8)
                of_judge.zero_grad()
                F.binary_cross_entropy_with_logits(w.judge(torch.cat([real, fake.detach()])), labels).backward()
                of_judge.step()
            else:
                of_generator.zero_grad()
                (-F.binary_cross_entropy_with_logits(w.judge(fake), labels[half:])).backward()
                of_generator.step()
    w.run = run
    return w


@healthy
def inner_steps(name: str) -> Work:
    """Eight steps of the layers on one batch, then one of the head on another."""
    w = Work(name, families=["mlp"], optimizers=["adam"], schedules=["constant"], steps=450)

    def run() -> None:
        head = torch.optim.Adam(w.model.head.parameters(), w.rate)
        rest = torch.optim.Adam([p for n, p in w.model.named_parameters() if not n.startswith("head")], w.rate)
        x, y = w.batch()
        for step in range(w.steps):
            w.step = step
            if step % 9 in (0, 8):
                x, y = w.batch()
            optimizer = head if step % 9 == 8 else rest
            w.model.zero_grad()
            w.loss(w.forward(x), y).backward()
            optimizer.step()
    w.run = run
    return w
