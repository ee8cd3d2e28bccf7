"""smdebug's state beside a job's checkpoints: which step a job that is started again goes on from.

    <checkpoint directory>/metadata.json    an array; the element with the highest step seen counts
    [{"training-run": 0, "latest-global-step-saved": 5, "latest-global-step-seen": 6, "latest-mode-step": {"TRAIN": 5}}]

The directory is what the JSON file at $CHECKPOINT_CONFIG_FILE_PATH calls `LocalPath`, else that of `tdbg run
--checkpoint-dir`; without either nothing here does anything. A state is written when the checkpoint files are not what
they were, so that it tells of a step that a checkpoint exists for.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from ..places import write_whole
from ..resume import checkpoint_directory

CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR = "CHECKPOINT_CONFIG_FILE_PATH"
DEFAULT_CHECKPOINT_CONFIG_FILE = "/opt/ml/input/config/checkpointconfig.json"
CHECKPOINT_DIR_KEY = "LocalPath"
METADATA_FILENAME = "metadata.json"
METADATA_FILENAME_S3_UPLOADED = "metadata.json.sagemaker-uploaded"
TRAINING_RUN = "training-run"
LATEST_GLOBAL_STEP_SAVED = "latest-global-step-saved"
LATEST_GLOBAL_STEP_SEEN = "latest-global-step-seen"
LATEST_MODE_STEP = "latest-mode-step"

_MOST_STATES = 100      # of the file, which is written as a whole

logger = logging.getLogger("smdebug")


class StateStore:
    """Never raises: what cannot be read or written is a warning, and the job starts, or is started again, from 0."""

    def __init__(self) -> None:
        self._directory = _checkpoint_directory()
        self._states: list[dict[str, Any]] = []
        if self._directory is not None:
            self._states = _read(os.path.join(self._directory, METADATA_FILENAME))
            self._files = self._look(self._directory)

    @property
    def directory(self) -> str | None:
        """Of the job's checkpoints; None: this job keeps none."""
        return self._directory

    _checkpoint_dir = directory     # smdebug's name

    def get_last_saved_state(self) -> dict[str, Any] | None:
        """The state with the highest step seen, or None."""
        return self._states[-1] if self._states else None

    def is_checkpoint_updated(self) -> bool:
        """Are the checkpoint files other ones than at the last call (than when this object was made)?"""
        if self._directory is None:
            return False
        before, self._files = self._files, self._look(self._directory)
        return bool(self._files) and self._files != before

    def update_state(self, ts_state: dict[str, Any]) -> None:
        """Appends a state. A reader finds the file as it was, or whole."""
        if self._directory is None:
            return
        self._states.append(ts_state)
        # The last one counts. Where a log lies beside the checkpoints, each step brings one.
        del self._states[:-_MOST_STATES]
        path = os.path.join(self._directory, METADATA_FILENAME)
        # Not a name that is taken for a checkpoint, and one of this process alone: with include_workers="all" each rank
        # writes after the same checkpoint, and in one file they would cut off what another has just published.
        own = f"{os.uname().nodename}.{os.getpid()}"
        temporary = os.path.join(self._directory, f".{METADATA_FILENAME}.{own}.sagemaker-uploaded.tmp")
        try:
            write_whole(path, json.dumps(self._states), temporary)
        except OSError as error:
            logger.warning("%s: the state could not be written: %s", path, error)

    @staticmethod
    def _look(directory: str) -> dict[str, tuple[int, int]]:
        """{path: (size, time of change)}: a file that is written again at the same size is a new checkpoint too."""
        found = {}
        for folder, _, names in os.walk(directory):
            for name in names:
                if name == METADATA_FILENAME or "sagemaker-uploaded" in name:
                    continue
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                found[path] = (status.st_size, status.st_mtime_ns)
        return found


def _checkpoint_directory() -> str | None:
    path = os.environ.get(CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR, DEFAULT_CHECKPOINT_CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            directory = json.load(file).get(CHECKPOINT_DIR_KEY)
    except FileNotFoundError:
        return checkpoint_directory()
    except (OSError, ValueError, AttributeError) as error:
        logger.warning("%s is not used: %s", path, error)
        return None
    return directory if isinstance(directory, str) and directory else None


def _read(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            states = json.load(file)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        logger.warning("%s is not used, steps begin at 0: %s", path, error)
        return []
    good = [s for s in states if _is_state(s)] if isinstance(states, list) else []
    if not isinstance(states, list) or len(good) != len(states):
        logger.warning("%s: what is no state of smdebug's is passed over", path)
    return sorted(good, key=lambda state: state[LATEST_GLOBAL_STEP_SEEN])


def _is_state(state: Any) -> bool:
    def is_step(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= -1

    return (isinstance(state, dict) and is_step(state.get(LATEST_GLOBAL_STEP_SEEN))
            and isinstance(state.get(LATEST_MODE_STEP), dict) and all(map(is_step, state[LATEST_MODE_STEP].values()))
            and is_step(state.get(TRAINING_RUN, 0)))
