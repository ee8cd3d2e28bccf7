"""Public names of tdbg.compat: smdebug's files, one at a time."""

from .compat.event_files import FileReader, FileWriter, make_numpy_array

__all__ = ["FileReader", "FileWriter", "make_numpy_array"]
