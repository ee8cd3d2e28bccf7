"""What was found, as text of at most 100 columns, as JSON, and as files."""

from __future__ import annotations

import json
import os
import shlex
import textwrap
from typing import Any

from tdbg.migrate import names
from tdbg.migrate.jobs import Job, Variable
from tdbg.migrate.scan import PROBLEM, Finding
from tdbg.migrate.sources import Source

COLUMNS = 100
_PLACES = 8  # of one thing, named behind its first
RUNS, CHANGES, NOT_OFFERED, UNREAD = "runs", "changes", "not offered", "not read"
_KINDS = {names.SAME: RUNS, names.BETTER: RUNS, names.DIFFERS: RUNS, names.BECOMES: CHANGES, names.UNKNOWN: CHANGES,
          names.NOT_OFFERED: NOT_OFFERED, PROBLEM: UNREAD}
_COLOURS = {RUNS: "32", CHANGES: "33", NOT_OFFERED: "31", UNREAD: "31"}


class WriteError(Exception):
    """Why nothing was written."""


def kind(finding: Finding) -> str:
    return _KINDS[finding.verdict]


def printable(text: str) -> str:
    """Without what a terminal would obey, whatever a file is called."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)


def quoted(word: str) -> str:
    """For a shell. A variable stays one; what is not printable is written as its bytes."""
    if isinstance(word, Variable):
        name, mark, rest = word.rpartition("=")
        return (shlex.quote(name) + "=" if mark else "") + f'"{rest}"'
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(
        "\\" + one if one in "\\'" else one if one.isprintable() else
        "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogateescape")) for one in word)
    return f"$'{escaped}'"


def words_of(job: Job, config: str) -> list[list[str]]:
    """The command in groups that stay on one line: a flag with its values, `python` with its script."""
    groups: list[list[str]] = []
    if job.environment:
        groups += [["env", *(f"{name}={value}" for name, value in sorted(job.environment.items()))]]
    if job.watched:
        groups.append(["tdbg", "run"])
        if job.config is not None:
            groups.append(["--config", config])
        groups += [list(flag) for flag in job.flags]
        groups.append(["--", *job.command[:2]])
    else:
        groups.append(job.command[:2])
    rest = job.command[2:]
    groups += [rest[at:at + 2] for at in range(0, len(rest), 2)]
    return groups


def shell(job: Job, config: str, indent: str = "  ") -> list[str]:
    """The command as lines for a shell."""
    lines: list[str] = []
    current = indent
    for group in words_of(job, config):
        text = " ".join(quoted(word) for word in group)
        if current.strip() and len(current) + len(text) + 3 > COLUMNS:
            lines.append(current + " \\")
            current = indent + "    "
        current += (" " if current.strip() else "") + text
    return [*lines, current]


def _also(places: list[str]) -> str:
    """Where else the same holds."""
    if not places:
        return ""
    more = len(places) - _PLACES
    named = places if more <= 1 else places[:_PLACES]
    return f" (also {', '.join(named)}{f' and {more} more' if more > 1 else ''})"


class Text:
    def __init__(self, colour: bool, changes_only: bool) -> None:
        self._colour = colour
        self._changes_only = changes_only
        self.counts = dict.fromkeys((RUNS, CHANGES, NOT_OFFERED, UNREAD), 0)

    def _paint(self, what: str, text: str) -> str:
        return f"\033[{_COLOURS[what]}m{text}\033[0m" if self._colour else text

    def count(self, source: Source, findings: list[Finding]) -> None:
        for finding in findings:
            self.counts[kind(finding)] += 1
        if source.problem:
            self.counts[UNREAD] += 1

    def file(self, source: Source, findings: list[Finding]) -> list[str]:
        shown = [one for one in findings if not self._changes_only or kind(one) != RUNS]
        if not shown and not source.problem:
            return []
        lines = textwrap.wrap(printable(source.path), COLUMNS, break_on_hyphens=False) or [""]
        if source.problem:
            lines += self._line("", UNREAD, printable(source.problem))
        # A class that is imported in one line and used in others is listed once, with all its lines.
        places: dict[tuple[str, str, str], list[str]] = {}
        for one in shown:
            where = f"[{one.cell}] {one.line}" if one.cell else str(one.line)
            places.setdefault((one.verdict, one.name, one.why), []).append(where)
        for (verdict, name, why), (first, *others) in places.items():
            text = name + (f": {why}" if why else {names.BETTER: " (better)"}.get(verdict, "")) + _also(others)
            lines += self._line(first, _KINDS[verdict], printable(text).lstrip(": "))
        return [*lines, ""]

    def _line(self, where: str, what: str, text: str) -> list[str]:
        margin = 24
        wrapped = textwrap.wrap(text, COLUMNS - margin, break_on_hyphens=False) or [""]
        first = f"{where:>10}  " + self._paint(what, f"{what:<12}") + wrapped[0]
        return [first.rstrip(), *(" " * margin + line for line in wrapped[1:])]

    def job(self, job: Job, config: str, folder: str) -> list[str]:
        where = f"cell {job.cell}, line {job.line}" if job.cell else f"line {job.line}"
        title = printable(f"{job.path}, {where}" + (f"; from {folder}" if folder not in ("", ".") else "") + ":")
        lines = textwrap.wrap(title, COLUMNS, break_on_hyphens=False)
        lines += shell(job, config)
        notes = [f"{name} is set to {expression}" for name, expression in job.variables.items()]
        for note in [f"first say what {', '.join(notes)}"] * bool(notes) + job.notes:
            lines += textwrap.wrap(printable(note), COLUMNS, initial_indent="  * ", subsequent_indent="    ",
                                   break_on_hyphens=False)
        return [*lines, ""]

    def summary(self, read: int, concerned: int) -> list[str]:
        counts = self.counts
        text = f"{read} file{'' if read == 1 else 's'} read, {concerned} of them for smdebug or SageMaker: "
        text += f"{counts[RUNS]} line{' runs' if counts[RUNS] == 1 else 's run'} unchanged, "
        text += f"{counts[CHANGES]} change, {counts[NOT_OFFERED]} are not offered, {counts[UNREAD]} could not be read"
        return textwrap.wrap(text, COLUMNS)


def document(source: Source, findings: list[Finding]) -> dict[str, Any]:
    return {"path": _utf8(source.path), "problem": source.problem or None,
            "lines": [{"line": one.line, "cell": one.cell or None, "result": kind(one), "verdict": one.verdict,
                       "name": _utf8(one.name), "why": one.why} for one in findings]}


def job_document(job: Job, config: str, folder: str) -> dict[str, Any]:
    return {"path": _utf8(job.path), "line": job.line, "cell": job.cell or None, "directory": _utf8(folder),
            "words": [_utf8(word) for group in words_of(job, config) for word in group],
            "shell": _utf8("\n".join(shell(job, config, ""))), "config": job.config,
            "notes": [_utf8(note) for note in job.notes], "variables": job.variables}


def _utf8(text: str) -> str:
    """A file's name may be no UTF-8, JSON has to be."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def config_names(jobs: list[Job]) -> list[str]:
    """A file for each job's configuration: debug.json of one, numbered where there are several."""
    count = sum(job.config is not None for job in jobs)
    number, found = 0, []
    for job in jobs:
        number += job.config is not None
        found.append("" if job.config is None else "debug.json" if count == 1 else f"debug-{number}.json")
    return found


def write(directory: str, jobs: list[Job], configs: list[str]) -> list[str]:
    """Writes the configurations and commands.sh; what lies there and is not the same is never replaced. Returns
    the files' names. Raises WriteError."""
    files = {name: json.dumps(job.config, indent=2) + "\n" for name, job in zip(configs, jobs, strict=True) if name}
    lines = ["#!/bin/bash", "# Written by tdbg migrate: each job of the programs it read, as a command.",
             'here=$(cd "$(dirname "$0")" && pwd)', ""]
    for job, config in zip(jobs, configs, strict=True):
        folder = os.path.relpath(os.path.realpath(os.path.dirname(job.path) or "."), os.path.realpath(directory))
        back = os.path.relpath(os.path.realpath(directory), os.path.realpath(os.path.dirname(job.path) or "."))
        where = f"cell {job.cell}, line {job.line}" if job.cell else f"line {job.line}"
        lines += [f"# {printable(job.path)}, {where}", f'(cd "$here"/{quoted(folder)} &&',
                  *shell(job, os.path.join(back, config)), ")", ""]
    files["commands.sh"] = "\n".join(lines)
    try:
        os.makedirs(directory, exist_ok=True)
        for name, text in files.items():
            path = os.path.join(directory, name)
            try:
                with open(path, encoding="utf-8", errors="surrogateescape") as file:
                    if file.read(len(text) + 1) != text:
                        raise WriteError(f"{path} is there and says something else; name another directory")
            except FileNotFoundError:
                continue
        for name, text in files.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
    except OSError as error:
        raise WriteError(f"{error.filename or directory}: {error.strerror}") from error
    return sorted(files)
