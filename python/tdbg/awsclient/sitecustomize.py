"""Leads a program's calls of STS to the endpoint of ``tdbg aws-env``.

The SageMaker SDK builds its STS client with a public address in the code, and an address in the code beats every
variable. This folder is the first of ``PYTHONPATH`` for programs that ``tdbg aws-env`` starts; all that it changes is
that such a client gets ``AWS_ENDPOINT_URL_STS``, as every other one does.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _lead(module: types.ModuleType) -> None:
    session: Any = getattr(module, "Session", None)
    made = getattr(session, "create_client", None)
    if made is None:
        return

    def create_client(self: Any, service_name: str, *words: Any, **named: Any) -> Any:
        address = str(named.get("endpoint_url") or "")
        ours = os.environ.get("AWS_ENDPOINT_URL_STS")
        if service_name == "sts" and ours and ".amazonaws.com" in address:
            named["endpoint_url"] = ours
        return made(self, service_name, *words, **named)

    session.create_client = create_client


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for botocore, and stands aside for everything else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "botocore.session":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _lead(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _next_in_line() -> None:
    """Run the sitecustomize that this one hides, whoever's it is."""
    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_next_in_line()
