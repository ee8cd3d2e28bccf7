#!/usr/bin/env python3
"""Adds up JUnit files of ctest and pytest into one line: N passed, N failed, N skipped.

A results file that is missing or cannot be read counts as a failure, and so does a run without a single test: a
suite that did not start must not look like one that passed. Of each failure the end of what it said is repeated: of a
machine that is gone when somebody looks, these lines are all that is left.

A test that failed and then did not, when it was run again alone (tools/run_tests.py; build/pytest-again.xml beside
build/pytest.xml), is counted by what it did then, and named as unstable, with what it said at first. More than
MOST_UNSTABLE of them are no accident: then the run has failed.
"""

import dataclasses
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

MOST_UNSTABLE = 5


@dataclasses.dataclass
class Summary:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)  # names
    unstable: list = dataclasses.field(default_factory=list)  # names; each is counted in passed or skipped, too

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def good(self):
        return self.failed == 0 and self.passed > 0 and len(self.unstable) <= MOST_UNSTABLE


def again(path):
    """Where the second time's results of `path` lie."""
    path = pathlib.Path(path)
    return path.with_name(f"{path.stem}-again{path.suffix}")


def outcome(case):
    """'passed', 'failed' or 'skipped' for one <testcase>."""
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    skipped = case.find("skipped")
    # ctest says "skipped" of a test whose executable was not built, too.
    if case.get("status") == "notrun" and not (skipped is not None and skipped.get("message", "").startswith("SKIP_")):
        return "failed"
    if skipped is not None or case.get("status") == "disabled":
        return "skipped"
    return "passed"


def words(case, most=15):
    """The last lines of what a failed <testcase> said."""
    # pytest puts the assertion into the message, which may be long; ctest all of the output beside it.
    said = [part.get("message") or "" for part in case if part.tag in ("failure", "error")]
    if case.get("status") is not None:
        said.append(case.findtext("system-out") or "")
    lines = [line for text in said for line in text.splitlines() if line.strip()]
    return [line[:300] for line in lines[-most:]]


def outcomes(path):
    """{name: (outcome, last words of a failure)} of a results file. Raises OSError or ParseError."""
    worst = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        found = outcome(case)
        # pytest writes one case twice if both the test and its teardown fail.
        if worst.get(name, ("", []))[0] != "failed":
            worst[name] = found, words(case) if found == "failed" else []
    return worst


def summarize(paths, report=lambda line: print(line, file=sys.stderr)):
    """A Summary over all files; failures and unstable tests are reported by name."""
    summary = Summary()
    for path in paths:
        try:
            first = outcomes(path)
            second = outcomes(again(path)) if again(path).exists() else {}
        except (OSError, ElementTree.ParseError) as error:
            report(f"failed: no results in {path}: {error}")
            summary.failed += 1
            summary.failures.append(str(path))
            continue
        for name, (found, said) in first.items():
            if found == "failed" and name in second:
                found, at_last = second[name]
                if found != "failed":
                    summary.unstable.append(name)
                    report("\n    ".join([f"unstable: {name} ({again(path)}: {found} when it was run again); at first:", *said]))
                said = said + at_last if found == "failed" and said != at_last else said
            setattr(summary, found, getattr(summary, found) + 1)
            if found == "failed":
                summary.failures.append(name)
                report("\n    ".join([f"failed: {name}", *said]))
    if len(summary.unstable) > MOST_UNSTABLE:
        report(f"failed: {len(summary.unstable)} tests were unstable, {MOST_UNSTABLE} may be")
    return summary


def main(paths):
    summary = summarize(paths)
    print(summary.line())
    return 0 if summary.good() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
