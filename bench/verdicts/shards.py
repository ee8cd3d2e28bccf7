"""Runs cases side by side, each in a process of its own, and goes on where an earlier go was cut off.

What a case comes to is one JSON file, written whole or not at all by the case's own process. A case whose file is there, with the
key that it would have now, is not done again. One whose process ends without its file has crashed: that costs this case and
nothing else, is said of it wherever results are counted, and is tried again by the next go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """`name` is the result's file; `key` is whatever the result depends on; `do` is called in the process of its own."""

    name: str
    key: str
    do: Callable[[], Result]


class Progress:
    """On a terminal one line that is written over; otherwise a line for each case. `wrong` are shown on both."""

    def __init__(self, of: int, there: int, out: TextIO | None = None) -> None:
        self.of, self.done, self.there = of, there, there
        self.out = out or sys.stdout
        self.began, self.terminal = time.monotonic(), self.out.isatty()

    def left(self) -> str:
        now = self.done - self.there
        if not now:
            return ""
        seconds = (time.monotonic() - self.began) / now * (self.of - self.done)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"

    def show(self, running: list[str]) -> None:
        if self.terminal:
            line = f"{self.done} of {self.of}{self.left()}; running: {', '.join(running)}"
            self.out.write("\r\x1b[K" + line[:os.get_terminal_size(self.out.fileno()).columns - 1])
            self.out.flush()

    def ended(self, line: str, wrong: bool) -> None:
        self.done += 1
        if self.terminal:
            self.out.write("\r\x1b[K" + (line + "\n" if wrong else ""))
        else:
            self.out.write(f"[{self.done} of {self.of}{self.left()}] {line}\n")
        self.out.flush()


def whole(folder: pathlib.Path, job: Job) -> Result | None:
    """The result of an earlier go, if it is this job's as it is now."""
    try:
        kept = json.loads((folder / f"{job.name}.json").read_text())
    except (OSError, ValueError):
        return None
    return kept["result"] if isinstance(kept, dict) and kept.get("key") == job.key else None


def write(path: pathlib.Path, value: Any) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(value, indent=1))
    beside.replace(path)


def _do(folder: pathlib.Path, job: Job) -> None:
    # What is printed belongs to the case: a hundred of them side by side would be read by nobody.
    said = os.open(folder / f"{job.name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        write(folder / f"{job.name}.json", {"key": job.key, "result": job.do()})
    except BaseException:
        sys.stdout.flush()
        os.write(2, traceback.format_exc().encode())
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _outcome(folder: pathlib.Path, job: Job, code: int | None, late: bool) -> Result:
    """Of a process that has ended: its result, or why there is none."""
    with contextlib.suppress(OSError, ValueError):
        if code == 0 and not late:
            return json.loads((folder / f"{job.name}.json").read_text())["result"]
    (folder / f"{job.name}.json").unlink(missing_ok=True)
    how = "it took too long" if late else f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    said = (folder / f"{job.name}.log").read_text(errors="replace").strip() if (folder / f"{job.name}.log").exists() else ""
    return {"crashed": f"{how}: {said.splitlines()[-1][-300:]}" if said else how}


def _end(process: Any) -> None:
    """The process and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def run_all(jobs: list[Job], folder: pathlib.Path, at_once: int, fresh: bool = False, limit: float = 1800,
            told: Callable[[Job, Result], tuple[str, bool]] = lambda job, result: (job.name, "crashed" in result),
            out: TextIO | None = None) -> dict[str, Result]:
    """Results by name; one that crashed is `{"crashed": why}`. `told` gives a case's line and whether it is to be looked at. The
    processes are forked, so nothing may have started a thread. Interrupted, it ends what it started and raises."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {} if fresh else {job.name: found for job in jobs if (found := whole(folder, job)) is not None}
    waiting = [job for job in jobs if job.name not in results]
    progress, fork = Progress(len(jobs), len(results), out), multiprocessing.get_context("fork")
    running: dict[int, tuple[Job, Any, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                (folder / f"{job.name}.json").unlink(missing_ok=True)
                process = fork.Process(target=_do, args=(folder, job))
                process.start()
                running[process.sentinel] = job, process, time.monotonic() + limit
            progress.show([job.name for job, _, _ in running.values()])
            ended = multiprocessing.connection.wait(list(running), timeout=1)
            for sentinel, (job, process, until) in list(running.items()):
                late = sentinel not in ended and time.monotonic() > until
                if sentinel in ended or late:
                    del running[sentinel]
                    _end(process)
                    results[job.name] = _outcome(folder, job, process.exitcode, late)
                    progress.ended(*told(job, results[job.name]))
    finally:
        for _, process, _ in running.values():
            _end(process)
    return {job.name: results[job.name] for job in jobs}
