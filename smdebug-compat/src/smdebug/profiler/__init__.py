"""Of the profiler there are its small helpers (`profiler.utils`) and its constants. Everything else can be imported, and
raises SMDebugNotImplementedError with a sentence when it is used."""

import importlib.abc
import importlib.machinery
import sys

from .._not_offered import PROFILER, not_offered


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the profiler that are not here: empty, every name in them is not offered."""

    def find_spec(self, name, path, target=None):
        if name.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = not_offered(module.__name__, PROFILER)


if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
    sys.meta_path.append(_Absent())     # after the finders of what is here

__getattr__ = not_offered(__name__, PROFILER)
