"""A version that is said twice and differently is found, wherever it is said."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_version  # noqa: E402

GOOD = {
    "pyproject.toml": '[project]\nname = "tdbg"\nversion = "1.2.3"\n',
    "smdebug-compat/pyproject.toml": 'version = "1.2.3"\n',
    "CMakeLists.txt": "project(tdbg VERSION ${version} LANGUAGES CXX)\n",
    "src/cli/version.h": "TDBG_VERSION",
    "python/tdbg/__init__.py": "",
    "CHANGELOG.md": "# Changes\n\n## Next\n\n### Added\n\n- x\n\n## 1.2.3, 2026-11-21\n\n- y\n",
}


class CheckVersionTest(unittest.TestCase):
    def found(self, **changed):
        files = dict(GOOD)
        for name, text in changed.items():
            files[next(path for path in GOOD if path.endswith(name.replace("__", ".")))] = text
        return check_version.complaints(files.__getitem__)

    def test_one_version_is_fine(self):
        self.assertEqual(self.found(), [])

    def test_a_twin_that_says_another_is_found(self):
        files = dict(GOOD, **{"smdebug-compat/pyproject.toml": 'version = "1.2.2"\n'})
        self.assertEqual(check_version.complaints(files.__getitem__),
                         ["smdebug-compat/pyproject.toml: says 1.2.2; pyproject.toml says 1.2.3"])

    def test_who_is_told_must_not_say_it(self):
        self.assertEqual(len(self.found(CMakeLists__txt="project(tdbg VERSION 1.2.3)")), 1)
        self.assertEqual(len(self.found(version__h='"1.2.3"')), 1)

    def test_the_changelog_has_next_and_then_this_version_with_its_date(self):
        for text in ("## 1.2.3, 2026-11-21\n", "## Next\n\n## 1.2.2, 2026-11-21\n", "## Next\n\n## 1.2.3\n", "## Next\n"):
            self.assertTrue(self.found(CHANGELOG__md=text), text)

    def test_a_version_has_three_numbers(self):
        files = dict(GOOD, **{"pyproject.toml": 'version = "1.2"\n'})
        self.assertEqual(check_version.complaints(files.__getitem__), ['pyproject.toml: no line version = "MAJOR.MINOR.PATCH"'])


if __name__ == "__main__":
    unittest.main()
