"""Runs the programs one after the other in one process: importing torch and smdebug takes longer than they do."""

import os
import runpy
import sys
import types

if "XGBOOST_PACKAGES" in os.environ:
    # The real smdebug's environment has no xgboost of its own; and it looks for a distribution of that name, with a
    # module that setuptools dropped, while the one that is installed here is called xgboost-cpu.
    sys.path.append(os.environ["XGBOOST_PACKAGES"])
    from importlib import metadata

    from packaging.version import parse

    sys.modules["pkg_resources"] = types.SimpleNamespace(
        parse_version=parse, get_distribution=lambda name: types.SimpleNamespace(version=metadata.version("xgboost-cpu")))

here = os.path.dirname(os.path.abspath(__file__))
root, programs = sys.argv[1], sys.argv[2:]
sys.path.insert(0, here)
for name in programs:
    os.makedirs(os.path.join(root, name), exist_ok=True)
    sys.argv = [name, os.path.join(root, name, "run")]
    sys.modules.pop("common", None)
    print(f"\nPROGRAM {name}")
    before = dict(os.environ)
    try:
        runpy.run_path(os.path.join(here, name + ".py"), run_name="__main__")
    except Exception:
        import traceback

        print("\nFAILED " + repr(traceback.format_exc()))
    os.environ.clear()
    os.environ.update(before)
    from smdebug.core.singleton_utils import del_hook

    del_hook()
