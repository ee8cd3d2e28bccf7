"""XGBoost for the real smdebug, whose environment has none: the one at $XGBOOST_PACKAGES, behind everything of its own.

The real hook asks, through a module that setuptools dropped, for a distribution called xgboost; here it is xgboost-cpu.
"""

import os
import sys
import types

if "XGBOOST_PACKAGES" in os.environ:
    sys.path.append(os.environ["XGBOOST_PACKAGES"])
    from importlib import metadata

    from packaging.version import parse

    module = sys.modules["pkg_resources"] = types.ModuleType("pkg_resources")
    module.parse_version = parse
    module.get_distribution = lambda name: types.SimpleNamespace(version=metadata.version("xgboost-cpu"))
