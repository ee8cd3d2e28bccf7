#!/usr/bin/env python3
"""Adds up JUnit files of ctest and pytest into one line: N passed, N failed, N skipped.

A results file that is missing or cannot be read counts as a failure, and so does a run without a single test: a
suite that did not start must not look like one that passed. Of each failure the end of what it said is repeated: of a
machine that is gone when somebody looks, these lines are all that is left.

A test that did not fail at its second try (.ci/run allows one) is named, also one that then was skipped. More than
MOST_SECOND_TRIES of them are no accident: then the run has failed.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

MOST_SECOND_TRIES = 3


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


def summarize(paths, report=lambda line: print(line, file=sys.stderr)):
    """Counts by outcome over all files, and "second_try", how many failed first and then did not; those and failures are reported by name."""
    counts = {"passed": 0, "failed": 0, "skipped": 0, "second_try": 0}
    for path in paths:
        # pytest writes one case twice if both the test and its teardown fail, or once for each try; of a try that is
        # followed by another one it says nothing but the name.
        worst, said, cases = {}, {}, Counter()
        try:
            for case in ElementTree.parse(path).getroot().iter("testcase"):
                name = f"{case.get('classname')}.{case.get('name')}"
                found = outcome(case)
                cases[name] += 1
                if worst.get(name) != "failed":
                    worst[name] = found
                    said[name] = words(case) if found == "failed" else []
        except (OSError, ElementTree.ParseError) as error:
            report(f"failed: no results in {path}: {error}")
            counts["failed"] += 1
            continue
        for name, found in worst.items():
            counts[found] += 1
            if found == "failed":
                report("\n    ".join([f"failed: {name}", *said[name]]))
            elif cases[name] > 1:
                counts["second_try"] += 1
                report(f"{found} at its second try: {name}")
    return counts


def main(paths):
    counts = summarize(paths)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    if counts["second_try"] > MOST_SECOND_TRIES:
        print(f"failed: {counts['second_try']} tests needed a second try, {MOST_SECOND_TRIES} may", file=sys.stderr)
        return 1
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
