"""The process in which one rule written in Python judges one run. Started by tdbg; docs/custom-rules.md.

Standard input is a socket: questions come and answers go as JSON objects, one a line. What the rule prints goes to our
standard output and error, which tdbg keeps.
"""

from __future__ import annotations

import collections
import fcntl
import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tdbg.rules.view import JudgedTrial

#: One object of the conversation.
Message = dict[str, Any]

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PACKAGE = os.path.join(_HOME, "tdbg") + os.sep
_ROOM = 640  # of the 1024 characters of a StatusDetails, for where an exception came from


class Socket:
    """Whole lines in, whole lines out. A thread reads, so that steps that wait are known, and so that a rule that
    computes for ever ends when tdbg is gone."""

    def __init__(self) -> None:
        self._fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 64)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        self._lines: collections.deque[Message] = collections.deque()
        self._news = threading.Condition()
        self._closed = False
        self._idle = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                got = os.read(self._fd, 1 << 16)
            except OSError:
                got = b""
            *lines, rest = (rest + got).split(b"\n")
            with self._news:
                self._lines.extend(json.loads(line) for line in lines)
                self._closed = not got
                self._news.notify()
                if self._closed and not self._idle:
                    os._exit(0)  # nobody is there to hear the answer
            if not got:
                return

    def next(self) -> Message | None:
        """The next message, None at the end."""
        with self._news:
            self._idle = True
            while not self._lines and not self._closed:
                self._news.wait()
            self._idle = False
            return self._lines.popleft() if self._lines else None

    def waiting(self) -> list[Message]:
        """Messages that have come and were not taken yet."""
        with self._news:
            return list(self._lines)

    def answer(self, message: Message) -> None:
        """Says it. A text may hold half of a surrogate pair (a file's name that is no UTF-8), which JSON cannot."""
        data = (json.dumps(message, ensure_ascii=False) + "\n").encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data):]


def words(error: BaseException, at: str) -> str:
    """An exception as a StatusDetails: what and where, innermost frames kept, ours left out."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_PACKAGE)]
    lines = []
    for frame in frames:
        text = f'\n  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        lines.append(text + (f"\n    {frame.line}" if frame.line else ""))
    while len(lines) > 1 and sum(map(len, lines)) > _ROOM:
        lines.pop(0)
    message = str(error)
    if len(message) > 200:
        message = message[:200] + "..."
    return f"{type(error).__name__}{': ' if message else ''}{message} {at}" + "".join(lines)


class Judge:
    """One rule over one run."""

    def __init__(self, message: Message) -> None:
        from tdbg import _trial
        from tdbg.rules import load, view

        self._view = view
        cls: Any = load.load(message["file"], message["class"])
        self._native = load.is_native(cls)
        judged = view.JudgedTrial if self._native else view.SmdebugJudgedTrial
        self.trial: JudgedTrial = judged(_trial.open(message["run"], message["attempt"], 0))
        self.raw = self.trial.up_to
        self.raw.refresh()
        self._step: view.Step | None = None
        parameters = dict(message["parameters"])
        others = _other_trials(parameters)
        if self._native:
            self._frames = view.Frames(self.raw._whole, self.raw.lost, self.raw.refresh)
            self._rule = cls._make(parameters)
            self._rule.setup()
        else:
            self._rule = _smdebug_rule(cls, self.trial, others, parameters)

    def lost(self, message: Message) -> None:
        """A worker was declared lost: from that step on it is not there, until a later attempt begins."""
        self.raw.lost.add(message["attempt"], message["worker"], message["from_step"])

    def step(self, message: Message, waiting: list[Message]) -> Message:
        """The answer about one step.

        :param waiting: messages that have come behind it
        """
        step = message["step"]
        self.raw.lost.judged(step, message["attempt"])
        self.raw.show_attempt(message["attempt"])
        if step > self.raw._newest or not self._complete(step):
            self.raw.refresh()
        self.raw.shown = step
        if not self._native:
            return self._smdebug_step(step)
        self._frames.due = [step] + [m["step"] for m in waiting if m["op"] == "step"]
        self._step = self._view.Step(self.trial, self._frames, message)
        return self._said(self._rule.judge(self._step))

    def end(self) -> Message:
        """The answer at the end of the run."""
        self.raw.refresh()
        self.raw.ended = True
        if self._native and self._step is not None:
            return self._said(self._rule.at_end(self._step))
        return {"judged": "not_due"}

    def _said(self, said: object) -> Message:
        from tdbg.rules.rule import findings_of

        judged, findings = findings_of(said)
        if judged == "judged" and not findings and self._step is not None and self._step.incomplete:
            judged = "incomplete"
        return {"judged": judged, "findings": [finding._message() for finding in findings]}

    def _complete(self, step: int) -> bool:
        info = self.raw._whole.step(step)
        return info is not None and info.complete

    def _smdebug_step(self, step: int) -> Message:
        from tdbg import errors
        from tdbg.compat.exceptions import RuleEvaluationConditionMet

        try:
            self._rule.invoke(step)
        except (errors.TensorUnavailableForStep, errors.StepUnavailable, errors.TensorUnavailable, errors.NoMoreData):
            return {"judged": "not_due"}
        except RuleEvaluationConditionMet:
            return {"judged": "judged", "findings": [{}]}
        return {"judged": "judged", "findings": []}


# What the launcher and the engine read; a constructor is given the rest.
_NOT_THE_RULES = ("rule_to_invoke", "start_step", "end_step", "base_trial", "source_s3_uri")


def _other_trials(parameters: dict[str, str]) -> list[Any]:
    """Takes other_trials (paths, by commas) and SageMaker's other_trial_0, _1, ... out of the parameters, opened."""
    paths = [p.strip() for p in parameters.pop("other_trials", "").split(",") if p.strip()]
    numbered = [key for key in parameters if key.startswith("other_trial_") and key[12:].isdigit()]
    paths += [parameters.pop(key) for key in sorted(numbered, key=lambda key: int(key[12:]))]
    if not paths:
        return []
    from tdbg.compat.trial import create_trial

    return [create_trial(path, timeout=60) for path in paths]


def _smdebug_rule(cls: Any, trial: Any, others: list[Any], parameters: dict[str, str]) -> Any:
    import inspect

    keywords: dict[str, Any] = {key: value for key, value in parameters.items()
                                if key not in (*_NOT_THE_RULES, "action_json")}
    takes = inspect.signature(cls.__init__).parameters
    anything = any(p.kind == p.VAR_KEYWORD for p in takes.values())
    if "other_trials" in takes or (others and anything):
        keywords["other_trials"] = others
    if "action_str" in takes:
        keywords["action_str"] = ""  # actions are the watcher's
    rule = cls(trial, **keywords)
    if not hasattr(rule, "req_tensors"):
        raise TypeError(f"{cls.__name__}.__init__ does not call super().__init__(base_trial)")
    return rule


def main() -> None:
    """Answers until the questions end."""
    socket = Socket()
    sys.path[0] = _HOME  # and not this folder, whose modules have common names
    from tdbg.rules.load import Refused

    judge: Any = None  # a Judge, from "judge" on
    at = "while it started"
    try:
        while (message := socket.next()) is not None:
            op = message["op"]
            if op == "describe":
                from tdbg.rules import load

                socket.answer(load.description(load.load(message["file"], message["class"]), message["parameters"]))
            elif op == "judge":
                judge = Judge(message)
                socket.answer({"ready": True})
            elif op == "worker_lost":
                judge.lost(message)
            else:
                at = "at the end of the run" if op == "end" else f"at step {message['step']}"
                answer = judge.end() if op == "end" else judge.step(message, socket.waiting())
                socket.answer(answer)
                if answer.get("findings"):
                    return
    except Refused as refused:
        socket.answer({"error": str(refused)})
    except BaseException as error:  # SystemExit, KeyboardInterrupt and MemoryError, too, are the rule's doing
        text = words(error, at)
        traceback.print_exception(error)
        socket.answer({"error": text})


if __name__ == "__main__":
    main()
