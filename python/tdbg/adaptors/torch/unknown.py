"""Models that no optimizer has and nobody attached: their forwards are counted, for the one who asks why nothing was
recorded.

From the first backward on, by which a training is known to be one: a hook on all modules before that would cost each
call of each of them, and would stand in what is compiled. Where an optimizer is made later, or a model handed over,
nothing of this is left.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ..inert import Inert
from . import copies, graph
from .dynamo import has_compiled, run_uncompiled
from .modules import is_tracing
from .names import discover

_is_compiling = torch.compiler.is_compiling


class _Called(Inert):
    def __init__(self, models: UnknownModels) -> None:
        self.models = weakref.proxy(models)

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not _is_compiling() and not is_tracing():
            # Quantisation, say, has moved the hook to another module, and what it reported to is gone.
            with contextlib.suppress(ReferenceError):
                self.models.called += 1


run_uncompiled(_Called.__call__)


class UnknownModels:
    """The outermost modules whose parameters the first backward led to."""

    def __init__(self) -> None:
        self.called = 0
        self._backwards = 0
        self._handles: list[Any] = []

    def found_by(self, losses: Sequence[torch.Tensor]) -> None:
        """At a backward: looks at the first alone. Costs up to 10 ms for the graph, and a walk through the
        interpreter's objects."""
        self._backwards += 1
        if self._backwards > 1:
            return
        if has_compiled():
            return                     # traced hooks are silent, and new ones recompile
        found = discover(graph.leaves(losses))
        if found:
            copies.hold(self)
        self.called = len(found)       # each has been called for this backward
        self._handles = [model.register_forward_pre_hook(_Called(self)) for model in found]

    @property
    def forwards(self) -> int:
        """That are known of; 0: nothing is. A model that is trained through one of its methods is never called
        itself."""
        return self.called if self.called > len(self._handles) or self._backwards == 1 else 0

    def why_nothing(self, forwards: int, losses: int, backwards: int, made: Sequence[str]) -> str:
        """Why there is no training step, in the words of what was seen: so many of each. `made`: labels of
        optimizers."""
        if not forwards + backwards + losses:
            return ("torch was imported, and nothing was trained: no optimizer was made, backward was never called and "
                    "no loss was computed")
        counts = ((forwards or self.forwards, "forwards of the model"), (losses, "losses"),
                  (backwards, "calls of backward"))
        seen = [f"{count} {what}" for count, what in counts if count]
        said = f"torch: {', '.join(seen)}, and no optimizer stepped"
        if not backwards:
            return said + ": this was an evaluation, and tdbg records trainings"
        by_itself = ("an update that the script writes itself is recorded where tdbg.attach(model) names the model and "
                     "tdbg.step() stands where optimizer.step() would")
        if not made:
            return f"{said}: {by_itself}"
        others = f" and {len(made) - 1} more were" if len(made) > 1 else " was"
        return (f"{said}, so no weight was updated: {made[0]}{others} made, and step() was never called; call "
                f"optimizer.step() after backward() ({by_itself})")

    def forget(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        copies.let_go(self)
