"""`tdbg migrate PATH...`: what of a team's programs runs here, line by line, and the commands that start them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

if TYPE_CHECKING:
    from tdbg.migrate.jobs import Job
    from tdbg.migrate.scan import Finding
    from tdbg.migrate.sources import Source

OK, CHANGES, USAGE, NOT_FOUND, REFUSED = 0, 1, 2, 4, 6
_QUIET_SECONDS = 1.0  # until it is said how far it is, and between two such lines
_LARGEST_ENTRY = 4 << 20  # bytes of an entry point that are looked through for names of variables


class Progress:
    """On a terminal, how many files were read; nothing elsewhere, and nothing where it is quick."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_SECONDS
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def __call__(self, count: int) -> None:
        now = time.monotonic()
        if self._terminal and now >= self._next:
            self._next = now + _QUIET_SECONDS
            self._shown = True
            print(f"\r{count} files looked at", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _entry_text(path: str) -> str | None:
    """Of the script that a job starts. It is not executed either."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(_LARGEST_ENTRY).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def judge(source: Source) -> tuple[list[Finding], list[Job]]:
    """What is in one file."""
    from tdbg.migrate import documents, jobs
    from tdbg.migrate.scan import scan

    if source.kind == ".json":
        if not source.pieces:
            return [], []
        started = []
        if jobs.is_request(source.document):
            started.append(jobs.of_request(source.path, source.document, _entry_text))
        return documents.read(source.pieces[0].text, source.document), started
    program = scan(source.pieces)
    return program.findings, [jobs.of_call(source.path, call, program.fits.get(id(call)), _entry_text)
                              for call in program.jobs]


def _checked(paths: list[str]) -> tuple[int, str]:
    """An exit code and why, of paths that cannot be meant."""
    from tdbg.migrate.report import printable
    from tdbg.migrate.sources import SUFFIXES

    for path in paths:
        if not os.path.lexists(path):
            return NOT_FOUND, f"{printable(path)}: no such file or directory"
        if not os.path.isdir(path) and not path.endswith(SUFFIXES):
            return USAGE, f"{printable(path)}: neither a directory nor a file in {', '.join(SUFFIXES)}"
    return OK, ""


def _look(options: argparse.Namespace, say: Callable[[list[str]], None]) -> int:
    from tdbg.migrate import report
    from tdbg.migrate.sources import read_all

    progress, text = Progress(), report.Text(options.colour, options.changes)
    links: list[str] = []
    files: list[dict[str, Any]] = []
    started: list[Job] = []
    read = concerned = 0
    for source in read_all(options.paths, links, progress):
        read += 1
        findings: list[Finding] = []
        found: list[Job] = []
        if source.concerned and not source.problem:
            try:
                findings, found = judge(source)
            except RecursionError:
                source.problem = "nested too deeply"
        text.count(source, findings)
        if not findings and not found and not source.problem:
            continue
        concerned += 1
        started += found
        if options.json:
            files.append(report.document(source, findings))
        else:
            progress.clear()
            say(text.file(source, findings))
    progress.clear()
    configs = report.config_names(started)
    written = report.write(options.write, started, configs) if options.write else []
    folders = [os.path.dirname(job.path) or "." for job in started]
    shown = [os.path.relpath(os.path.join(options.write, config), folder) if options.write and config else config
             for config, folder in zip(configs, folders, strict=True)]
    if options.json:
        say([json.dumps({"files": files, "read": read, "concerned": concerned, "counts": text.counts,
                         "links_not_followed": [report.printable(link) for link in links],
                         "jobs": [report.job_document(*one) for one in zip(started, shown, folders, strict=True)],
                         "written": written}, ensure_ascii=True)])
    else:
        for job, config, folder in zip(started, shown, folders, strict=True):
            say(text.job(job, config, folder))
        if any(configs) and not options.write:
            say(["With --write DIR, tdbg migrate writes the files that --config names, and these commands, into DIR.",
                 ""])
        if links:
            say([f"{len(links)} links to directories were not followed", ""])
        if written:
            say([report.printable(f"written to {options.write}: {', '.join(written)}"), ""])
        say(text.summary(read, concerned))
    changed = sum(count for what, count in text.counts.items() if what != report.RUNS)
    return CHANGES if changed else OK


def main(words: list[str]) -> int:
    """The command; its flags were checked by `tdbg migrate`."""
    parser = argparse.ArgumentParser("tdbg migrate")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--write", default="")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--colour", action="store_true")
    options = parser.parse_args(words)

    from tdbg.migrate.report import WriteError

    def say(lines: list[str]) -> None:
        for line in lines:
            sys.stdout.write(line + "\n")

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    code, why = _checked(options.paths)
    if code:
        print(f"tdbg: migrate: {why}", file=sys.stderr)
        return code
    try:
        code = _look(options, say)
        sys.stdout.flush()
        return code
    except WriteError as error:
        print(f"tdbg: migrate: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:  # of standard output: a reader that went away, a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter tries once more at its end
        print(f"tdbg: migrate: standard output: {error.strerror}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("tdbg: migrate: interrupted; nothing was changed", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.path[0:0] = [_HOME]
    sys.exit(main(sys.argv[1:]))
