"""What a script does when the watcher asks for a checkpoint before it stops the job (docs/actions.md)."""

from __future__ import annotations

import inspect
import sys

from .words import error_text, printable

TYPE_CHECKING = False  # as typing's, which would cost an import in each training
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

_hooks: list[Callable[..., Any]] = []


def on_checkpoint(function: _Function) -> _Function:
    """Registers `function()`: called between two steps, on the training's thread, when an action `checkpoint_stop`
    was asked for. What it raises is logged and changes nothing. Usable as a decorator; every worker calls its own.

        @tdbg.on_checkpoint
        def save():
            torch.save(model.state_dict(), "last.pt")

    A function of one parameter is given the model where the framework keeps it to itself: XGBoost's booster as it is
    after the round (in torch, None).

        @tdbg.on_checkpoint
        def save(booster):
            booster.save_model("last.json")
    """
    if not callable(function):
        raise TypeError(f"on_checkpoint takes a function, not {type(function).__name__}")
    _hooks.append(function)
    return function


def _takes_model(hook: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):     # a builtin that does not say
        return False
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


def save(model: object = None) -> str:
    """Calls what was registered. "" or why there is no checkpoint."""
    if not _hooks:
        return "the script registered no tdbg.on_checkpoint"
    errors = []
    for hook in _hooks:
        try:
            if _takes_model(hook):
                hook(model)
            else:
                hook()
        except Exception as error:
            errors.append(error_text(error))
            print(f"tdbg: the script's checkpoint failed: {printable(errors[-1])}", file=sys.stderr)
    return "; ".join(errors)
