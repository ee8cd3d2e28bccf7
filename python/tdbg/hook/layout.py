"""smdebug's own files in a run's directory, as the run goes: events/, index/, collections/, and TensorBoard's.

Processes write them that read the run like anybody else (`tdbg export --follow`), at the lowest priority, so that a
step costs what it costs without them. For scripts of smdebug's only: the import package `smdebug` sets `wanted`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
import weakref
from typing import Any

from ..adaptors.plan import find_cli

logger = logging.getLogger("smdebug")

wanted = False
OFF = "TDBG_SMDEBUG_FILES"      # =0: only the run
FINISH_SECONDS = 60.0           # what close() waits for them; they go on by themselves afterwards
TENSORBOARD_CONFIG_FILE_PATH_ENV_STR = "TENSORBOARD_CONFIG_FILE_PATH"
DEFAULT_SAGEMAKER_TENSORBOARD_CONFIG = "/opt/ml/input/config/tensorboardoutputconfig.json"


def is_on() -> bool:
    return wanted and os.environ.get(OFF, "").strip().lower() not in ("0", "false", "off", "no")


def tensorboard(config: dict[str, Any]) -> dict[str, Any]:
    """In a SageMaker job the platform's own file decides, elsewhere the hook's parameters."""
    if os.environ.get("TRAINING_JOB_NAME"):
        path = os.environ.get(TENSORBOARD_CONFIG_FILE_PATH_ENV_STR, DEFAULT_SAGEMAKER_TENSORBOARD_CONFIG)
        try:
            with open(path, encoding="utf-8") as file:
                directory = json.load(file).get("LocalPath")
        except OSError:
            return {}
        return {"export_tensorboard": bool(directory), "tensorboard_dir": directory}
    return {"export_tensorboard": config["export_tensorboard"], "tensorboard_dir": config["tensorboard_dir"] or None}


_alive: weakref.WeakSet[Layout] = weakref.WeakSet()


class Layout:
    """The processes of one run. They end by themselves when the training is gone, however it went."""

    def __init__(self, directory: str, attempt: int, world_size: int, tensorboard_dir: str | None) -> None:
        self._alone = world_size == 1
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        tool = find_cli()
        if tool is None:
            logger.warning(
                "smdebug's own files (events, index, collections) are not written beside the run, because there "
                "is no `tdbg` program: set TDBG_CLI. create_trial reads the run itself"
            )
            return
        directory = os.path.realpath(directory)
        command = [tool, "export", directory, "--follow", "--quiet", "--attempt", str(attempt)]
        if self._alone:
            command.append("--launched")    # ends when this process closes its standard input, and not a second later
        self._start([*command, "--to", "smdebug", directory], "smdebug's files")
        if tensorboard_dir is not None:
            self._start([*command, "--to", "tensorboard", os.path.abspath(tensorboard_dir)], "TensorBoard's files")
        _alive.add(self)

    def _start(self, command: list[str], what: str) -> None:
        # What is launched must not think that it is a training to be watched.
        environment = {k: v for k, v in os.environ.items() if k not in ("TDBG_RUN", "TDBG_ATTEMPT", "PYTHONPATH")}
        try:
            self._processes[what] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                                     env=environment, start_new_session=True)
        except OSError as error:
            logger.warning("%s are not written: %s", what, error)

    def finish(self) -> None:
        """The run has ended: its files are there when this returns, unless that takes longer than a minute. Other
        workers of the run may go on, and wait for this one: then its files are whole a second or two after the last has
        ended."""
        self.let_go()
        deadline = time.monotonic() + FINISH_SECONDS
        for what, process in self._processes.items() if self._alone else ():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("%s are still being written, by process %d", what, process.pid)

    def let_go(self) -> None:
        """Closes what says that the training lives."""
        for process in self._processes.values():
            assert process.stdin is not None
            try:
                process.stdin.close()
            except OSError:         # it has ended
                pass


def _in_child() -> None:
    # A forked process (a DataLoader's worker) that outlives the training's end would keep the exports waiting.
    for layout in list(_alive):
        layout.let_go()
    _alive.clear()


os.register_at_fork(after_in_child=_in_child)
