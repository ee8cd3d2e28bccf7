"""tdbg: an open training debugger.

    import tdbg
    tdbg.attach(model)                      # in a training script
    trial = tdbg.open("tdbg-runs/mine")     # anywhere else, while it trains or a year later

Nothing is imported before it is asked for: a training process loads the capturing side only.
"""

from __future__ import annotations

# As typing's, which would cost an import in each training.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import adaptors as adaptors
    from . import collection as collection
    from . import errors as errors
    from . import exceptions as exceptions
    from . import modes as modes
    from . import rules as rules
    from . import trial as trial
    from ._capture import __version__ as __version__
    from .adaptors import attach as attach
    from .adaptors import step as step
    from .checkpoint import on_checkpoint as on_checkpoint
    from .compat.trial import create_trial as create_trial
    from .errors import TdbgError as TdbgError
    from .modes import ModeKeys as ModeKeys
    from .reading.cursor import Cursor as Cursor
    from .reading.refreshing import no_refresh as no_refresh
    from .reading.refreshing import refresh as refresh
    from .reading.steps import StepState as StepState
    from .reading.tensor import Tensor as Tensor
    from .reading.trial import Trial as Trial
    from .reading.trial import open as open
    from .resume import resume_step as resume_step
    from .rules import Finding as Finding
    from .rules import Rule as Rule
    from .rules import needs as needs
    from .rules import parameter as parameter

__all__ = ["attach", "step", "open", "create_trial", "refresh", "no_refresh", "ModeKeys", "Trial", "TdbgError"]

# The same for Python itself; a test compares the two.
_WHERE = {
    "__version__": "._capture",
    "attach": ".adaptors",
    "step": ".adaptors",
    "on_checkpoint": ".checkpoint",
    "create_trial": ".compat.trial",
    "TdbgError": ".errors",
    "ModeKeys": ".modes",
    "Cursor": ".reading.cursor",
    "no_refresh": ".reading.refreshing",
    "refresh": ".reading.refreshing",
    "StepState": ".reading.steps",
    "Tensor": ".reading.tensor",
    "Trial": ".reading.trial",
    "open": ".reading.trial",
    "resume_step": ".resume",
    "Finding": ".rules",
    "Rule": ".rules",
    "needs": ".rules",
    "parameter": ".rules",
}
_MODULES = ("adaptors", "collection", "errors", "exceptions", "modes", "rules", "trial")


if not TYPE_CHECKING:   # which is to see that a name is misspelled

    def __getattr__(name):
        from importlib import import_module

        if name in _WHERE:
            value = getattr(import_module(_WHERE[name], __name__), name)
            globals()[name] = value
            return value
        if name in _MODULES:
            return import_module("." + name, __name__)
        raise AttributeError(f"module 'tdbg' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_WHERE))
