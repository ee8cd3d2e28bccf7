"""Only what ran and passed counts as passed."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import summarize_tests  # noqa: E402

# As CMake 3.25 writes them.
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="6">
  <testcase name="ok" classname="ok" status="run"><system-out/></testcase>
  <testcase name="bad" classname="bad" status="fail"><failure message=""/></testcase>
  <testcase name="absent" classname="absent" status="notrun"><skipped message="Unable to find executable"/></testcase>
  <testcase name="skip" classname="skip" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
  <testcase name="off" classname="off" status="disabled"><system-out>Disabled</system-out></testcase>
</testsuite>
"""
# As pytest 9 writes them.
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
  <testcase classname="tests.a" name="ok"/>
  <testcase classname="tests.a" name="skip"><skipped type="pytest.skip" message="no"/></testcase>
  <testcase classname="tests.a" name="bad"><failure message="x"/></testcase>
  <testcase classname="tests.a" name="bad"><error message="teardown"/></testcase>
</testsuite></testsuites>
"""


class SummarizeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def counts(self, *texts):
        paths = []
        for number, text in enumerate(texts):
            paths.append(self.root / f"{number}.xml")
            if text is not None:
                paths[-1].write_text(text)
        counts = summarize_tests.summarize(paths, report=lambda line: None)
        return counts["passed"], counts["failed"], counts["skipped"]

    def test_ctest_without_an_executable_is_a_failure_and_a_skip_is_none(self):
        self.assertEqual(self.counts(CTEST), (1, 2, 2))

    def test_test_that_fails_twice_is_one_failure(self):
        self.assertEqual(self.counts(PYTEST), (1, 1, 1))

    def test_a_second_try_passes_and_is_named_and_four_of_them_fail(self):
        """As pytest-rerunfailures 16 has them written: the try that failed is a case without a word."""
        paths = []
        for tests in (3, 4):
            twice = "".join(f'<testcase classname="tests.a" name="t{n}"/>' for n in range(tests) for _ in range(2))
            paths.append(self.root / f"{tests}.xml")
            paths[-1].write_text(f"<testsuite>{twice}</testsuite>")
        said = []
        counts = summarize_tests.summarize(paths[:1], report=said.append)
        self.assertEqual((counts["passed"], counts["failed"], counts["second_try"]), (3, 0, 3))
        self.assertEqual(said, [f"passed at its second try: tests.a.t{n}" for n in range(3)])
        self.assertEqual([summarize_tests.main([path]) for path in paths], [0, 1])

    def test_a_failure_that_is_skipped_at_its_second_try_is_named_too(self):
        path = self.root / "skipped.xml"
        path.write_text('<testsuite><testcase classname="tests.a" name="t"/>'
                        '<testcase classname="tests.a" name="t"><skipped message="no"/></testcase></testsuite>')
        said = []
        self.assertEqual(summarize_tests.summarize([path], report=said.append)["second_try"], 1)
        self.assertEqual(said, ["skipped at its second try: tests.a.t"])

    def test_files_are_added_up(self):
        self.assertEqual(self.counts(CTEST, PYTEST), (2, 3, 3))

    def test_missing_and_broken_files_are_failures(self):
        self.assertEqual(self.counts(None, "<testsuite>"), (0, 2, 0))

    def test_what_a_failure_said_last_is_repeated(self):
        long = "".join(f"line {i}\n" for i in range(40))
        path = self.root / "said.xml"
        path.write_text(f"""<testsuite>
          <testcase name="c" classname="c" status="fail"><failure message=""/><system-out>{long}</system-out></testcase>
          <testcase name="p" classname="p"><failure message="assert 1 == 2&#10; +  where 1">a traceback</failure></testcase>
        </testsuite>""")
        reported = []
        summarize_tests.summarize([path], reported.append)
        cplusplus, python = (text.splitlines() for text in reported)
        self.assertEqual(cplusplus, ["failed: c.c", *(f"    line {i}" for i in range(25, 40))])
        self.assertEqual(python, ["failed: p.p", "    assert 1 == 2", "     +  where 1"])


if __name__ == "__main__":
    unittest.main()
