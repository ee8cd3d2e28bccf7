"""A training that is held between two steps, because a breakpoint asked for it (`tdbg break RUN ... --then pause`).

Who holds sleeps on the training's thread. It goes on when `tdbg continue` asks for it, when the time limit that came
with the request has passed by this process's own clock (whoever asked may have died), when the job is asked to stop,
or when a signal arrives for which the script has a handler: that one may set a flag that the next step looks at.

While it holds, `held.json` lies in the worker's directory: what is put into the run between two steps becomes visible
with the next step only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from typing import Any

from .guard import say

TOPIC = "hold"
HELD = "held.json"
CONTROL, PAGE = "control", 4096     # docs/format.md, "The control file"
POLL_SECONDS = 0.1
LONGEST_SECONDS = 7 * 24 * 3600
#: What ends a process or tells it something. Others (SIGCHLD of a data loader) do not concern who is held.
_ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def hold(run: Any, request: dict[str, Any], rank: int = 0, world_size: int = 1) -> None:
    """Holds the training as long as `request` says. :param run: its control file and directory, its step"""
    limit = request.get("seconds")
    seconds = min(float(limit), LONGEST_SECONDS) if isinstance(limit, (int, float)) and limit > 0 else 600.0
    control = _Control(os.path.join(run.directory, CONTROL), str(request.get("id")))
    if control.says_go_on():
        return              # a rank that comes late, perhaps because it waited for one that was held
    step, at_step = int(run.global_step), request.get("at_step")
    asked = request.get("wall_nanos")
    if (
        world_size > 1
        and isinstance(at_step, int)
        and step > at_step
        and isinstance(asked, int)
        and time.time_ns() > asked + seconds * 1e9
    ):
        return              # the others held without it, and have gone on
    because = str(request.get("because") or "")[:500]
    words = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    say(f"held after step {step}, for {words} at most{': ' if because else ''}{because}; tdbg continue "
        f"{os.path.basename(run.directory)} lets it go on")
    mark = os.path.join(run.directory, str(run.attempt), f"worker_{rank}", HELD)
    began = time.monotonic()
    _write(mark, {"after_step": step, "seconds": round(seconds), "wall_nanos": time.time_ns(), "because": because,
                  "id": request.get("id"), "pid": os.getpid()})
    try:
        why = _wait(control, began + seconds)
    finally:
        try:
            os.unlink(mark)
        except OSError:
            pass
    held = time.monotonic() - began
    say(f"goes on after step {step}, held for {held:.1f} s: {why}")
    run.put_context(TOPIC, json.dumps({"after_step": step, "seconds": round(held, 3), "ended_by": why,
                                       "id": request.get("id"), "because": because}))


def _wait(control: _Control, end: float) -> str:
    with _Signals() as signals:
        while (left := end - time.monotonic()) > 0:
            if signals.wait(min(left, POLL_SECONDS)):
                return "a signal came"
            if control.says_go_on():
                return control.why
    return "the time is over"


class _Control:
    """The control file from a request on. Not the run's own reader of it: that gives a request only at its step."""

    def __init__(self, path: str, since: str) -> None:
        self._path, self._since = path, since
        self._size = -1
        self.why = ""

    def says_go_on(self) -> bool:
        try:
            size = os.path.getsize(self._path)
            if size == self._size:
                return False
            with open(self._path, "rb") as file:
                file.seek(PAGE)
                lines = file.read().split(b"\n")
        except OSError:
            return False
        self._size = size
        found = False
        for line in lines[:-1]:         # what has no line end yet is not complete
            try:
                request = json.loads(line)
            except ValueError:
                continue
            if not isinstance(request, dict):
                continue
            if request.get("id") == self._since:
                found = True
            elif found and request.get("action") in ("continue", "stop", "interrupt"):
                self.why = "it was asked to" if request["action"] == "continue" else "the job is asked to stop"
                return True
        return False


class _Signals:
    """Notices signals that a handler of the script's has got. Python goes on sleeping after it has called one. Only
    the main thread gets them, and only it may ask for this."""

    def __enter__(self) -> _Signals:
        self._read = -1
        if threading.current_thread() is threading.main_thread():
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)
            self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def wait(self, seconds: float) -> bool:
        if self._read < 0:
            time.sleep(seconds)
            return False
        ready, _, _ = select.select([self._read], [], [], seconds)
        if not ready:
            return False
        numbers = os.read(self._read, 4096)
        if self._before >= 0:           # somebody else's, as asyncio's, hears of them all the same
            try:
                os.write(self._before, numbers)
            except OSError:
                pass
        return bool(_ENDS & set(numbers))

    def __exit__(self, *_: object) -> None:
        if self._read >= 0:
            signal.set_wakeup_fd(self._before)
            os.close(self._read)
            os.close(self._write)


def _write(path: str, document: dict[str, Any]) -> None:
    """Whole or not at all. A mark that cannot be written costs those who look, not the training."""
    unfinished = f"{path}.{os.getpid()}"
    try:
        mode = 0o600 | os.stat(os.path.dirname(path)).st_mode & 0o066
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(unfinished, flags, mode), "wb") as file:
            file.write(json.dumps(document).encode() + b"\n")
        os.replace(unfinished, path)
    except OSError as error:
        say(f"who looks at the run cannot see that it is held: {error.strerror or error}: {path}")
