"""An opened black box: what the step was computed from, and functions that restore it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from . import file, random_states
from .structure import ABSENT, decode


class Opened:
    """One black box.

    :param directory: the one that holds `black_box.json`
    :raises BlackBoxError: damaged, or of a newer version
    :raises OSError: missing or unreadable

    :ivar step: global step
    :ivar because: why it was kept, as a sentence
    :ivar document: the contents of `black_box.json` (docs/format.md)
    """

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self.document, self._tensors = file.read(directory)
        try:
            self.step = int(self.document["step"])
            self.because = str(self.document["because"])
            self.forwards: list[dict[str, Any]] = list(self.document["forwards"])
            self._models: list[dict[str, Any]] = list(self.document["models"])
        except (KeyError, TypeError, ValueError) as error:
            raise file.BlackBoxError(
                f"{directory}: {file.DOCUMENT}: {error!r} is missing or not what it should be") from None

    def tensor(self, name: str) -> torch.Tensor:
        """Not a copy: it shares the black box's memory. :raises BlackBoxError: there is no such tensor"""
        try:
            return self._tensors[name]
        except KeyError:
            raise file.BlackBoxError(f"{self.directory}: {file.TENSORS} has no {name}") from None

    # The batch -----------------------------------------------------------------------------------------------

    def arguments(self, forward: int = 0, args: Any = ABSENT,
                  kwargs: Any = ABSENT) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model was called with in the n-th forward of the step. What could not be kept is taken from
        `args` and `kwargs`, which the script passes now."""
        kept = self.forwards[forward]
        given = decode(kept["args"], self._copy, args), decode(kept["kwargs"], self._copy, kwargs)
        return given[0], given[1]

    @property
    def targets(self) -> list[tuple[str, Any]]:
        """[(name of the loss function, the labels it was given)], in the order of the calls."""
        return [(t["function"], decode(t["target"], self._copy)) for t in self.document["targets"]]

    def _copy(self, name: str) -> torch.Tensor:
        return self.tensor(name).clone()

    # The model -----------------------------------------------------------------------------------------------

    def model_of(self, module: torch.nn.Module) -> int | None:
        """The number of the model that has the same parameters, by name and shape."""
        lazy = torch.nn.parameter.UninitializedTensorMixin
        here = {name: None if isinstance(p, lazy) else tuple(p.shape) for name, p in module.named_parameters()}
        for number, model in enumerate(self._models):
            there = {p["name"]: tuple(self.tensor(p["tensor"]).shape) for p in model["parameters"]}
            if here == there and here:
                return number
        return None

    def load(self, module: torch.nn.Module, number: int | None = None) -> None:
        """Sets parameters and buffers to what they were when the optimizer was about to step. Those that already have
        these values are not written, so that autograd's graph stays valid.

        :raises ValueError: the step had no such model
        """
        number = self.model_of(module) if number is None else number
        if number is None:
            raise ValueError(f"{type(module).__name__} has other parameters than the models of step {self.step}: "
                             f"{', '.join(str(m['class']) for m in self._models)}")
        with torch.no_grad():
            for what, named in (("parameters", dict(module.named_parameters())),
                                ("buffers", dict(module.named_buffers()))):
                for kept in self._models[number][what]:
                    tensor = named.get(kept["name"])
                    was = self.tensor(kept["tensor"])
                    if tensor is not None and not _same(tensor.cpu(), was):
                        tensor.copy_(was)

    def load_optimizer(self, optimizer: torch.optim.Optimizer, modules: list[torch.nn.Module]) -> bool:
        """Loads the state of the first kept optimizer of this class. False: there is none, or it was not kept whole;
        then nothing is changed.

        :param modules: the modules that `load` was called with, by number of the model
        """
        kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
        for kept in self.document["optimizers"]:
            if kept["class"] != kind or not kept["states"]:
                continue
            places = {(n, name): p for n, module in enumerate(modules) for name, p in module.named_parameters()}
            states = {(s["model"], s["parameter"]): decode(s["state"], self._copy) for s in kept["states"]}
            if any(value is ABSENT for state in states.values() for value in state.values()):
                return False
            for place, state in states.items():
                if place in places:
                    optimizer.state[places[place]] = state
            for group, options in zip(optimizer.param_groups, kept["groups"], strict=False):
                group.update({k: v for k, v in decode(options, self._copy).items() if v is not ABSENT})
            return True
        return False

    def gradients(self) -> Iterator[tuple[int, str, torch.Tensor]]:
        """(number of the model, name of the parameter, its gradient when the optimizer was about to step)"""
        for kept in self.document["gradients"]:
            yield kept["model"], kept["parameter"], self.tensor(kept["tensor"])

    def flight(self) -> Iterator[tuple[int, int, str, torch.Tensor]]:
        """(global step, number of the model, name of the parameter, its gradient) of the steps before, and of this one,
        oldest first: what `--flight N` kept. Nothing without it."""
        for step in self.document.get("flight", []):
            for kept in step["gradients"]:
                yield step["step"], kept["model"], kept["parameter"], self.tensor(kept["tensor"])

    # Random numbers ------------------------------------------------------------------------------------------

    def restore_random(self, forward: int = 0) -> None:
        """Restores the random states of the beginning of the step's n-th forward."""
        kept = self.forwards[forward]["random"]
        prefix, numpy = kept["prefix"], None
        if kept["numpy"] is not None:
            words = self.tensor(f"{prefix}/numpy").numpy().astype("uint32")
            numpy = (kept["numpy"]["kind"], words, *kept["numpy"]["rest"])
        python = (kept["python"]["version"], tuple(self.tensor(f"{prefix}/python").tolist()), kept["python"]["gauss"])
        cuda = {int(n): self.tensor(f"{prefix}/cuda/{n}") for n in kept["cuda"]}
        random_states.restore(random_states.RandomStates(self.tensor(f"{prefix}/torch"), cuda, numpy, python))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and bits(a) == bits(b)


def bits(tensor: torch.Tensor) -> bytes:
    """Of a tensor in host memory."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
