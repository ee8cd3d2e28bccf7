#!/usr/bin/env python3
"""Writes the table of docs/frameworks.md that says what was verified with which version, from what the conformance runs
left in build/conformance (tests/frameworks/conftest.py).

    tools/frameworks_table.py            rewrites the rows of the frameworks that were run; others stay
    tools/frameworks_table.py --check    1 if a row says something else than its run did, or a framework has none; versions
                                         move without us, and are not compared
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- verified: written by tools/frameworks_table.py -->", "<!-- verified: end -->"
HEAD = ("| framework | verified with | collections (recorded by default) | not there, and why | checks |",
        "|---|---|---|---|---|")
VERSION = 1     # the column that is not compared


def row(record):
    """The cells of one framework."""
    kept = ", ".join(f"**{c}**" if c in record["default"] else c for c in record["collections"])
    reasons = {}
    for collection, why in record["absent"].items():
        reasons.setdefault(why, []).append(collection)
    checks = record["checks"]
    known = [f"{name.removeprefix('test_').replace('_', ' ')}: {why.partition(': ')[2]}"
             for name, why in checks.items() if why.startswith("known: ")]
    passed = sum(why == "passed" for why in checks.values())
    verdict = f"{passed} of {len(checks)}" + ("" if not known else "; known: " + "; ".join(known))
    version = record["version"] + (f", Python {record['python']}" if record["python"] else "")
    return [record["framework"], version, kept,
            "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items()), verdict]


def read_rows(text):
    """{framework: cells} of the table in the page."""
    block = text.partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in block.splitlines() if line.startswith("| ")][1:]
    return {cells[0]: cells for cells in ([c.strip() for c in line.strip("|").split(" | ")] for line in lines)}


def written(text, rows):
    """The page with these rows."""
    table = "\n".join([*HEAD, *("| " + " | ".join(rows[name]) + " |" for name in sorted(rows))])
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def failures(records):
    return [f"{r['framework']}: {name} {outcome}" for r in records for name, outcome in r["checks"].items()
            if outcome != "passed" and not outcome.startswith("known: ")]


def stale(rows, records):
    """What the page says differently from the runs."""
    found = []
    for record in records:
        new, old = row(record), rows.get(record["framework"])
        if old is None:
            found.append(f"{record['framework']}: has no row")
        elif [c for n, c in enumerate(old) if n != VERSION] != [c for n, c in enumerate(new) if n != VERSION]:
            found.append(f"{record['framework']}: its row is not what its run says")
    return found


def main(arguments=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    page = root / "docs" / "frameworks.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        print(f"{page}: no table between {BEGIN} and {END}", file=sys.stderr)
        return 2
    records = [json.loads(path.read_text()) for path in sorted((root / "build" / "conformance").glob("*.json"))]
    rows = read_rows(text)
    if options.check:
        found = failures(records) + stale(rows, records)
        found += [] if records else ["no conformance run has left a record in build/conformance: make test"]
        for line in found:
            print(line, file=sys.stderr)
        if found:
            print("run tools/frameworks_table.py after make test and make test-frameworks", file=sys.stderr)
        return 1 if found else 0
    rows.update({record["framework"]: row(record) for record in records})
    page.write_text(written(text, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
