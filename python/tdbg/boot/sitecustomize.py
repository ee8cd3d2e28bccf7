"""Zero-code attach: Python runs this at start, because `tdbg run` put its folder on PYTHONPATH.

It waits for a framework to be imported and then arms its adaptor, which waits for training. Until then it costs one
small object on sys.meta_path: no import beyond what the interpreter has loaded already, nothing on disk, and no
failure of it reaches the program. The next sitecustomize on the path, which this one shadows, is run as well.

Every Python of the job runs it, one of 2.7 as well: what is written here, those must parse, and do nothing.

    TDBG_RUN   the run directory (absolute); unset: do nothing
    TDBG_HOME  the folder that holds the tdbg package; it is not put on sys.path
"""

import os
import sys

TYPE_CHECKING = False       # `typing` is not in every Python that runs this
if TYPE_CHECKING:
    from typing import Any  # noqa: F401

_BEFORE_SPECS = sys.version_info < (3, 5)   # of modules, which the finder below finds
_FRAMEWORKS = ("torch", "keras", "tensorflow", "xgboost", "lightgbm", "mxnet", "optax")


def _say(message):
    # type: (str) -> None
    lines = ["tdbg:"]
    for word in message.split():
        if len(lines[-1]) + 1 + len(word) > 100 and lines[-1].strip() not in ("", "tdbg:"):
            lines.append("     ")   # as words.wrapped, which may not be importable
        lines[-1] += " " + word
    try:
        sys.stderr.write("\n".join(lines) + "\n")
    except Exception:
        pass


def _load_package(home):
    # type: (str) -> None
    """The tdbg package from `home`, without making what lies beside it importable."""
    if "tdbg" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location
    folder = os.path.join(home, "tdbg")
    spec = spec_from_file_location("tdbg", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["tdbg"] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules["tdbg"]
        raise


def _arm(framework):
    # type: (str) -> None
    try:
        _load_package(os.environ["TDBG_HOME"])
        from importlib import import_module
        import_module("tdbg._capture")      # built for another Python: said here, before anything is patched
        import_module("tdbg.adaptors").arm(framework)
    except Exception as error:
        why = _words(error)
        # By its name, which no Python before 3.6 has.
        no_extension = type(error).__name__ == "ModuleNotFoundError" and getattr(error, "name", "") == "tdbg._capture"
        if no_extension or isinstance(error, SyntaxError):      # the package's: this Python is too old for it
            why = _built_for(os.path.join(os.environ["TDBG_HOME"], "tdbg"))
        _say("cannot watch %s (%s); the program goes on without" % (framework, why))


def _words(error):
    # type: (BaseException) -> str
    return "%s: %s" % (type(error).__name__, error)


def _built_for(folder):
    # type: (str) -> str
    """What to do where the extension there is not this Python's, whose own words are only that it is not there."""
    built = [name.split(".")[1] for name in os.listdir(folder) if name.startswith("_capture.") and name.endswith(".so")]
    here = "Python %d.%d" % sys.version_info[:2]
    if not built:
        return "no extension is built in " + folder
    return "tdbg was built for %s, and this is %s: install its wheel for %s" % (" and ".join(built), here, here)


class _Loader:
    """The framework's own loader, and then the adaptor."""

    def __init__(self, finder, inner, framework):
        # type: (_Finder, Any, str) -> None
        self._finder, self._inner, self._framework = finder, inner, framework

    def create_module(self, spec):
        # type: (Any) -> Any
        return self._inner.create_module(spec)

    def exec_module(self, module):
        # type: (Any) -> None
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self._inner
        module.__loader__ = self._inner
        with self._finder:
            self._inner.exec_module(module)
            self._finder.imported(self._framework)

    def __getattr__(self, name):
        # type: (str) -> Any
        return getattr(self._inner, name)


class _Finder:
    """Watches for the first import of each framework; every other import passes through untouched."""

    def __init__(self):
        # type: () -> None
        self._waiting = set(_FRAMEWORKS)
        self._imported = []         # type: list[str]  # and not armed yet
        self._depth = 0             # of frameworks that are being imported

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name not in self._waiting:
            return None
        self._waiting.discard(name)     # while others are asked, who may ask us
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec = find(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(self, spec.loader, name)
                    return spec
        finally:
            # until it is imported: tensorflow looks where keras is, and does not import it yet
            self._waiting.add(name)
        return None

    def __enter__(self):
        # type: () -> None
        self._depth += 1

    def imported(self, framework):
        # type: (str) -> None
        if framework in self._waiting:
            self._waiting.discard(framework)
            self._imported.append(framework)

    def __exit__(self, *error):
        # type: (*object) -> None
        """A framework that another one imports is armed when that one is whole."""
        self._depth -= 1
        while self._depth == 0 and self._imported:
            _arm(self._imported.pop(0))


def _chain():
    # type: () -> None
    """Runs the sitecustomize that this file shadows, as the interpreter would have."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    if _BEFORE_SPECS:
        import imp
        try:
            source, path, kind = imp.find_module("sitecustomize", others)
        except ImportError:
            return
        try:
            imp.load_module("sitecustomize", source, path, kind)  # type: ignore[arg-type]
        finally:
            if source:      # a package has none
                source.close()
        return
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _opted_out():
    # type: () -> bool
    """smdebug's way to say that nothing is to be captured."""
    return os.environ.get("USE_SMDEBUG", "").strip().lower() in ("0", "false", "off", "no", "n", "f")


def _install():
    # type: () -> None
    if os.environ.get("TDBG_RUN") and os.environ.get("TDBG_HOME"):
        if _opted_out():
            _say("USE_SMDEBUG says no: nothing is captured")
            return
        # By name: run twice (a .pth file beside PYTHONPATH), the class is another one each time.
        if not any(type(f).__name__ == "_Finder" and type(f).__module__ == __name__ for f in sys.meta_path):
            sys.meta_path.insert(0, _Finder())


try:
    if not _BEFORE_SPECS:
        _install()
except Exception as _error:
    _say("cannot start (%s); the program goes on without" % _words(_error))
_chain()
