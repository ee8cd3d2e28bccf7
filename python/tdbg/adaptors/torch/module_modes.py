"""Are modules in the mode that they are used for? Dropout and norms over batches do one thing in training and another
in evaluation, and `model.eval()` and `model.train()` are forgotten.

    context/evaluated_in_training   how many losses were computed without gradients, of forwards in training mode, since
                                    the training step before: a validation whose author forgot model.eval()
    context/trained_in_evaluation   how many modules that differ by mode the step's forward had, all of them in
                                    evaluation mode: training whose author forgot model.train(), or meant it

Neither is there where a model has no such module, and in a training that calls both. A call of a functional
(`F.dropout(x, training=self.training)`) cannot be seen.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

_DROPS_PATHS = ("DropPath", "StochasticDepth")      # of timm, torchvision, transformers, each with its own


def _differs(module: torch.nn.Module) -> bool:
    """Does what it computes depend on its mode?"""
    if isinstance(module, _BatchNorm):
        return module.running_mean is not None
    if isinstance(module, _DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, (torch.nn.MultiheadAttention, torch.nn.RNNBase)):
        return bool(module.dropout)
    if type(module).__name__.endswith(_DROPS_PATHS):
        return bool(getattr(module, "drop_prob", None) or getattr(module, "p", None))
    return False


class ModuleModes:
    """Of one session. Costs a look at two flags a forward; modules are gone through only where something is odd."""

    def __init__(self) -> None:
        self._bare: weakref.ref[torch.nn.Module] | None = None       # the last root's forward: trains, no gradients
        self._evaluating: weakref.ref[torch.nn.Module] | None = None     # or evaluates, with gradients
        self._differing: weakref.WeakKeyDictionary[Any, list[weakref.ref[torch.nn.Module]]] = (
            weakref.WeakKeyDictionary())
        self._compared = 0
        self._still = 0

    def forward_begins(self, module: torch.nn.Module, evaluation: bool) -> None:
        """A root is called."""
        self._bare = self._evaluating = None
        if torch.is_grad_enabled():
            if evaluation:
                self._evaluating = weakref.ref(module)
        elif not evaluation:
            self._bare = weakref.ref(module)

    def compared_without_gradients(self) -> None:
        """A loss function gave what cannot be differentiated, and it is no evaluation's."""
        bare, self._bare = self._bare, None      # a forward counts once, however many losses it has
        if bare is not None and any(module.training for module in self._of(bare())):
            self._compared += 1

    def trains(self) -> None:
        """The last forward was in evaluation mode, and turns out to be a training's."""
        evaluating, self._evaluating = self._evaluating, None
        if evaluating is not None:
            differing = self._of(evaluating())
            self._still = 0 if any(module.training for module in differing) else len(differing)

    def take(self) -> list[tuple[str, int]]:
        """The numbers of the training step that ends."""
        if not self._compared and not self._still:
            return []
        numbers = [("context/evaluated_in_training", self._compared), ("context/trained_in_evaluation", self._still)]
        self._compared = self._still = 0
        return [(name, number) for name, number in numbers if number]

    def _of(self, root: torch.nn.Module | None) -> list[torch.nn.Module]:
        if root is None:
            return []
        known = self._differing.get(root)
        if known is None:
            known = self._differing[root] = [weakref.ref(module) for module in root.modules() if _differs(module)]
        return [module for ref in known if (module := ref()) is not None]
