"""A user's file: loaded, and what is wrong with it said with file and line."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
import types
from typing import Any

from ..words import error_text
from .rule import Rule, describe


class Refused(Exception):
    """The file, the class or its parameters cannot be used. The text is for the user."""


def _smdebug_is_ours() -> bool:
    try:
        from smdebug.rules.rule import Rule as Theirs
    except ImportError:
        return False
    from ..compat.rule import Rule as Ours
    return Theirs is Ours


def provide_smdebug() -> None:
    """Makes `from smdebug.rules.rule import Rule` mean tdbg.compat.rule, whose trials are ours.

    The package `smdebug` that comes with tdbg is that same code. Where it is not installed, or where Amazon's is,
    these modules stand for the part of it that rules import.
    """
    if _smdebug_is_ours():
        return
    for name in [n for n in sys.modules if n == "smdebug" or n.startswith("smdebug.")]:
        del sys.modules[name]
    from .. import modes
    from ..compat import exceptions, rule, trial
    from ..compat.modes import str_to_mode_keys
    from ..hook.collection import Collection, CollectionKeys
    from ..hook.text import parse_bool, parse_list_from_str
    from ..reading import refreshing
    from ..reading.steps import StepState

    def module(name: str, package: bool = False, **members: Any) -> None:
        made = types.ModuleType(name)
        made.__dict__.update(members)
        if package:
            made.__path__ = []
        sys.modules[name] = made
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, made)

    names = ("Rule", "invoke_rule", "RequiredTensors", "RequiredTensorsForTrial")
    rules = {name: getattr(rule, name) for name in names}
    module("smdebug", True, modes=modes.ModeKeys, CollectionKeys=CollectionKeys)
    module("smdebug.rules", True, **rules)
    module("smdebug.rules.rule", Rule=rule.Rule)
    module("smdebug.rules.rule_invoker", invoke_rule=rule.invoke_rule)
    module("smdebug.rules.req_tensors", RequiredTensors=rule.RequiredTensors,
           RequiredTensorsForTrial=rule.RequiredTensorsForTrial)
    module("smdebug.rules.action", Actions=rule.Actions)
    module("smdebug.trials", True, create_trial=trial.create_trial, Trial=trial.Trial)
    module("smdebug.trials.utils", create_trial=trial.create_trial)
    module("smdebug.trials.trial", Trial=trial.Trial)
    module("smdebug.analysis", True)
    module("smdebug.analysis.utils", no_refresh=refreshing.no_refresh, refresh=refreshing.refresh,
           parse_bool=parse_bool, parse_list_from_str=parse_list_from_str)
    module("smdebug.core", True)
    module("smdebug.core.modes", ModeKeys=modes.ModeKeys, str_to_mode_keys=str_to_mode_keys)
    module("smdebug.core.collection", Collection=Collection, CollectionKeys=CollectionKeys)
    module("smdebug.core.tensor", StepState=StepState, Tensor=trial.Tensor)
    module("smdebug.core.logger", get_logger=lambda *args: __import__("logging").getLogger("smdebug"))
    sys.modules["smdebug.exceptions"] = exceptions
    vars(sys.modules["smdebug"])["exceptions"] = exceptions


def _where(error: BaseException, file: str) -> str:
    """"file:line" of an error: where Python found a fault in the text, or the last line of the file on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else file


def load(file: str, class_name: str) -> type:
    """The class of that name in the file, which is executed.

    :raises Refused: says what is wrong, with file and line
    """
    provide_smdebug()
    folder, name = os.path.split(file)
    sys.path.insert(0, folder)
    module_name = os.path.splitext(name)[0]
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise Refused(f"{file} is no file of Python's")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Refused(f"{_where(error, file)}: SyntaxError: {error.msg}") from error
    except BaseException as error:
        raise Refused(f"{_where(error, file)}: {error_text(error)}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        there = [n for n, value in vars(module).items()
                 if isinstance(value, type) and value.__module__ == module_name and is_rule(value)]
        what = f"there {'is' if len(there) == 1 else 'are'} {', '.join(there)}" if there else "it holds no rule"
        raise Refused(f"{file} holds no class '{class_name}'; {what}")
    if not is_rule(found):
        line = inspect.getsourcelines(found)[1]
        raise Refused(f"{file}:{line}: {class_name} is no rule: it derives neither from tdbg.Rule nor from smdebug's "
                      "Rule (with invoke_at_step)")
    return found


def is_rule(found: type) -> bool:
    """A tdbg.Rule, or one written for smdebug."""
    return is_native(found) or callable(getattr(found, "invoke_at_step", None))


def is_native(found: type) -> bool:
    """A tdbg.Rule."""
    return issubclass(found, Rule)


_GIVEN_BY_US = ("self", "base_trial", "other_trials", "action_str")


def _smdebug_parameters(cls: Any) -> tuple[list[dict[str, Any]], bool]:
    """(parameters, takes any) of a constructor: texts, as smdebug hands them over."""
    constructor = cls.__init__
    try:
        code = constructor.__code__
        where = f"{code.co_filename}:{code.co_firstlineno}"
    except AttributeError:
        where = ""
    described: list[dict[str, Any]] = []
    anything = False
    for name, p in inspect.signature(constructor).parameters.items():
        if p.kind == p.VAR_KEYWORD:
            anything = True
        if name in _GIVEN_BY_US or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        required = p.default is p.empty
        described.append({"name": name, "type": "string", "required": required, "declared_at": where,
                          "help": "" if required else f"default {p.default!r}"})
    return described, anything


def description(cls: Any, parameters: dict[str, str]) -> dict[str, Any]:
    """The answer to a describe message. What is wrong with `parameters` is said by the launcher, which checks them."""
    text = inspect.getdoc(cls) or ""
    summary, _, page = ("" if text == inspect.getdoc(Rule) else text).partition("\n")   # getdoc looks at bases, too
    said = {"summary": summary, "page": page.strip()}
    if not is_native(cls):
        described, anything = _smdebug_parameters(cls)
        return {"info": said | {"parameters": described, "any_parameter": anything}, "needs": {}}
    try:
        described = describe(cls)
    except (TypeError, NameError) as error:
        raise Refused(str(error)) from error
    info = said | {"parameters": described, "any_parameter": False}
    try:
        made = cls._make(parameters)
    except (ValueError, OverflowError):
        return {"info": info, "needs": {}}
    try:
        needs = made._needs()
    except Exception as error:
        raise Refused(f"{_where(error, inspect.getsourcefile(cls) or '')}: {error_text(error)}") from error
    return {"info": info, "needs": {"collections": list(needs.collections), "tensor_regex": list(needs.tensor_regex),
                                    "raw": needs.raw, "interval": needs.every,
                                    "histograms": needs.histograms}}
