"""An agent of stable-baselines3 in a world of one number: sb3_agent.py ppo|a2c|sac|td3"""

import sys

import gymnasium
import numpy as np
import said
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.noise import NormalActionNoise

torch.set_num_threads(1)
SMALL = dict(net_arch=[8])


class Line(gymnasium.Env):
    """Stay near zero; episodes of twenty moves."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(0, 1), 0
        return self._seen(), {}

    def step(self, action):
        self.place += float(action[0]) + self.np_random.normal(0, 0.1)
        self.time += 1
        return self._seen(), -abs(self.place), False, self.time >= 20, {}

    def _seen(self):
        return np.array([np.clip(self.place, -10, 10), self.time / 20], np.float32)


LATER = dict(learning_starts=20, batch_size=16, buffer_size=200, train_freq=1)
AGENTS = {
    "ppo": (sb3.PPO, 64, dict(n_steps=32, batch_size=16, n_epochs=2)),
    "a2c": (sb3.A2C, 60, dict(n_steps=5)),
    "sac": (sb3.SAC, 32, LATER),
    "td3": (sb3.TD3, 32, dict(action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.1)), **LATER)),
}
kind, time, options = AGENTS[sys.argv[1]]


class Saying(kind):
    def train(self, *args, **kwargs):
        super().train(*args, **kwargs)
        logged = self.logger.name_to_value
        if "train/critic_loss" in logged:
            said.loss(logged["train/critic_loss"])
        elif kind is sb3.A2C:
            said.loss(logged["train/value_loss"])


agent = Saying("MlpPolicy", Line(), policy_kwargs=SMALL, seed=3, device="cpu", **options)
agent.learn(time)
# An epoch of PPO counts as one update; each of its minibatches is a step of the optimizer.
said.steps(agent._n_updates * (options["n_steps"] // options["batch_size"] if kind is sb3.PPO else 1))
said.weights(agent.policy)
