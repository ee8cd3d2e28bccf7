"""smdebug's names, provided by tdbg (distribution tdbg-smdebug)."""

from importlib import metadata as _metadata

try:
    _other = _metadata.version("smdebug")
except _metadata.PackageNotFoundError:
    _other = None
if _other is not None:
    raise ImportError(
        f"two distributions provide the package 'smdebug' here: smdebug {_other} and tdbg-smdebug, and have overwritten "
        "each other's files. Keep one: `pip uninstall smdebug tdbg-smdebug`, then `pip install tdbg-smdebug` (or smdebug)")

from tdbg.hook import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook import layout as _layout
from tdbg.modes import ModeKeys as modes

_layout.wanted = True    # smdebug's own files in a hook's out_dir, too

__version__ = "1.0.34"  #: of the smdebug whose names these are
