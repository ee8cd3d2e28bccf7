"""Runs the programs one after the other in one process: importing torch and smdebug takes longer than they do."""

import os
import runpy
import sys

here = os.path.dirname(os.path.abspath(__file__))
root, programs = sys.argv[1], sys.argv[2:]
sys.path[:0] = [here, os.path.dirname(here)]
import xgboost_for_real  # noqa: E402, F401

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
