#!/usr/bin/env python3
"""Runs the tests of ctest or of pytest, and what failed once more, alone, after the others.

  tools/run_tests.py ctest FOLDER [ARGUMENT...]   FOLDER: a build folder; results in FOLDER/ctest.xml
  tools/run_tests.py pytest RESULTS [ARGUMENT...] RESULTS: where its JUnit file is written, as build/pytest.xml

What the second time said is in a file of its own beside the first (build/pytest-again.xml); tools/summarize_tests.py
reads both, and calls unstable what failed and then passed. Exit status: 0 if every test passed at last, else 1. More than
MOST_AGAIN failures are no accident, and are not run again.
"""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import summarize_tests

MOST_AGAIN = 20
# How many tests run at the same time: a fifth of a test's time is waiting, for a disk or for what another process says.
BESIDE = min(1 + (os.cpu_count() or 1), 8)
# Results of tests that are one test of ctest: the second time would replace the first time's.
SCENARIOS = "scenarios.xml"


def failures(results):
    """How many tests of a JUnit file failed; None if it cannot be read, as of a suite that never started."""
    try:
        cases = ElementTree.parse(results).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError):
        return None
    return sum(summarize_tests.outcome(case) == "failed" for case in cases)


def twice(results, first, again):
    """Runs the command `first`, and `again` if a few of its tests failed; both are given a results file to write."""
    second = summarize_tests.again(results)
    for path in (results, second):
        path.unlink(missing_ok=True)
    status = subprocess.call(first(results))
    failed = failures(results)
    if status == 0 or not failed:
        return status
    if failed > MOST_AGAIN:
        print(f"run_tests: {failed} tests failed, more than {MOST_AGAIN}: not run again", flush=True)
        return status
    print(f"run_tests: what failed is run again, alone ({failed})", flush=True)
    return subprocess.call(again(second))


def ctest(folder, arguments):
    scenarios, kept = folder / SCENARIOS, folder / (SCENARIOS + ".first")
    scenarios.unlink(missing_ok=True)
    summarize_tests.again(scenarios).unlink(missing_ok=True)

    def command(results, *more):
        return ["ctest", "--test-dir", str(folder), "--output-on-failure", "--output-junit", str(results.resolve()), *more]

    def again(results):
        if scenarios.exists():
            scenarios.rename(kept)
        return command(results, "--rerun-failed", "-j1")

    status = twice(folder / "ctest.xml", lambda results: command(results, f"-j{BESIDE}", *arguments), again)
    if kept.exists():
        if scenarios.exists():
            scenarios.rename(summarize_tests.again(scenarios))
        kept.rename(scenarios)
    return status


def pytest(results, arguments):
    results.parent.mkdir(parents=True, exist_ok=True)
    # Where pytest keeps the names of what failed; each suite has its own, so that none runs another one's again.
    cache = results.resolve().with_suffix(".cache")
    base = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
    # A file stays in one place: its fixtures are a training, too. Files start in the order of their names: xdist would
    # start those with the fewest tests last, and they are the longest (keras/test_backends.py: four tests, 230 s, at the
    # end of which one core was idle for 70 s).
    beside = ["-n", str(BESIDE), "--dist", "loadfile", "--no-loadscope-reorder"]
    alone = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none", "-o", "junit_logging=all"]
    return twice(results, lambda path: [*base, *beside, *arguments, f"--junitxml={path}"],
                 lambda path: [*base, *arguments, *alone, f"--junitxml={path}"])


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("ctest", "pytest"):
        print(__doc__, file=sys.stderr)
        return 2
    kind, place, *rest = arguments
    return min(1, abs((ctest if kind == "ctest" else pytest)(pathlib.Path(place), rest)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
