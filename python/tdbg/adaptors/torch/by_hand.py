"""Updates that no torch.optim.Optimizer makes: those that the script writes itself, and fastai's.

Written by hand (`p -= lr * p.grad`), an update cannot be seen: the script says `tdbg.step()` where `optimizer.step()`
would be, and what is recorded there is what an optimizer's step would have been. fastai's optimizers are classes of its
own, whose `step` is called through us; one that wraps torch's (OptimWrapper) is seen as torch's.
"""
from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .names import discover

if TYPE_CHECKING:
    from .names import Names
    from .session import Session


class HandWritten:
    """Stands where an optimizer would: the trainable parameters of the models under watch, in one group."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": []}]
        self.state: dict[Any, Any] = {}

    def look(self, names: Names) -> bool:
        """Which parameters there are now; False where there are none. Where no model is known: those that have a
        gradient."""
        if not names.roots:
            kind = torch.nn.Module
            held = {id(p): p for o in gc.get_objects() if issubclass(type(o), kind)
                    for p in o.__dict__.get("_parameters", {}).values() if p is not None and p.grad is not None}
            for top in discover(list(held.values())):
                names.add_root(top)
        found = [p for root in names.roots for p, _ in root.parameters() if p.requires_grad]
        self.param_groups[0]["params"] = found
        return bool(found)


def living_optimizers(kinds: tuple[type, ...] = (torch.optim.Optimizer,)) -> list[Any]:
    """Optimizers that were made before anybody watched."""
    return [o for o in gc.get_objects() if issubclass(type(o), kinds) and hasattr(o, "param_groups")]


def patch_fastai(session: Session) -> bool:
    """Puts fastai's optimizers under watch, once it is imported. Cheap to ask again; True when that was done now."""
    module = sys.modules.get("fastai.optimizer")
    kind = getattr(module, "Optimizer", None)
    if kind is None or getattr(kind.__dict__.get("step"), "_tdbg", False):
        return False

    def watch(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            session.optimizers.pre(optimizer, (optimizer, *args), kwargs)
            result = original(optimizer, *args, **kwargs)
            session.optimizers.post(optimizer, args, kwargs)
            return result
        return step

    session.patches.replace([kind], "step", watch)
    session.patches.replace([kind], "__init__", session.watch_init)
    for optimizer in living_optimizers((kind,)):
        session.optimizers.made(optimizer)
    return True
