"""A wrong import is found, a right one is not; run by pytest or on its own."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_python_imports as tool

ROOMS = {
    "words": (["errors", "modes"], []),
    "reading": (["reading"], ["words"]),
    "adaptors": (["adaptors"], ["words"]),
    "doors": (["", "trial"], ["reading"]),
}


class CheckPythonImportsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        for name, value in (("ROOMS", ROOMS), ("EXCEPTIONS", {}), ("PRIVATE", {})):
            self.use(name, value)
        for path in ("__init__", "errors", "modes", "trial", "reading/__init__", "reading/run", "reading/frame",
                     "adaptors/__init__", "adaptors/a/__init__", "adaptors/a/x", "adaptors/b/__init__", "adaptors/b/y"):
            self.write(path, "")

    def use(self, name, value):
        patched = mock.patch.object(tool, name, value)
        patched.start()
        self.addCleanup(patched.stop)

    def write(self, path, text):
        target = self.root / f"{path}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def complaints(self, path, text):
        self.write(path, text)
        return tool.check(self.root)

    def test_arrows_pass_in_every_spelling(self):
        text = ("import json\nfrom .. import errors\nfrom ..errors import NotFound\nfrom . import frame\n"
                "from .frame import _own\nimport tdbg.errors\nfrom tdbg import _trial\nfrom tdbg.modes import ModeKeys\n")
        self.assertEqual(self.complaints("reading/run", text), [])

    def test_an_import_against_the_arrows_is_found_with_its_line_in_every_spelling(self):
        for line in ("from .adaptors import a", "from . import adaptors", "import tdbg.adaptors.a", "from tdbg import adaptors",
                     "def f():\n    from .adaptors.a import x", "if TYPE_CHECKING:\n    from .adaptors import a"):
            found = self.complaints("errors", "'''Words.'''\n" + line + "\n")
            self.assertEqual(len(found), 1, line)
            self.assertIn(f"errors.py:{1 + line.count(chr(10)) + 1}: words may not import adaptors", found[0])

    def test_a_private_name_of_another_room_is_found(self):
        self.assertIn("_hidden of errors is private", self.complaints("reading/run", "from ..errors import _hidden\n")[0])

    def test_an_adaptors_private_names_are_its_own(self):
        self.assertEqual(self.complaints("adaptors/a/x", "from . import _rank\n"), [])
        self.assertIn("_rank of adaptors.b.y is private", self.complaints("adaptors/a/x", "from ..b.y import _rank\n")[0])

    def test_a_circle_is_found_also_inside_functions_and_not_where_only_types_are_meant(self):
        self.write("reading/frame", "def f():\n    from .run import Run\n")
        self.assertEqual(self.complaints("reading/run", "from .frame import Frame\n"),
                         ["imports in a circle: reading.frame, reading.run"])
        self.write("reading/frame", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .run import Run\n")
        self.assertEqual(tool.check(self.root), [])

    def test_a_circle_of_adaptors_is_one_of_folders_and_an_exception_names_it(self):
        self.write("adaptors/b/y", "from .. import a\n")
        found = self.complaints("adaptors/a/x", "from ..b import y\n")
        self.assertEqual(found, ["imports in a circle: adaptors.a, adaptors.b"])
        self.use("EXCEPTIONS", {("adaptors.a", "adaptors.b"): "for now"})
        self.assertEqual(tool.check(self.root), [])

    def test_an_exception_that_is_not_needed_is_found(self):
        self.use("EXCEPTIONS", {("reading.run", "adaptors.a"): "for now"})
        self.assertIn("is needed no longer", tool.check(self.root)[0])

    def test_rooms_in_a_circle_and_a_module_in_none_are_found(self):
        self.assertIn("shed lies in no room", self.complaints("shed", "")[0])
        self.use("ROOMS", {**ROOMS, "words": (["errors", "modes", "shed"], ["reading"])})
        self.assertIn("rooms in a circle: reading, words", tool.check(self.root)[0])

    def test_this_repository_passes(self):
        root = pathlib.Path(__file__).resolve().parent.parent / "python" / "tdbg"
        mock.patch.stopall()
        self.assertEqual(tool.check(root), [])


if __name__ == "__main__":
    unittest.main()
