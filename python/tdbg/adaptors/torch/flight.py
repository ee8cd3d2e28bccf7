"""`tdbg run --flight N`: gradients of the last N steps, in a ring in memory that is written only into a black box.

Each optimizer's are copied when it is about to step, into memory of the step before the last N, so that a ring that is
full allocates nothing. It holds no more than the black boxes' limit: where N steps are more, it holds fewer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from ..guard import say
from .names import strip
from .params import local

if TYPE_CHECKING:
    from .black_box import Kept

WHAT = "the flight recorder's gradients"


class FlightRecorder:
    """:param steps: as many as are kept. :param limit: in bytes, of all of them"""

    def __init__(self, steps: int, limit: int) -> None:
        self._steps, self._limit = steps, limit
        self._most = 0                      # steps that there is room for; 0: not known yet
        self._counted = -1                  # tensors in the step whose size is known
        # (global step, id() of a parameter -> (the parameter, its gradient)), oldest first
        self._spare: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._ring: deque[tuple[int, dict[int, tuple[torch.Tensor, torch.Tensor]]]] = deque()

    def take(self, step: int, parameters: list[torch.Tensor]) -> None:
        """Copies the gradients of what an optimizer is about to change."""
        if not self._most and self._limit:
            self._most = self._announce(parameters)
        if not self._most:
            return
        if not self._ring or self._ring[-1][0] != step:
            self._keep_to_the_limit()
            if not self._most:
                return
            # A ring that is full gives the memory of its oldest step.
            oldest = self._ring.popleft()[1] if len(self._ring) >= self._most else {}
            self._ring.append((step, {}))
            self._spare = oldest
        now = self._ring[-1][1]
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is None or parameter.grad.layout is not torch.strided:
                    continue
                gradient = local(parameter.grad).detach()
                _, room = self._spare.get(id(parameter), (None, None))
                if room is None or room.shape != gradient.shape or room.dtype != gradient.dtype:
                    room = torch.empty_like(gradient)
                now[id(parameter)] = parameter, room.copy_(gradient)

    def _keep_to_the_limit(self) -> None:
        """A step is over. It may be larger than what its first optimizer had, which was all that was known before."""
        if not self._ring or len(self._ring[-1][1]) == self._counted:
            return
        last = self._ring[-1][1]
        self._counted = len(last)
        size = sum(gradient.numel() * gradient.element_size() for _, gradient in last.values())
        if not size or self._most * size <= self._limit:
            return
        self._most = self._limit // size
        self._spare = {}
        while len(self._ring) > self._most:
            self._ring.popleft()
        say(f"--flight: a step's gradients are {size / 2**20:.1f} MiB, of all optimizers: the last {self._most} steps "
            "are kept")
        if not self._most:
            self._limit = 0

    def _announce(self, parameters: list[torch.Tensor]) -> int:
        size: int = sum(local(p.grad).numel() * p.grad.element_size() for p in parameters if p.grad is not None)
        if not size:
            return 0
        most = min(self._steps, self._limit // size)
        if not most:
            say(f"--flight keeps nothing: the gradients of one step are {size / 2**20:.1f} MiB, and --black-box allows "
                f"{self._limit / 2**20:.1f}")
            self._limit = 0
            return 0
        fewer = f" (--black-box has no room for {self._steps})" if most < self._steps else ""
        say(f"--flight: gradients of the last {most} steps{fewer}, {most * size / 2**20:.1f} MiB of memory")
        return most

    def written(self, kept: Kept, models: list[tuple[str, torch.nn.Module]]) -> list[dict[str, Any]]:
        """Puts them into a black box, the latest step first, while there is room; oldest first in what is returned."""
        names = {
            id(p): (n, strip(name)) for n, (_, module) in enumerate(models) for name, p in module.named_parameters()
        }
        steps: list[dict[str, Any]] = []
        for step, gradients in reversed(self._ring):
            found = []
            for key, (_, gradient) in gradients.items():
                number, name = names.get(key, (-1, ""))
                if number >= 0 and kept.add(f"flight/{step}/{number}/{name}", gradient, WHAT):
                    found.append({"model": number, "parameter": name, "tensor": f"flight/{step}/{number}/{name}"})
            steps.append({"step": step, "gradients": found})
        return steps[::-1]
