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
        return counts.passed, counts.failed, counts.skipped

    def test_ctest_without_an_executable_is_a_failure_and_a_skip_is_none(self):
        self.assertEqual(self.counts(CTEST), (1, 2, 2))

    def test_test_that_fails_twice_is_one_failure(self):
        self.assertEqual(self.counts(PYTEST), (1, 1, 1))

    def again(self, first, second):
        """(Summary, what it reported) of tests a.NAME that did `first` and, those of them that are in `second`, that."""
        def case(name, outcome):
            said = {"failed": f'<failure message="{name} said no"/>', "skipped": '<skipped message="no"/>', "passed": ""}
            return f'<testcase classname="a" name="{name}">{said[outcome]}</testcase>'

        path, reported = self.root / "pytest.xml", []
        for place, outcomes in ((path, first), (self.root / "pytest-again.xml", second)):
            place.write_text("<testsuite>" + "".join(case(*item) for item in outcomes.items()) + "</testsuite>")
        return summarize_tests.summarize([path], reported.append), reported

    def test_what_passes_when_it_is_run_again_is_unstable_and_told_with_what_it_said(self):
        summary, reported = self.again({"good": "passed", "shaky": "failed", "bad": "failed"},
                                       {"shaky": "passed", "bad": "failed"})
        self.assertEqual((summary.line(), summary.unstable), ("2 passed, 1 failed, 0 skipped", ["a.shaky"]))
        self.assertEqual((summary.failures, summary.good()), (["a.bad"], False))
        shaky, bad = reported
        self.assertTrue(shaky.startswith("unstable: a.shaky") and shaky.endswith("shaky said no"), shaky)
        self.assertEqual(bad, "failed: a.bad\n    bad said no")

    def test_a_failure_that_is_skipped_when_it_is_run_again_is_unstable_too(self):
        summary, _ = self.again({"good": "passed", "shaky": "failed"}, {"shaky": "skipped"})
        self.assertEqual((summary.line(), summary.unstable), ("1 passed, 0 failed, 1 skipped", ["a.shaky"]))
        self.assertTrue(summary.good())

    def test_a_failure_that_was_not_run_again_stays_one(self):
        summary, _ = self.again({"good": "passed", "bad": "failed"}, {"other": "passed"})
        self.assertEqual((summary.line(), summary.unstable), ("1 passed, 1 failed, 0 skipped", []))

    def test_many_unstable_tests_are_no_accident(self):
        for many, good in ((summarize_tests.MOST_UNSTABLE, True), (summarize_tests.MOST_UNSTABLE + 1, False)):
            names = [f"t{n}" for n in range(many)]
            summary, _ = self.again(dict.fromkeys(names, "failed"), dict.fromkeys(names, "passed"))
            self.assertEqual((summary.failed, summary.good()), (0, good))

    def test_second_results_that_cannot_be_read_are_a_failure(self):
        (self.root / "0-again.xml").write_text("<testsuite>")
        self.assertEqual(self.counts(PYTEST), (0, 1, 0))

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
