"""Counts what was found, each with Wilson's interval of 95 %."""

from __future__ import annotations

import collections
import math
import statistics
from typing import Any

from faults import KINDS

Result = dict[str, Any]


def interval(found: int, of: int) -> tuple[float, float]:
    """Wilson's, 95 %, in hundredths."""
    if not of:
        return 0.0, 100.0
    z, share = 1.96, found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return round(100 * max(0.0, middle - half), 1), round(100 * min(1.0, middle + half), 1)


def count(found: int, of: int) -> dict[str, Any]:
    low, high = interval(found, of)
    return {"found": found, "of": of, "low": low, "high": high}


def right(result: Result) -> bool:
    return result["faulty"] and bool(set(result["detectors"]) & KINDS[result["kind"]].detectors)


def good(result: Result) -> bool:
    """As it should be: a fault with its cause, a healthy run without an incident. A hidden fault cannot be wrong."""
    if "crashed" in result:
        return False
    return (right(result) or bool(KINDS[result["kind"]].hidden)) if result["faulty"] else not result["detectors"]


def report(results: list[Result]) -> dict[str, Any]:
    """Crashed cases are in none of the counts but their own."""
    crashed = [r for r in results if "crashed" in r]
    judged = [r for r in results if "crashed" not in r]
    hidden = [r for r in judged if r["faulty"] and KINDS[r["kind"]].hidden]
    faulty = [r for r in judged if r["faulty"] and not KINDS[r["kind"]].hidden]
    well = [r for r in judged if not r["faulty"]]
    twins = {(r["kind"], r["draw"]): r for r in well}
    pairs = [(r, twins[r["kind"], r["draw"]]) for r in faulty if (r["kind"], r["draw"]) in twins]
    said = [r for r in faulty if r["detectors"]]
    delays = [next(i[1] for i, d in zip(r["incidents"], r["detectors"]) if d in KINDS[r["kind"]].detectors) - r["begins"]
              for r in faulty if right(r)]
    groups = sorted({KINDS[r["kind"]].group for r in faulty})
    return {
        "right cause": count(sum(map(right, faulty)), len(faulty)),
        "right cause, and a quiet twin": count(sum(right(r) and not t["detectors"] for r, t in pairs), len(pairs)),
        "healthy runs alarmed": count(sum(bool(r["detectors"]) for r in well), len(well)),
        "first incident the right one, where there was any":
            count(sum(r["detectors"][0] in KINDS[r["kind"]].detectors for r in said), len(said)),
        "incidents in a faulty run, median": statistics.median(len(r["detectors"]) for r in faulty) if faulty else None,
        "steps to the incident, median": statistics.median(delays) if delays else None,
        "other rules: faulty runs with any finding": count(sum(bool(r["rules"]) for r in faulty), len(faulty)),
        "other rules: healthy runs alarmed": count(sum(bool(r["rules"]) for r in well), len(well)),
        "hidden faults with an incident": count(sum(bool(r["detectors"]) for r in hidden), len(hidden)),
        "crashed": count(len(crashed), len(results)),
        "by class": {g: count(sum(right(r) for r in faulty if KINDS[r["kind"]].group == g),
                              sum(KINDS[r["kind"]].group == g for r in faulty)) for g in groups},
        "rules on healthy runs": by_rule(well),
    }


def by_rule(well: list[Result]) -> dict[str, Any]:
    """How often each of the other rules, at its defaults, alarms a run that is well, of those that it could judge."""
    alarms = collections.Counter(rule for r in well for rule in set(r["rules"]))
    able = collections.Counter(rule for r in well for rule in set(r["judged"]) | set(r["rules"]))
    return {rule: count(alarms[rule], able[rule]) for rule in sorted(able, key=lambda rule: (-alarms[rule], rule))}


def cell(value: Any) -> str:
    if not isinstance(value, dict):
        return "" if value is None else f"{value:g}"
    if not value["of"]:
        return ""
    return f"{value['found']} of {value['of']} ({100 * value['found'] / value['of']:.0f} %; {value['low']:.0f} to {value['high']:.0f})"


def table(reports: dict[str, dict[str, Any]]) -> str:
    """Markdown: a column for each part, a row for each count."""
    lines = ["| | " + " | ".join(reports) + " |", "|---" * (len(reports) + 1) + "|"]
    rows = [row for row, value in next(iter(reports.values())).items() if row not in ("by class", "rules on healthy runs")]
    lines += [f"| {row} | " + " | ".join(cell(r[row]) for r in reports.values()) + " |" for row in rows]
    for within, title in (("by class", "class: {}"), ("rules on healthy runs", "{} on healthy runs")):
        for group in dict.fromkeys(g for r in reports.values() for g in r[within]):
            lines.append(f"| {title.format(group)} | " + " | ".join(cell(r[within].get(group)) for r in reports.values()) + " |")
    return "\n".join(lines)
