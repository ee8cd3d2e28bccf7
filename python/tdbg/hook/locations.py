"""Names of the files in smdebug's own directories: <run>/events, index, collections, tensorboard. Pure text."""

from __future__ import annotations

import glob
import os
import re
import socket

from ..exceptions import SMDebugRuntimeError
from ..modes import ModeKeys

END_OF_JOB_FILENAME = "training_job_end.ts"
STEP_NUMBER_FORMATTING_LENGTH = "012"
_FILE = re.compile(r"^(-?\d+)_(.+)\.(tfevents|json|csv)$")


def _worker_in_file(name):
    return name.replace("/", "_").replace(":", "-")


def training_has_ended(trial_prefix):
    """Writes the mark that ends a run of smdebug's layout."""
    os.makedirs(trial_prefix, exist_ok=True)
    with open(os.path.join(trial_prefix, END_OF_JOB_FILENAME), "a", encoding="utf-8"):
        pass


def has_training_ended(trial_prefix) -> bool:
    """Of smdebug's layout, or of ours: has somebody said goodbye?"""
    return (os.path.exists(os.path.join(trial_prefix, END_OF_JOB_FILENAME))
            or bool(glob.glob(os.path.join(glob.escape(trial_prefix), "*", "worker_*", "ended.json"))))


def check_dir_exists(path):
    """:raises SMDebugRuntimeError: the directory holds a run that has ended"""
    if has_training_ended(path):
        raise SMDebugRuntimeError(f"{path} holds a run that has ended; choose another directory, or remove it")


class EventFileLocation:
    """One worker's file of one step."""

    def __init__(self, step_num, worker_name, type="events"):
        self.step_num, self.worker_name, self.type = int(step_num), worker_name, type

    def get_filename(self) -> str:
        return f"{self.step_num:012}_{_worker_in_file(self.worker_name)}.tfevents"

    def get_file_location(self, base_dir="") -> str:
        return os.path.join(base_dir, self.type, f"{self.step_num:012}", self.get_filename())

    @classmethod
    def load_filename(cls, path, print_error=True):
        match = _FILE.match(os.path.basename(path))
        if match is None:
            return None
        worker = match.group(2)
        if worker.startswith("_"):
            worker = worker.replace("_", "/").replace("-", ":")
        return cls(int(match.group(1)), worker)


TensorFileLocation = EventFileLocation


class TensorboardFileLocation(EventFileLocation):
    def __init__(self, step_num, worker_name, mode=ModeKeys.GLOBAL):
        super().__init__(step_num, worker_name, "tensorboard")
        self.mode = mode

    def get_filename(self) -> str:
        return f"{self.step_num:012}_{os.getpid()}_{socket.gethostname()}.tfevents"

    def get_file_location(self, base_dir="") -> str:
        return os.path.join(base_dir, self.mode.name, self.get_filename())


class IndexFileLocationUtils:
    """index/<step // 1000>/<step>_<worker>.json"""

    MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX = 1000

    @staticmethod
    def get_index_key_for_step(base_dir, step_num, worker_name) -> str:
        folder = os.path.join(base_dir, "index", f"{step_num // 1000:09}")
        return os.path.join(folder, f"{step_num:012}_{_worker_in_file(worker_name)}.json")

    @staticmethod
    def parse_step_from_index_file_name(path) -> int:
        return int(os.path.basename(path).split("_")[0])

    @staticmethod
    def get_index_path(base_dir) -> str:
        return os.path.join(base_dir, "index")
