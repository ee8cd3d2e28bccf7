"""Each kind of fault is found, and what merely looks like one is not."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_repo  # noqa: E402

# Put together here, so that this file is clean itself.
WORK = "/" + "work"
HOME = "/" + "home/somebody"


class CheckRepoTest(unittest.TestCase):
    def complaints(self, text, name="a.cc"):
        return check_repo.complaints_about(name, text.encode())

    def test_paths_of_one_machine_are_found(self):
        for bad in (f"open('{WORK}/main/x')", f"cd {WORK}", f'"{HOME}/x"', "in /" + "root/.cache"):
            self.assertEqual(len(self.complaints(bad)), 1, bad)

    def test_words_that_contain_such_a_path_are_not(self):
        for good in ("frame/work", "a/workers/0", "$TMP" + WORK + "/x", "./root/x", WORK + "er/0", "/tmp/x"):
            self.assertEqual(self.complaints(good), [], good)

    def test_registries_and_leftovers_are_found_with_their_line(self):
        found = self.complaints("fine\npip install --index" + "-url x\n// TO" + "DO: later\n")
        self.assertEqual([line.split(": ")[0] for line in found], ["a.cc:2", "a.cc:3"])

    def test_algorithms_that_clang_refuses_are_found(self):
        self.assertEqual(len(self.complaints("  std::stable_" + "sort(a, b);\n  std::ranges::inplace_" + "merge(c);\n")), 2)
        self.assertEqual(self.complaints("  base::StableSort(&a, less);\n"), [])

    def test_sizes_are_bounded(self):
        self.assertEqual(len(self.complaints("x" * (check_repo.MAX_BYTES + 1), "a.bin")), 1)
        self.assertEqual(len(self.complaints("x\n" * check_repo.MAX_CODE_LINES)), 1)
        self.assertEqual(self.complaints("x\n" * check_repo.MAX_CODE_LINES, "data.jsonl"), [])

    def test_binary_data_is_only_measured(self):
        self.assertEqual(check_repo.complaints_about("a.bin", b"\xff\x00TO" + b"DO"), [])

    def test_test_modules_of_one_name_are_found_unless_packages_tell_them_apart(self):
        def found(*names):
            return [line.split(": ")[0] for line in check_repo.modules_of_one_name(names)]

        self.assertEqual(found("tests/a/test_x.py", "tests/b/test_x.py"), ["tests/b/test_x.py"])
        self.assertEqual(found("tests/a/test_x.py", "tests/a/help.py", "tests/b/test_y.py", "tests/b/help.py"),
                         ["tests/b/help.py"])
        self.assertEqual(found("tests/a/test_x.py", "tests/b/test_x.py", "tests/b/__init__.py", "tests/__init__.py"), [])
        self.assertEqual(found("tests/a/__init__.py", "tests/a/test_x.py", "more/a/__init__.py", "more/a/test_x.py"),
                         ["tests/a/test_x.py"])
        self.assertEqual(found("tests/a/test_x.py", "src/test_x.py.in", "tests/a/conftest.py", "tests/b/conftest.py",
                               "tests/b/test_z.py", "python/x.py", "examples/x.py"), [])


if __name__ == "__main__":
    unittest.main()
