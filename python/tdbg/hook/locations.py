"""Names of the files in smdebug's own directories: <run>/events, index, collections, tensorboard. Pure text."""

from __future__ import annotations

import glob
import logging
import os
import re
from typing import Any

from ..exceptions import SMDebugRuntimeError
from ..modes import ModeKeys

END_OF_JOB_FILENAME = "training_job_end.ts"
STEP_NUMBER_FORMATTING_LENGTH = "012"
_FILE = re.compile(r"^(-?\d+)_(.+)\.(tfevents|json|csv)$")


def _worker_in_file(name: str) -> str:
    return name.replace("/", "_").replace(":", "-")


def training_has_ended(trial_prefix: str) -> None:
    """Writes the mark that ends a run of smdebug's layout."""
    os.makedirs(trial_prefix, exist_ok=True)
    path = os.path.join(trial_prefix, END_OF_JOB_FILENAME)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))


def has_training_ended(trial_prefix: str) -> bool:
    """Of smdebug's layout, or of ours: has somebody said goodbye?"""
    return (os.path.exists(os.path.join(trial_prefix, END_OF_JOB_FILENAME))
            or bool(glob.glob(os.path.join(glob.escape(trial_prefix), "*", "worker_*", "ended.json"))))


def check_dir_exists(path: str) -> None:
    """:raises SMDebugRuntimeError: the directory holds a run that has ended"""
    if has_training_ended(path):
        raise SMDebugRuntimeError(f"{path} holds a run that has ended; choose another directory, or remove it")


class EventFileLocation:
    """One worker's file of one step."""

    type: str | None = None

    def __init__(self, step_num: int, worker_name: str) -> None:
        self.step_num, self.worker_name = int(step_num), worker_name

    def get_step_num_str(self) -> str:
        return format(self.step_num, STEP_NUMBER_FORMATTING_LENGTH)

    def get_filename(self) -> str:
        return f"{self.get_step_num_str()}_{_worker_in_file(self.worker_name)}.tfevents"

    def get_file_location(self) -> str:
        raise NotImplementedError   # of the two kinds below

    @classmethod
    def load_filename(cls, s: Any, print_error: bool = True) -> Any:
        """The location that a path says; None where it is not the name of an event file."""
        match = _FILE.match(os.path.basename(s))
        if match is None or match.group(3) != "tfevents":
            if print_error:
                logging.getLogger("smdebug").error("not the name of an event file: %s", s)
            return None
        worker = match.group(2)
        if worker.startswith("_"):
            worker = worker.replace("_", "/").replace("-", ":")
        return cls(int(match.group(1)), worker)

    @classmethod
    def match_regex(cls, s: Any) -> Any:
        return cls.load_filename(s, print_error=False)


class TensorFileLocation(EventFileLocation):
    type = "events"

    @staticmethod
    def get_dir(trial_dir: str) -> str:
        return os.path.join(trial_dir, "events")

    @classmethod
    def get_step_dir_path(cls, trial_dir: str, step_num: int) -> str:
        return os.path.join(cls.get_dir(trial_dir), format(int(step_num), STEP_NUMBER_FORMATTING_LENGTH))

    @classmethod
    def get_step_dirs(cls, trial_dir: str) -> list[Any]:
        return [entry.name for entry in os.scandir(cls.get_dir(trial_dir)) if entry.is_dir()]

    def get_file_location(self, trial_dir: str = "") -> str:
        """Without a directory: relative to the run's."""
        return os.path.join(self.get_step_dir_path(trial_dir, self.step_num), self.get_filename())


class TensorboardFileLocation(EventFileLocation):
    type = "tensorboard"

    def __init__(self, step_num: int, worker_name: str, mode: ModeKeys | None = None) -> None:
        super().__init__(step_num, worker_name)
        self.mode = ModeKeys.GLOBAL if mode is None else mode

    def get_file_location(self, base_dir: str = "") -> str:
        return os.path.join(base_dir or "tensorboard", self.mode.name, self.get_filename())


class IndexFileLocationUtils:
    """index/<step // 1000>/<step>_<worker>.json"""

    MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX = 1000

    @staticmethod
    def get_index_prefix_for_step(step_num: int) -> str:
        return f"{step_num // IndexFileLocationUtils.MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX:09}"

    @staticmethod
    def next_index_prefix_for_step(step_num: int) -> str:
        return f"{step_num // IndexFileLocationUtils.MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX + 1:09}"

    @staticmethod
    def get_index_key_for_step(trial_prefix: str, step_num: int, worker_name: str) -> str:
        folder = os.path.join(trial_prefix, "index", IndexFileLocationUtils.get_index_prefix_for_step(step_num))
        return os.path.join(folder, f"{step_num:012}_{_worker_in_file(worker_name)}.json")

    @staticmethod
    def parse_step_from_index_file_name(index_file_name: str) -> int:
        return int(os.path.basename(index_file_name).split("_")[0])

    @staticmethod
    def get_index_path(path: str) -> str:
        return os.path.join(path, "index")

    @staticmethod
    def get_prefix_from_index_file(index_file: str) -> str:
        """The run's directory, of the path of one of its index files."""
        return index_file[:index_file.rindex("/index/")]
