"""A plugin of pytest: what smdebug's own tests need of AWS, answered offline. EC2 has one region; whatever else is asked
for fails at once, as it would after its retries. `boto3` and `requests` themselves are optional."""

import importlib
import sys
import types


def _module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return sys.modules.setdefault(name, types.ModuleType(name))


def _offline(*args, **kwargs):
    raise ConnectionError("this is offline")


class _Ec2:
    def describe_regions(self):
        return {"Regions": [{"RegionName": "us-east-1"}]}


_boto3 = _module("boto3")
_boto3.client = lambda name, *args, **kwargs: _Ec2() if name == "ec2" else _offline()
_boto3.resource = _offline
_boto3.session = types.SimpleNamespace(Session=_offline)
_requests = _module("requests")
if not hasattr(_requests, "get"):
    _requests.get = _offline
