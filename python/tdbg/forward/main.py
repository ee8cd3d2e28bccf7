"""`tdbg forward RUN --to TRACKER`: follows a run and sends its losses, chosen statistics and verdicts to trackers."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

if TYPE_CHECKING:
    from tdbg.forward.trackers import Tracker, Values
    from tdbg.reading.trial import Trial

_LOOK_SECONDS = 1.0
_VERDICT_SECONDS = 30.0  # until the watcher has judged the last steps of a training that has ended
_ENDED = ("Completed", "Failed", "Stopped")


class Statuses:
    """Rules' statuses, read from the run's events."""

    def __init__(self, run: str) -> None:
        self._path = os.path.join(run, "events.jsonl")
        self._position = 0
        self._rest = b""
        self.job = ""  # its status; empty: nobody launched it

    def news(self) -> list[tuple[str, str, str, int]]:
        """(rule, status, details, step) of each new status."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            try:
                event: Any = json.loads(line)
                if event["kind"] == "rule_status":
                    found.append((str(event["name"]), str(event["status"]), str(event["details"]),
                                  int(event["global_step"])))
                elif event["kind"] == "state_change":
                    self.job = str(event["event"]["detail"]["TrainingJobStatus"])
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # torn, or not an event: all readers of events skip such lines
        return found


class Forwarder:
    """One run, sent to some trackers."""

    def __init__(self, trial: Trial, trackers: list[Tracker], options: argparse.Namespace) -> None:
        self._trial = trial
        self._trackers = trackers
        self._options = options
        self._statuses = Statuses(trial.path)
        self._next = 0  # the first global step that was not sent
        self._said: dict[str, tuple[str, str]] = {}

    def look(self) -> None:
        """Sends the new steps and statuses."""
        self._trial.refresh()
        last = self._trial.last_complete_step
        if last >= self._next:
            steps: dict[int, Values] = {}
            for collection in self._options.collection:
                if self._trial.tensor_names(collection=collection):  # none yet, or never
                    self._take(steps, (self._next, last + 1), ["value"], tensors=collection)
            if self._options.tensors:
                self._take(steps, (self._next, last + 1), self._options.fields, regex=self._options.tensors)
            for step in sorted(steps):
                if step % self._options.every == 0:
                    for tracker in self._trackers:
                        tracker.log(step, steps[step])
            self._next = last + 1
        for rule, status, details, step in self._statuses.news():
            if self._said.get(rule) == (status, details):
                continue
            self._said[rule] = (status, details)
            for tracker in self._trackers:
                tracker.verdict(rule, status, details, step)

    def _take(self, steps: dict[int, Values], which: tuple[int, int], fields: list[str], **chosen: Any) -> None:
        frame = self._trial.frame(fields=fields, steps=which, **chosen)
        for field in fields:
            for name, step, value in zip(frame["tensor"], frame.step.tolist(), frame[field].tolist(), strict=True):
                if field == "value" and value != value and not self._is_number(name):
                    continue
                steps.setdefault(step, {})[name if field == "value" else f"{name}/{field}"] = value

    def _is_number(self, name: str) -> bool:
        shape = self._trial.tensor(name).shape
        return all(size == 1 for size in shape or ())

    def follow(self) -> None:
        """Sends until the run has ended and its rules are decided."""
        patience = 0.0
        while True:
            over = self._trial.loaded_all_steps
            self.look()
            if over:
                patience += _LOOK_SECONDS
                undecided = any(status == "InProgress" for status, _ in self._said.values())
                waits = undecided if not self._statuses.job else self._statuses.job not in _ENDED
                if not waits or patience > _VERDICT_SECONDS:
                    self.look()
                    return
            time.sleep(_LOOK_SECONDS)


def main(words: list[str]) -> int:
    """The command; its flags were checked by `tdbg forward`."""
    parser = argparse.ArgumentParser("tdbg forward")
    parser.add_argument("run")
    parser.add_argument("--to", action="append", required=True)
    parser.add_argument("--tensors", default="")
    parser.add_argument("--collection", action="append")
    parser.add_argument("--fields", type=lambda text: text.split(","), default=["mean_abs"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--project", default="tdbg")
    parser.add_argument("--name")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args(words)
    options.collection = options.collection or ["losses", "metrics"]

    from tdbg.errors import TdbgError
    from tdbg.forward.trackers import TRACKERS, library
    from tdbg.reading.trial import open as open_run

    trackers: list[Tracker] = []
    try:
        for name in options.to:
            library(name)  # all of them, before a run is begun in any
        trial = open_run(options.run)
        settings = {"run": trial.path}
        trackers = [TRACKERS[name](options.project, options.name or trial.name, settings) for name in options.to]
        forwarder = Forwarder(trial, trackers, options)
        if options.follow:
            forwarder.follow()
        else:
            forwarder.look()
        for tracker in trackers:
            tracker.finish(True)
        return 0
    except (TdbgError, ImportError) as error:
        print(f"tdbg: forward: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("tdbg: forward: interrupted; the run is not touched", file=sys.stderr)
    except Exception as error:  # any error of a tracker's library: its server, credentials, limits
        from tdbg.words import error_text

        print(f"tdbg: forward: {error_text(error)}", file=sys.stderr)
    for tracker in trackers:
        try:
            tracker.finish(False)
        except Exception:  # it has failed before, and that was said
            continue
    return 1


if __name__ == "__main__":
    sys.path[0] = _HOME  # and not this folder, whose modules have common names
    sys.exit(main(sys.argv[1:]))
