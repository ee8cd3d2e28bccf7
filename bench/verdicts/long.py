"""Healthy trainings of real length: 5,000 steps each, with data enough that none of them overfits. Three are examples of this
repository, whose scripts know nothing of tdbg; one of these wants transformers, one lightning, one Debian's dataset-fashion-mnist,
and is left out, and named, where that is not there.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import runpy
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import architectures as a
import torch
from healthy import healthy
from turns import Wasserstein
from workloads import Gan, Work

STEPS = 5000
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


class Script:
    """A script of this repository, run as it is."""

    def __init__(self, path: str, arguments: Callable[[str], list[str]], module: str = "", folder: str = "") -> None:
        self.path, self.arguments = path, arguments
        self.left_out = module if module and importlib.util.find_spec(module) is None else \
            folder if folder and not os.path.isdir(folder) else ""

    def __str__(self) -> str:
        return self.path

    def run(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            sys.argv = [self.path, *self.arguments(scratch)]
            sys.path.insert(0, str((EXAMPLES / self.path).parent))
            runpy.run_path(str(EXAMPLES / self.path), run_name="__main__")


def long(name: str, every: int = 100, **draws: Any) -> Work:
    w = Work(name, steps=STEPS, **draws)
    w.every, w.count = every, 1 << 15
    w.make_data()
    return w


def rows(w: Work, inputs: torch.Tensor) -> None:
    """Data of a training whose target is its input."""
    w.every = 100
    w.inputs = w.targets = inputs[256:]
    w.held = w.held_targets = inputs[:256]


@healthy
def counting_with_transformers(name: str) -> Any:
    return Script("hf_trainer.py", lambda scratch: ["--epochs", str(STEPS // 64), "--texts", "2048", "--output", scratch],
                  module="transformers")


@healthy
def sorting_with_lightning(name: str) -> Any:
    return Script("lightning_trainer.py", lambda scratch: ["--epochs", "16", "--rows", str(16 * STEPS // 4)], module="lightning")


@healthy
def clothes(name: str) -> Any:
    return Script("fashion_mnist/train.py", lambda scratch: ["--epochs", "6", "--steps", str(STEPS), "--lr", "0.01"], folder="/usr/share/datasets/fashion-mnist")


@healthy
def convolutions(name: str) -> Work:
    """A residual network; the brightness of each input is changed at random."""
    w = long(name, families=["resnet"], optimizers=["momentum"], schedules=["cosine"])
    own = w.batch

    def batch() -> Any:
        x, y = own()
        picture = x.view(-1, 4, 8)
        return (picture + 0.1 * torch.randn(len(x), 1, 1, generator=w.order)).flatten(1), y
    w.batch = batch
    return w


@healthy
def small_convolutions(name: str) -> Work:
    return long(name, families=["cnn"], optimizers=["adam", "adamw"], schedules=["constant", "step"])


@healthy
def language_model(name: str) -> Work:
    return long(name, families=["language"], optimizers=["adamw"], schedules=["warmup", "cosine"])


@healthy
def recurrent(name: str) -> Work:
    return long(name, families=["rnn"], optimizers=["adam", "rmsprop"], schedules=["constant", "cosine"])


@healthy
def table_of_numbers(name: str) -> Work:
    return long(name, families=["tabular"], schedules=["one_cycle"])


@healthy
def adversaries(name: str) -> Work:
    return Gan(name, steps=STEPS)


@healthy
def critic_and_generator(name: str) -> Work:
    return Wasserstein(name, steps=STEPS)


@healthy
def noise_removed(name: str) -> Work:
    w = a.Diffusion(name, steps=STEPS)
    centres = 2 * torch.randn(6, 16, generator=w.data)
    rows(w, centres[torch.randint(0, 6, (1 << 15,), generator=w.data)] + 0.2 * torch.randn(1 << 15, 16, generator=w.data))
    return w


@healthy
def pictures_of_four_causes(name: str) -> Work:
    w = a.Vae(name, steps=STEPS)
    rows(w, torch.sigmoid(2 * torch.randn(1 << 15, 4, generator=w.data) @ torch.randn(4, 64, generator=w.data)))
    return w


@healthy
def corridor(name: str) -> Work:
    return a.Dqn(name, steps=STEPS)
