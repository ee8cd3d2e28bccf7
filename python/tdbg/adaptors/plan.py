"""The plan of a training that attaches itself: made by the command line, before anything is captured; and what the
environment says in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from .beside import Beside, environment
from .guard import say

PLAN_SECONDS = 60


class Resolved(NamedTuple):
    directory: str
    plan: str               # plan.json's text; "": the default
    beside: Beside          # what reads the run while it trains


def resolve_plan(directory: str | None = None, config: Any = None) -> Resolved:
    """Where a training is recorded and what of it, for `config`: made by `tdbg plan` in a process of its own.

    The schema, YAML and the rules live there and not in the training process. Without the command line the default
    plan is used (""), and a configuration is an error. One rank resolves, the others wait for its plan. It also starts
    what the configuration wants done while it trains, in processes beside it: judging by its rules (`tdbg watch`, as
    `tdbg run` does itself), TensorBoard's files, smdebug's layout.
    :raises ValueError: the configuration; the message names the key
    :raises FileNotFoundError: a configuration without a command line
    """
    if int(os.environ.get("RANK", "0") or 0) != 0:
        if directory is None:
            raise ValueError("attach: with several ranks, say which directory: dir=...")
        return Resolved(directory, _wait_for(os.path.join(directory, "plan.json")), Beside())
    tool = find_cli()
    if tool is None:
        if config is not None or os.environ.get("TDBG_CONFIG"):
            raise FileNotFoundError("a configuration needs the command line: set TDBG_CLI to the `tdbg` program")
        return Resolved(directory or os.path.join("tdbg-runs", time.strftime("run-%Y%m%d-%H%M%S")), "", Beside())
    command, text = [tool, "plan"], None
    if directory is not None:
        command += ["--dir", os.fspath(directory)]
    if isinstance(config, dict):
        command += ["--config", "-"]
        text = json.dumps(config)
    elif config is not None:
        command += ["--config", os.fspath(config)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PLAN_SECONDS, env=environment())
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or f"{tool} plan failed with {done.returncode}")
    if done.stderr:
        sys.stderr.write(done.stderr)       # of a configuration that is used: keys that were passed over
    answer = json.loads(done.stdout)
    with open(os.path.join(answer["directory"], "plan.json"), encoding="utf-8") as file:
        plan = file.read()
    beside = Beside()
    if answer.get("judge"):
        _start_watcher(tool, answer, config, beside)
    _start_exports(tool, answer, beside)
    return Resolved(answer["directory"], plan, beside)


def _start_watcher(tool: str, answer: dict[str, Any], config: Any, beside: Beside) -> None:
    """Judges by the rules of the configuration, and does at a finding what it says. Of the same configuration, and not
    of what the run has recorded of it, which lacks secrets (a webhook's)."""
    command, files = [tool, "watch", answer["directory"], "--launched", str(answer["attempt"])], []
    try:
        if isinstance(config, dict):
            files.append(os.memfd_create("configuration"))
            os.write(files[0], json.dumps(config).encode())
            command += ["--config", f"/proc/self/fd/{files[0]}"]
        elif config is not None:
            command += ["--config", os.fspath(config)]
        beside.start(command, files)
    except OSError as error:
        say(f"nothing judges this run: {error}; `tdbg watch {answer['directory']}` does, while it trains")
    finally:
        for file in files:
            os.close(file)


def _start_exports(tool: str, answer: dict[str, Any], beside: Beside) -> None:
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
            beside.start([*command, *arguments])
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


def write_earlier_steps(run: str, attempt: int) -> None:
    """Has the command line, which reads runs, write what an attempt is to know of the steps before it
    (earlier_steps.json). For an attempt that no launcher began, as where torchrun starts workers again. Where it
    cannot, the attempt goes by counts alone.
    """
    if (tool := find_cli()) is None:
        return
    try:
        subprocess.run([tool, "plan", "--dir", run, "--earlier-steps", str(attempt)], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PLAN_SECONDS, env=environment())
    except subprocess.SubprocessError as error:
        say(f"this attempt does not know of the earlier ones' evaluations: {error}")


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
