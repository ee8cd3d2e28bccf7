#!/usr/bin/env python3
"""Writes python/tdbg/_trial.pyi and _capture.pyi: what type checkers and editors are told of the extension modules.

    .venv/bin/python tools/stubs.py            # after a change of python/src and `make install`
    .venv/bin/python tools/stubs.py --check    # says which is not current

They are checked in, so that a type checker needs no build; tests/python/test_reading_side.py compares them with what was built.
Another version of nanobind writes other stubs: tools/requirements.txt names the one.
"""

import importlib
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "python" / "tdbg"
MODULES = ("_capture", "_trial")
HEAD = "# Made by tools/stubs.py with nanobind {}. Change python/src, and make it again.\n"


def stub(name):
    """The text for one module, which is imported."""
    import nanobind
    from nanobind.stubgen import StubGen

    module = importlib.import_module(f"tdbg.{name}")
    made = StubGen(module)
    made.put(module)
    text = HEAD.format(nanobind.__version__) + made.get()
    # A name with underscores, which is left out as if it were private.
    return text + "\n__version__: str\n" if hasattr(module, "__version__") else text


def main():
    stale = []
    for name in MODULES:
        path = PACKAGE / f"{name}.pyi"
        made = stub(name)
        if path.exists() and path.read_text() == made:
            continue
        stale.append(path)
        if "--check" not in sys.argv:
            path.write_text(made)
    for path in stale:
        print(f"{path}: {'is not current: run tools/stubs.py' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
