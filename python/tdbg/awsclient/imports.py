"""Changes modules of AWS's libraries when a program imports them, and imports none itself."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Gets a module that has just been imported.
Change = Callable[[types.ModuleType], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for these modules, and stands aside for everything else."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = self._changes.pop(fullname, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(changes: Mapping[str, Change]) -> None:
    """Calls each change once, with the module of its name: at once where it is there, or when it is imported."""
    waiting = {}
    for name, change in changes.items():
        module = sys.modules.get(name)
        if module is None:
            waiting[name] = change
        else:
            change(module)
    sys.meta_path.insert(0, _Finder(waiting))


def before_clients(change: Callable[[str, dict[str, Any]], None]) -> Change:
    """A change of ``botocore.session``: before each client is made, `change` gets its service's name and its named
    arguments, which it may change."""

    def wrap(module: types.ModuleType) -> None:
        session: Any = getattr(module, "Session", None)
        made = getattr(session, "create_client", None)
        if made is None:
            return

        def create_client(self: Any, service_name: str, *words: Any, **named: Any) -> Any:
            change(service_name, named)
            return made(self, service_name, *words, **named)

        session.create_client = create_client

    return wrap
