"""What an agent may ask: each method is a tool, its docstring what the agent is told of it.

Answers are short: what a reader can take in at once, and how much more there is. Names and texts in them are whatever a
training's author wrote.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import numpy as np
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tdbg.agents.questions import Questions, Refused, plain

_MOST_NAME = 12_000  # a name may have 10 kB
_FLAGS = ((1, "NaN"), (2, "infinity"), (4, "all zero"))
_KEPT = 8
_MOST_ROWS = 4096  # of a question

Answer = dict[str, Any]
Run = Annotated[str, Field(description="a name that list_runs gave; may be empty where there is one run alone",
                           max_length=_MOST_NAME)]
Name = Annotated[str, Field(description="a tensor's name, as the tool tensors gives it", max_length=_MOST_NAME)]
Begin = Annotated[int, Field(description="first global step", ge=0)]
End = Annotated[int, Field(description="global step behind the last one; 0: all", ge=0)]


def _short(found: Any, most: int) -> dict[str, Any]:
    """The first of a list, and how many more there are."""
    return {"first": found[:most], "more": max(0, len(found) - most)}


def _shortened(found: Any, most: int) -> Any:
    """A document, of each of its lists the first."""
    if isinstance(found, dict):
        return {key: _shortened(value, most) for key, value in found.items()}
    if isinstance(found, list):
        return {"first": [_shortened(value, most) for value in found[:most]], "more": max(0, len(found) - most)}
    return found


def _signs(flags: int) -> list[str]:
    return [word for bit, word in _FLAGS if flags & bit] if flags & _KEPT else ["not kept"]


class Tools:
    """Read-only questions about runs."""

    def __init__(self, questions: Questions) -> None:
        self._ask = questions

    def all(self) -> list[Any]:
        """The methods that are tools."""
        return [self.list_runs, self.how_is, self.explain, self.tensors, self.series, self.layers, self.step,
                self.histogram, self.workers, self.compare, self.rule_page]

    def list_runs(self, offset: Annotated[int, Field(ge=0)] = 0,
                  limit: Annotated[int, Field(ge=1, le=100)] = 20) -> Answer:
        """The runs, the newest first: name, state, steps, which rules found something."""
        answer = self._document("runs", offset=offset, limit=limit)
        for run in answer["runs"]:
            run.pop("loss", None)
        return answer

    def how_is(self, run: Run = "") -> Answer:
        """How a run is: one sentence, its state and steps, its workers (which ones are gone or behind), incidents and
        rules' verdicts, what was lost while recording. Start here."""
        o = self._document("run", run=run)
        answer = {key: o[key] for key in ("name", "state", "running", "steps", "first_step", "last_step", "tensors",
                                          "world_size", "attempts", "damage")}
        answer["sentence"] = o["sentence"]["text"]
        answer["workers"] = _short(o["workers"], 64)
        # Of the job as it is: a worker of an earlier attempt is gone because the job was started again.
        latest = max((w["attempt"] for w in o["workers"]), default=0)
        workers = [w for w in o["workers"] if w["attempt"] == latest]
        farthest = max((w["last_step"] for w in workers), default=-1)
        behind = [w["name"] for w in workers if w["last_step"] < farthest]
        answer["workers_behind"] = behind[:64]
        answer["workers_that_died"] = [w["name"] for w in workers if not w["alive"] and not w["ended"]][:64]
        answer["worker_ends"] = _short(o["worker_ends"], 16)
        answer["dropped"] = _short(o["dropped"], 8)
        if "first_nonfinite" in o:
            answer["first_nonfinite"] = o["first_nonfinite"]
        answer["nan_origins"] = _short(o["origins"], 3)
        answer["incidents"] = _short([{key: i[key] for key in ("id", "title", "sentence", "first_step", "tensor",
                                                               "worker", "confidence", "advice", "muted", "because")}
                                      for i in o["incidents"]], 8)
        answer["verdicts"] = [{"name": v["name"], "status": v["status"], "details": v["details"],
                               "findings": _short(v["findings"], 3)} for v in o["verdicts"][:40]]
        answer["losses_and_metrics"] = [c["tensor"] for c in o["charts"]]
        return answer

    def explain(self, run: Run = "") -> Answer:
        """What happened to a run, why, and what to do: its incidents with evidence, consequences and advice. A run that
        no rule watched is judged now, which may take a while."""
        text, unread = self._command("explain", self._path(run), "--json")
        story: Answer = json.loads(text)
        story["could_not_be_read"] = unread
        for incident in story["incidents"]:
            for key in ("evidence", "consequences"):
                incident[key] = _short(incident[key], 6)
        story["incidents"] = _short(story["incidents"], 8)
        return story

    def tensors(self, run: Run = "",
                contains: Annotated[str, Field(description="only names with this text", max_length=_MOST_NAME)] = "",
                limit: Annotated[int, Field(ge=1, le=500)] = 100) -> Answer:
        """What was recorded, in the model's order: tensors with kind, shape and type, and plain numbers (losses,
        metrics, learning rates)."""
        tree = self._document("tensors", run=run)
        chosen = [t for t in tree["tensors"] if contains in t["name"]]
        numbers = [s["name"] for s in tree["series"] if contains in s["name"]]
        keys = ("name", "kind", "module_kind", "dtype", "shape")
        return {"tensors": _short([{key: t[key] for key in keys} for t in chosen[:limit]], limit) |
                {"more": max(0, len(chosen) - limit)}, "numbers": _short(numbers, limit)}

    def series(self, tensor: Name, run: Run = "",
               field: Annotated[str, Field(description="value (of a plain number or loss), or a statistic: mean_abs, "
                                           "l2, mean, std, min, max, abs_max, zero_count, nan_count")] = "value",
               begin: Begin = 0, end: End = 0,
               worker: Annotated[str, Field(description="worker_0; empty: the first that has it")] = "",
               mode: Annotated[str, Field(description="TRAIN, EVAL or PREDICT; empty: the steps of all modes")] = "",
               points: Annotated[int, Field(ge=1, le=500)] = 40) -> Answer:
        """A tensor's statistic, a loss, a metric or a rate over the steps: [step, value] pairs in which no extreme is
        lost, and the steps at which it was not finite. Where `modes` names several, training and evaluation lie in it
        side by side: ask for one of them."""
        c = self._columns("line", run=run, tensor=tensor, field=field, begin=begin, end=end or None, worker=worker,
                          mode=mode, columns=max(1, points // 4))
        bad = [[int(s), plain(float(v))] for s, v in zip(c["nonfinite_step"], c["nonfinite_value"], strict=True)]
        return {"points": [[int(s), plain(float(v))] for s, v in zip(c["step"], c["value"], strict=True)],
                "modes": c.head["modes"], "recorded": c.head["points"], "exact": c.head["exact"],
                "not_finite": _short(bad, 40)}

    def layers(self, run: Run = "",
               statistic: Annotated[str, Field(description="mean_abs, l2, abs_max, std, mean, min, max, zero_share, "
                                               "nonfinite_share")] = "mean_abs",
               contains: Annotated[str, Field(description="only names with this text", max_length=_MOST_NAME)] = "",
               begin: Begin = 0, end: End = 0,
               columns: Annotated[int, Field(ge=1, le=32)] = 6,
               limit: Annotated[int, Field(ge=1, le=200)] = 40) -> Answer:
        """A statistic of every tensor over the whole run, or a part of it, in a few columns of steps: what changed
        first, what vanished, what exploded. Tensors with something not finite come first, then those that changed most;
        each with the extremes of every column."""
        tree = self._document("tensors", run=run)
        chosen = [t for t in tree["tensors"] if contains in t["name"]]
        if not chosen:
            return {"steps": [], "tensors": {"first": [], "more": 0}}
        pieces: list[Any] = []
        for at in range(0, len(chosen), _MOST_ROWS):
            if pieces and len(pieces[0]["step_last"]):
                end = int(pieces[0]["step_last"][-1]) + 1  # a run that trains has more steps by now
            rows = ";".join(str(t["id"]) for t in chosen[at:at + _MOST_ROWS])
            pieces.append(self._columns("matrix", run=run, statistic=statistic, begin=begin, end=end or None,
                                        columns=columns, rows=rows))
        c = pieces[0]
        low = np.concatenate([piece["low"] for piece in pieces]).astype(float)
        high = np.concatenate([piece["high"] for piece in pieces]).astype(float)
        flags = np.concatenate([piece["flags"] for piece in pieces])
        magnitude = np.where(np.isfinite(high), np.maximum(np.abs(low), np.abs(high)), np.nan)
        with np.errstate(all="ignore"):
            logs = np.log10(np.maximum(magnitude, 1e-30))
            changed = np.nan_to_num(np.nanmax(logs, axis=1, initial=-np.inf, where=~np.isnan(logs)) -
                                    np.nanmin(logs, axis=1, initial=np.inf, where=~np.isnan(logs)), neginf=0.0)
        changed[(flags & 3).any(axis=1)] = np.inf
        order = np.argsort(-changed, kind="stable")
        found = []
        for row in order[:limit]:
            cells = [{"low": plain(float(low[row, i])), "high": plain(float(high[row, i])),
                      "signs": _signs(int(flags[row, i]))}
                     for i in range(len(c["step_first"]))]
            found.append({"tensor": chosen[row]["name"], "cells": cells})
        steps = [[int(a), int(b)] for a, b in zip(c["step_first"], c["step_last"], strict=True)]
        return {"steps": steps, "tensors": {"first": found, "more": max(0, len(chosen) - limit)}}

    def step(self, step: Annotated[int, Field(description="a global step", ge=0)], run: Run = "") -> Answer:
        """One step: when it was, which workers have it and which are missing, every plain number of it."""
        answer = self._document("step", run=run, step=step)
        answer["scalars"] = _short(answer["scalars"], 100)
        return answer

    def histogram(self, tensor: Name, step: Annotated[int, Field(ge=0)], run: Run = "",
                  worker: Annotated[str, Field(description="empty: the first that has it")] = "") -> Answer:
        """One tensor at one step: its statistics, and its exact distribution where one was kept."""
        c = self._columns("histogram", run=run, tensor=tensor, step=step, worker=worker)
        buckets = [[plain(float(a)), plain(float(b)), int(n)]
                   for a, b, n in zip(c["lower"], c["upper"], c["count"], strict=True)]
        return {"summary": c.head["summary"], "lower_upper_count": _short(buckets, 200),
                "why_none": c.head.get("why_none", "")}

    def workers(self, tensor: Name, run: Run = "",
                field: Annotated[str, Field(description="as of series")] = "value",
                begin: Begin = 0, end: End = 0) -> Answer:
        """A loss or a tensor's statistic by worker: mean, extremes, last step of each, and who is furthest from the
        median of all. For a worker that is slow or gone ask how_is."""
        c = self._columns("workers", run=run, tensor=tensor, field=field, begin=begin, end=end or None, columns=64)
        low, high, flags = c["low"].astype(float), c["high"].astype(float), c["flags"]
        found, means = [], []
        for row, name in enumerate(c.head["workers"]):
            kept = np.flatnonzero(flags[row] & _KEPT)
            lows, highs = low[row][np.isfinite(low[row])], high[row][np.isfinite(high[row])]
            means.append(float(highs.mean()) if len(highs) else float("nan"))
            found.append({"worker": name, "mean": plain(means[-1]),
                          "low": plain(float(lows.min())) if len(lows) else "NaN",
                          "high": plain(float(highs.max())) if len(highs) else "NaN",
                          "last_step": int(c["step_last"][kept[-1]]) if len(kept) else -1,
                          "signs": _signs(int(np.bitwise_or.reduce(flags[row])))})
        finite = np.array(means)[np.isfinite(means)]
        apart = np.abs(np.array(means) - np.median(finite)) if len(finite) else np.array([])
        furthest = found[int(np.nanargmax(apart))]["worker"] if len(finite) > 2 else ""
        return {"workers": _short(found, 128), "furthest_from_median": furthest}

    def compare(self, run: Run, other: Run) -> Answer:
        """Where two runs part: the first step and tensor that differ, and by how much."""
        text, _ = self._command("diff", self._path(run), self._path(other), "--json")  # its document has the damage
        short: Answer = _shortened(json.loads(text), 12)
        return short

    def rule_page(self, name: Annotated[str, Field(description="VanishingGradient or vanishing_gradient")]) -> str:
        """What a rule looks for, its parameters, and what to do about what it finds."""
        if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", name):
            raise ToolError("a rule's name has letters, digits and '_' alone")
        return self._command("rules", "show", name)[0]

    # A refusal is an answer, in a sentence; anything else would be reported as a crash of ours.
    def _document(self, question: str, **parameters: object) -> Answer:
        try:
            answer: Answer = self._ask.document(question, **parameters)
            return answer
        except Refused as error:
            raise ToolError(str(error)) from error

    def _columns(self, question: str, **parameters: object) -> Any:
        try:
            return self._ask.columns(question, **parameters)
        except Refused as error:
            raise ToolError(str(error)) from error

    def _command(self, *words: str) -> tuple[str, str]:
        try:
            return self._ask.command(*words)
        except Refused as error:
            raise ToolError(str(error)) from error

    def _path(self, run: str) -> str:
        try:
            return self._ask.path(run)
        except Refused as error:
            raise ToolError(str(error)) from error
