"""What the profile found while the run was watched (docs/incidents.md)."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from typing import Any

from .notebook import table, text


@dataclass(frozen=True)
class Incident:
    """Findings of one cause: the cause."""

    #: "no_gradient": a section of docs/incidents.md; of a second one "no_gradient-2".
    id: str
    title: str
    #: All of it in words, with the numbers.
    sentence: str
    first_step: int
    #: Where it shows first; "" where it is no one tensor.
    tensor: str
    #: "certain", "likely" or "possible".
    confidence: str
    #: What to do next.
    advice: str
    #: The user took it for no issue (`tdbg mute`), and why.
    muted: bool = False
    because: str = ""

    def __str__(self) -> str:
        return f"step {self.first_step}: {self.sentence}"


class Incidents(list[Incident]):
    """A list; in a notebook a table."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no incident</p>"
        return table(["step", "incident", "confidence", "next"],
                     [[str(i.first_step), f"muted: {text(i.title)}", "", f"because {text(i.because)}"] if i.muted else
                      [str(i.first_step), f"<b>{text(i.title)}</b><br>{text(i.sentence)}", text(i.confidence),
                       text(i.advice)] for i in self])


class Findings(list[dict[str, Any]]):
    """A list; in a notebook a table."""

    _SHOWN = 30

    def _repr_html_(self) -> str:
        if not self:
            return "<p>nothing found</p>"
        rows = [[*(text(f.get(key, "")) for key in ("rule", "global_step", "tensor", "worker")),
                 text(f"{f.get('measure', '')} {f.get('value', '')} {f.get('comparison', '')} {f.get('threshold', '')}"
                      if f.get("measure") else f.get("text", ""))] for f in self[:self._SHOWN]]
        more = f"<p>and {len(self) - self._SHOWN} more</p>" if len(self) > self._SHOWN else ""
        return table(["rule", "step", "tensor", "worker", "what"], rows) + more


_TEXTS = ("id", "title", "sentence", "tensor", "confidence", "advice")


def _statuses(run: str) -> list[dict[str, Any]]:
    """The last status of each rule that watched; a torn line is none."""
    latest: dict[str, dict[str, Any]] = {}
    try:
        text = (pathlib.Path(run) / "events.jsonl").read_text(errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("kind") == "rule_status" and isinstance(event.get("name"), str):
            latest[event["name"]] = event
    return list(latest.values())


def _objects(status: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = status.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _place(item: dict[str, Any]) -> str:
    """What an incident is about in a list of what is muted: as `rules::FingerprintOf` of the program says it."""
    tensor = str(item.get("tensor", ""))
    name = "" if tensor.startswith("context/") else tensor.rpartition("/")[2]
    return name.rpartition(".")[0] or tensor or str(item.get("worker", ""))


def _muted(run: str) -> dict[tuple[str, str], str]:
    """Why each is muted, by detector and place, as muted.json of the run says; a damaged one mutes nothing."""
    try:
        document = json.loads((pathlib.Path(run) / "muted.json").read_text(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    reasons: dict[tuple[str, str], str] = {}
    if isinstance(document, dict) and document.get("version") == 1:
        for mute in _objects(document, "muted"):
            for one in _objects(mute, "what"):
                reasons.setdefault((str(one.get("detector")), str(one.get("place"))), str(mute.get("because", "")))
    return reasons


def incidents_of(run: str) -> Incidents:
    """:param run: its directory"""
    found = Incidents()
    reasons = _muted(run)
    for status in _statuses(run):
        for item in _objects(status, "incidents"):
            step = item.get("first_step")
            detector = item.get("detector") or str(item.get("id", "")).partition("-")[0]
            because = reasons.get((str(detector), _place(item)), "")
            found.append(Incident(first_step=step if isinstance(step, int) else -1,
                                  muted=bool(because), because=because,
                                  **{key: str(item.get(key, "")) for key in _TEXTS}))
    found.sort(key=lambda incident: incident.muted)
    return found


def findings_of(run: str) -> Findings:
    """:param run: its directory"""
    return Findings({"rule": status["name"], **item}
                    for status in _statuses(run) for item in _objects(status, "findings"))
