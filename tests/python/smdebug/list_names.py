"""Prints every public name of the smdebug it runs under, as {module: {name: members of a class, or null}}."""

import contextlib
import importlib
import inspect
import io
import json
import pkgutil
import sys

import xgboost_for_real  # noqa: F401

import smdebug

found = {}
modules = ["smdebug"] + [m.name for m in pkgutil.walk_packages(smdebug.__path__, "smdebug.", onerror=lambda name: None)]
for name in modules:
    if "_pb2" in name or "profiler" in name or ".proto" in name:
        continue
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            module = importlib.import_module(name)
    except Exception:  # of frameworks that are not installed
        continue
    names = found[name] = {}
    package = name in ("smdebug", "smdebug.pytorch", "smdebug.xgboost", "smdebug.rules", "smdebug.trials")
    for key, value in vars(module).items():
        where = getattr(value, "__module__", None)
        if key.startswith("_") or inspect.ismodule(value) or (where or "").startswith("typing"):
            continue
        if callable(value) and where != name and not package:
            continue
        members = None
        if inspect.isclass(value):
            members = sorted({m for c in value.__mro__ if c.__module__.startswith("smdebug") for m in vars(c)
                              if not m.startswith("_")})
        names[key] = members
json.dump(found, sys.stdout)
