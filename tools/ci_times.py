#!/usr/bin/env python3
"""Where CI's time goes: `tools/ci_times.py [N]` after .ci/run, `make test` or `make sanitize`.

Of each build: how long its compilers and linkers ran, by kind and room (`.ninja_log`); of each test results file
(JUnit): the test files that took longest; of all: the N dearest (15). These are seconds on the clock, added up over what
ran side by side. A compiler cache makes a warm build say little: look at a cold one.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]


def build_times(text):
    """{output: seconds} of a .ninja_log; the last time that each was built counts."""
    times = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if not line.startswith("#") and len(fields) == 5:
            times[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return times


def build_group(output):
    """'src/trial tests', 'src/trial', 'tests/kill' or 'links and other'."""
    if not output.endswith(".o"):
        return "links and other"
    source = re.search(r"\.dir/(?:batches/)?(src/(?:compat/smdebug/|store/)?[^/]+)/", output)
    if source:
        return source[1] + (" tests" if output.endswith("_test.cc.o") else "")
    return output.partition("/CMakeFiles/")[0]


def test_times(text):
    """{(test file or suite, test): seconds} of a JUnit file."""
    times = collections.Counter()
    for case in ElementTree.fromstring(text).iter("testcase"):
        name, group = case.get("name"), case.get("classname")
        # ctest repeats the name; pytest says folder.file.Class
        group = name.split(".")[0] if group == name else re.sub(r"\.Test\w*$", "", group)
        times[group, name] += float(case.get("time") or 0)
    return dict(times)


def table(title, times, group, most):
    groups, counts = collections.Counter(), collections.Counter()
    for key, seconds in times.items():
        groups[group(key)] += seconds
        counts[group(key)] += 1
    lines = [f"{title}: {sum(groups.values()):.0f} s, {len(times)}"]
    lines += [f"  {seconds:7.1f} s  {counts[name]:4d}  {name}" for name, seconds in groups.most_common(most)]
    lines.append("  dearest:")
    dearest = sorted(times.items(), key=lambda item: -item[1])[:most]
    lines += [f"  {seconds:7.1f} s        {key if isinstance(key, str) else '::'.join(key)}" for key, seconds in dearest]
    return "\n".join(lines)


def main(arguments):
    most = int(arguments[0]) if arguments else 15
    logs, results = sorted(ROOT.glob("build*/.ninja_log")), sorted(ROOT.glob("build*/*.xml"))
    for path in logs:
        print(table(path.relative_to(ROOT), build_times(path.read_text()), build_group, most))
    for path in results:
        print(table(path.relative_to(ROOT), test_times(path.read_text()), lambda key: key[0], most))
    if not logs and not results:
        print("ci_times: nothing was built or tested here", file=sys.stderr)
    return 0 if logs or results else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
