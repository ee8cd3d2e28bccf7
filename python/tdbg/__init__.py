"""tdbg: an open training debugger.

    import tdbg
    tdbg.attach(model)                      # in a training script
    trial = tdbg.open("tdbg-runs/mine")     # anywhere else, while it trains or a year later

Nothing is imported before it is asked for: a training process loads the capturing side only.
"""

from __future__ import annotations

__all__ = ["attach", "step", "open", "create_trial", "refresh", "no_refresh", "ModeKeys", "Trial", "TdbgError"]

_WHERE = {
    "__version__": "._capture",
    "attach": ".adaptors",
    "step": ".adaptors",
    "open": ".trial",
    "create_trial": ".trial",
    "refresh": ".trial",
    "no_refresh": ".trial",
    "Trial": ".trial",
    "Tensor": ".trial",
    "Cursor": ".trial",
    "StepState": ".steps",
    "ModeKeys": ".modes",
    "TdbgError": ".errors",
    "on_checkpoint": ".checkpoint",
    "Rule": ".rules",
    "Finding": ".rules",
    "needs": ".rules",
    "parameter": ".rules",
}


def __getattr__(name: str):
    from importlib import import_module

    if name in _WHERE:
        value = getattr(import_module(_WHERE[name], __name__), name)
        globals()[name] = value
        return value
    if name in ("errors", "exceptions", "modes", "trial", "rules", "adaptors"):
        return import_module("." + name, __name__)
    raise AttributeError(f"module 'tdbg' has no attribute '{name}'")


def __dir__():
    return sorted(set(globals()) | set(_WHERE))
