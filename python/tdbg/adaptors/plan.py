"""The plan of a training that attaches itself: made by the command line, before anything is captured; and what the
environment says in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from .guard import say

PLAN_SECONDS = 60

_exports: list[subprocess.Popen[bytes]] = []  # kept: their standard input tells them that this process lives


def resolve_plan(directory: str | None = None, config: Any = None) -> tuple[str, str]:
    """(run directory, plan.json's text) for `config`, made by `tdbg plan` in a process of its own.

    The schema, YAML and the rules live there and not in the training process. Without the command line the default
    plan is used (""), and a configuration is an error. One rank resolves, the others wait for its plan.
    :raises ValueError: the configuration; the message names the key
    :raises FileNotFoundError: a configuration without a command line
    """
    if int(os.environ.get("RANK", "0") or 0) != 0:
        if directory is None:
            raise ValueError("attach: with several ranks, say which directory: dir=...")
        return directory, _wait_for(os.path.join(directory, "plan.json"))
    tool = find_cli()
    if tool is None:
        if config is not None:
            raise FileNotFoundError("a configuration needs the command line: set TDBG_CLI to the `tdbg` program")
        return directory or os.path.join("tdbg-runs", time.strftime("run-%Y%m%d-%H%M%S")), ""
    command, text = [tool, "plan"], None
    if directory is not None:
        command += ["--dir", os.fspath(directory)]
    if isinstance(config, dict):
        command += ["--config", "-"]
        text = json.dumps(config)
    elif config is not None:
        command += ["--config", os.fspath(config)]
    # The helper must not think that it is a training process to be watched.
    environment = {k: v for k, v in os.environ.items() if k not in ("TDBG_RUN", "TDBG_ATTEMPT", "PYTHONPATH")}
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PLAN_SECONDS, env=environment)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"{tool} plan failed with {done.returncode}")
    answer = json.loads(done.stdout)
    directory = answer["directory"]
    _start_exports(tool, answer, environment)
    with open(os.path.join(directory, "plan.json"), encoding="utf-8") as file:
        return directory, file.read()


def _start_exports(tool: str, answer: dict[str, Any], environment: dict[str, str]) -> None:
    """What the configuration wants written while it trains (TensorBoard's files, smdebug's layout) is written by
    processes that read the run like anybody else. They end when this process is gone: it holds their standard input."""
    for arguments in answer.get("exports", ()):
        command = [
            tool,
            "export",
            answer["directory"],
            "--follow",
            "--launched",
            "--quiet",
            "--attempt",
            str(answer["attempt"]),
        ]
        try:
            _exports.append(subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                             env=environment, start_new_session=True))
        except OSError as error:
            say(f"{arguments[1]} files will not be written: {error}")


def _wait_for(path: str) -> str:
    deadline = time.monotonic() + PLAN_SECONDS
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 has not written a plan within {PLAN_SECONDS} s: {path}")
        time.sleep(0.05)
    with open(path, encoding="utf-8") as file:
        return file.read()


def find_cli() -> str | None:
    """The `tdbg` program: beside the package, $TDBG_CLI, or on the PATH. None if there is none."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.join(package, "bin", "tdbg")
    if os.access(beside, os.X_OK):
        return beside
    return os.environ.get("TDBG_CLI") or shutil.which("tdbg")


def asked_steps(variable: str, plan: Mapping[str, Any], key: str) -> int:
    """A number of steps: the environment's, or else the plan's. 0: nothing. What is no number is said."""
    text = os.environ.get(variable, "")
    if text and not (text.isascii() and text.isdigit()):
        say(f"${variable}: found {text!r}, expected a number of steps; it is left out")
        text = ""
    return int(text or plan.get(key, 0))
