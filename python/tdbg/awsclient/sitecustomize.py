"""Leads a program's calls of STS to the endpoint of ``tdbg aws-env``, and lets older SDKs read its configuration.

The SageMaker SDK builds its STS client with a public address in the code, and an address in the code beats every
variable. And SDKs refuse a configuration whose members are newer than they are. This folder is the first of
``PYTHONPATH`` for programs that ``tdbg aws-env`` starts; all that it changes is that such a client gets
``AWS_ENDPOINT_URL_STS``, as every other one does, and that such members are passed over.
"""

import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _lead(service_name: str, named: dict[str, Any]) -> None:
    address = str(named.get("endpoint_url") or "")
    ours = os.environ.get("AWS_ENDPOINT_URL_STS")
    if service_name == "sts" and ours and ".amazonaws.com" in address:
        named["endpoint_url"] = ours


def _pass_over(module: types.ModuleType) -> None:
    try:
        schema: Any = module.SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA
        modules = schema["properties"]["SageMaker"]["properties"]["PythonSDK"]["properties"]["Modules"]
        modules["additionalProperties"] = True
    except (AttributeError, LookupError, TypeError):
        pass  # another SDK's, which says itself what it does not know


def _change_libraries() -> None:
    # By its path: the program's Python need not be the one that tdbg is installed in.
    spec = importlib.util.spec_from_file_location("_tdbg_imports", os.path.join(_HERE, "imports.py"))
    if spec is None or spec.loader is None:
        return
    imports = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imports)
    imports.when_imported({
        "botocore.session": imports.before_clients(_lead),
        "sagemaker.config.config_schema": _pass_over,
    })


def _next_in_line() -> None:
    """Run the sitecustomize that this one hides, whoever's it is."""
    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_change_libraries()
_next_in_line()
