"""smdebug's own files in a run's directory, as the run goes: events/, index/, collections/, and TensorBoard's.

Processes write them that read the run like anybody else (`tdbg export --follow`), at the lowest priority, so that a
step costs what it costs without them. For scripts of smdebug's only: the import package `smdebug` sets `wanted`.
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from typing import Any

from ..adaptors.beside import Beside, wait
from ..adaptors.plan import find_cli

logger = logging.getLogger("smdebug")

wanted = False
OFF = "TDBG_SMDEBUG_FILES"      # =0: only the run
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

    def __init__(self, directory: str, attempt: int, world_size: int, tensorboard_dir: str | None,
                 launched: bool) -> None:
        self._alone = world_size == 1
        self._beside = Beside()
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
        # A launcher knows whether another attempt comes; else this process is all of the job.
        end = ["--no-end"] if launched else []
        self._start([*command, *end, "--to", "smdebug", directory], "smdebug's files")
        if tensorboard_dir is not None:
            self._start([*command, "--to", "tensorboard", os.path.abspath(tensorboard_dir)], "TensorBoard's files")
        _alive.add(self)

    def _start(self, command: list[str], what: str) -> None:
        try:
            self._beside.start(command)
        except OSError as error:
            logger.warning("%s are not written: %s", what, error)

    def finish(self) -> None:
        """The run has ended: its files are there when this returns, unless that takes longer than a minute. Other
        workers of the run may go on, and wait for this one: then its files are whole a second or two after the last has
        ended."""
        processes = self._beside.let_go()
        for late in wait(processes) if self._alone else ():
            logger.warning("files beside the run are still being written, by process %d", late)

    def leave(self) -> None:
        """In a forked process (a DataLoader's worker), whose life is not the training's."""
        self._beside.leave()


def _in_child() -> None:
    for layout in list(_alive):
        layout.leave()
    _alive.clear()


os.register_at_fork(after_in_child=_in_child)
