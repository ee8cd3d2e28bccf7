"""Leads a program's calls of STS to the endpoint of ``tdbg aws-env``, and lets older SDKs read its configuration.

The SageMaker SDK builds its STS client with a public address in the code, and an address in the code beats every
variable. And SDKs refuse a configuration whose members are newer than they are. This folder is the first of ``PYTHONPATH``
for programs that ``tdbg aws-env`` starts; all that it changes is that such a client gets ``AWS_ENDPOINT_URL_STS``, as
every other one does, and that such members are passed over.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
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


def _pass_over(module: types.ModuleType) -> None:
    try:
        schema: Any = module.SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA  # type: ignore[attr-defined]
        modules = schema["properties"]["SageMaker"]["properties"]["PythonSDK"]["properties"]["Modules"]
        modules["additionalProperties"] = True
    except (AttributeError, LookupError, TypeError):
        pass  # another SDK's, which says itself what it does not know


_CHANGES: dict[str, Callable[[types.ModuleType], None]] = {
    "botocore.session": _lead,
    "sagemaker.config.config_schema": _pass_over,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the modules of ``_CHANGES``, and stands aside for everything else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _CHANGES.pop(fullname, None)
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


def _next_in_line() -> None:
    """Run the sitecustomize that this one hides, whoever's it is."""
    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_next_in_line()
