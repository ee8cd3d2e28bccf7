"""Adaptors: one folder per framework. The launcher calls `arm`, a script calls `attach`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from .attached import step_ends

#: Those with a folder here.
FRAMEWORKS = tuple(sorted(entry.name for entry in os.scandir(os.path.dirname(os.path.abspath(__file__)))
                          if os.path.isfile(os.path.join(entry.path, "attach.py"))))


def arm(framework: str) -> None:
    """Called when `framework` has just been imported under `tdbg run` or `tdbg replay`. Ignores unknown ones."""
    if "TDBG_REPLAY" in os.environ:
        if framework == "torch":
            importlib.import_module(f"{__name__}.torch.replay").arm()
    elif framework in FRAMEWORKS:
        adaptor(framework).arm()


def adaptor(framework: str) -> Any:
    """The adaptor of one of FRAMEWORKS (framework.py says what it has), imported, and the framework with it. How one
    that has no session of its own gets at another's."""
    return importlib.import_module(f"{__name__}.{framework}")


#: Of Run.open's arguments those that are a script's to say.
_OPTIONS = ("rank", "world_size", "step_base")


def attach(model: Any = None, config: Any = None, dir: Any = None, framework: str = "torch",
           rules: Sequence[Any] | None = None, **options: Any) -> Any:
    """Records this training. Raises on bad configuration, never later.

    :param model: the model (or list of models) to watch; None: whatever trains. Others may follow, each in a call with
        nothing else. Boosting libraries make their models themselves, and every training call that follows is recorded.
    :param config: a dict (the schema of docs/configuration.md), a path of a YAML or JSON file, or None for the
        defaults: statistics of weights, gradients and losses at every step.
    :param dir: the run directory; default: $TDBG_RUN, else a fresh one under tdbg-runs/.
    :param framework: one of FRAMEWORKS.
    :param rules: a list of rules, added to those of `config` (which is a dict then, or None): names, dicts as in a
        configuration, and what the functions of smdebug_rulesconfig return.
    :param options: passed on to Run.open (rank, world_size, step_base).
    :returns: an object with `directory`, `close()` and a context manager's methods; where the loop is the script's,
        with `record(name, tensor)`, `scalar(name, value)` and `set_mode(mode)` as well.

    Under `tdbg run` the launcher's run and plan are used and `config` is left alone, unless `dir` names another run.
    Call it after the model is built and before the first step; before the first call of the model, if outputs of what
    is inside it are wanted (torch; a hybridized block of MXNet). A Keras model that has trained already is watched from
    its next batch on.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"no adaptor for {framework!r}; there are: {', '.join(FRAMEWORKS)}")
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise TypeError(f"attach({unknown[0]}=...): unknown; there are model, config, dir, framework, rules, "
                        f"{', '.join(_OPTIONS)}. What is kept and judged is said in `config`")
    if rules is not None:
        if config is not None and not isinstance(config, dict):
            raise ValueError(f"attach(rules=...): `config` is a file, {os.fspath(config)}; put the rules there")
        config = {**(config or {}), "rules": [*(config or {}).get("rules", []), *rules]}
    return adaptor(framework).attach(model=model, config=config, dir=dir, **options)


def step() -> None:
    """Ends a step of the training loop (torch). Everything since the last call is one step, however many optimizers
    stepped in it and however often.

    In a loop that updates its weights by hand, put it where `optimizer.step()` would be, before the update: gradients
    are final there, and weights those that they were computed with. In other loops, put it at the end of an
    iteration. If nothing is recorded it does nothing. With `step_by: call` in the configuration, only these calls
    end steps, from the first one on.
    """
    module = sys.modules.get(f"{__name__}.torch.attach")
    session = module.now() if module is not None else None
    if session is not None:
        step_ends(session)
