"""Small helpers that scripts, rules and tests import from smdebug."""

import bisect
import json
import os
import re
import shutil
import socket
from enum import Enum
from pathlib import Path

from tdbg.compat.event_files import make_numpy_array as _array_of
from tdbg.compat.exceptions import IndexReaderException, SMDebugNotImplementedError, SMDebugRuntimeError, SMDebugValueError

from .._not_offered import INSIDE, PROFILER, NotOffered
from .config_constants import (
    CLAIM_FILENAME,
    CONFIG_FILE_PATH_ENV_STR,
    DEFAULT_SAGEMAKER_OUTDIR,
    DEFAULT_SAGEMAKER_TENSORBOARD_PATH,
    PAPERMILL_EXECUTION_ENV_VAR,
    PROFILER_REPORT_VERSION,
    PROFILER_TELEMETRY_URL,
    TENSORBOARD_CONFIG_FILE_PATH_ENV_STR,
)
from .logger import get_logger

logger = get_logger()
error_handling_agent = NotOffered(
    "smdebug.core.utils.error_handling_agent", "nothing of tdbg's is raised into a training, so there is nothing to switch off")
ErrorHandlingAgent = NotOffered("smdebug.core.utils.ErrorHandlingAgent", INSIDE)
setup_profiler_report = NotOffered("smdebug.core.utils.setup_profiler_report", PROFILER + "; and it sends no telemetry")
_prepare_telemetry_url = NotOffered("smdebug.core.utils._prepare_telemetry_url", "tdbg sends no telemetry")


class FRAMEWORK(Enum):
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


def is_framework_version_supported(framework_type) -> bool:
    """No version of a framework is refused."""
    if not isinstance(framework_type, FRAMEWORK):
        raise SMDebugNotImplementedError(f"no framework {framework_type!r}: one of {', '.join(map(str, FRAMEWORK))}")
    return True


def make_numpy_array(x):
    """An array as it is, a scalar or a text as one element, lists and tuples as arrays, a dict as one object.

    :raises SMDebugTypeError: anything else
    """
    import numpy as np

    return np.array(x) if isinstance(x, dict) else _array_of(x)


def validate_custom_tensor_value(tensor_value, make_numpy_fn) -> bool:
    try:
        make_numpy_fn(tensor_value)
    except TypeError:
        return False
    return True


def size_and_shape(t):
    """(bytes, shape) of an array; of a text (length, [length])."""
    return (len(t), [len(t)]) if isinstance(t, (bytes, str)) else (t.nbytes, t.shape)


# Lists, dicts and text ------------------------------------------------------------------------------------------------

def flatten(lis) -> list:
    """[1, [2, [3]]] -> [1, 2, 3]"""
    return [one for item in lis for one in (flatten(item) if isinstance(item, list) else [item])]


def split(comma_separated_string) -> list:
    """"foo, bar,b az" -> ["foo", "bar", "b az"]"""
    return [item.strip() for item in comma_separated_string.split(",")]


def merge_two_dicts(x, y) -> dict:
    """Where both have a key, y's value."""
    return {**x, **y}


def load_json_as_dict(s):
    """A dict of JSON; None and "None" are None, a dict is itself."""
    if s is None or s == "None":
        return None
    if isinstance(s, str):
        return json.loads(s)
    if isinstance(s, dict):
        return s
    raise SMDebugValueError(f"{s!r}: JSON or a dict is accepted")


def match_inc(tname, include) -> bool:
    """Is any of the expressions found in the name?"""
    return any(re.search(expression, tname) for expression in include)


def index(sorted_list, elem) -> int:
    """:raises SMDebugValueError: it is not in the list"""
    i = bisect.bisect_left(sorted_list, elem)
    if i == len(sorted_list) or sorted_list[i] != elem:
        raise SMDebugValueError(f"{elem} is not in the list")
    return i


def step_in_range(range_steps, step) -> bool:
    """In [begin, end); either may be None."""
    begin, end = range_steps
    return (begin is None or int(step) >= int(begin)) and (end is None or int(step) < int(end))


# Files and directories ------------------------------------------------------------------------------------------------

def is_s3(path):
    """(True, bucket, key) of an s3:// address, (False, None, None) of anything else."""
    if not path.startswith("s3://"):
        return False, None, None
    bucket, _, key = path.removeprefix("s3://").partition("/")
    return True, bucket, key


def ensure_dir(file_path, is_file=True):
    """Makes the directory that a file lies in, or with `is_file=False` the directory itself."""
    directory = os.path.dirname(file_path) if is_file else file_path
    if directory:
        os.makedirs(directory, exist_ok=True)


def get_immediate_subdirectories(a_dir) -> list:
    return [entry.name for entry in os.scandir(a_dir) if entry.is_dir()]


def remove_file_if_exists(file_path):
    if os.path.exists(file_path):
        os.remove(file_path)


def list_files_in_directory(directory, file_regex=None) -> list:
    """Paths of all files below it whose names match."""
    return [os.path.join(root, name) for root, _, names in os.walk(directory) for name in names
            if file_regex is None or re.match(file_regex, name)]


def list_collection_files_in_directory(directory) -> list:
    return list_files_in_directory(directory, r".*_?collections\.json$")


def is_first_process(path, is_dir=True) -> bool:
    """True for one of all the processes that ask; of an S3 path for each. It leaves a claim file, which stays there until
    somebody removes it; hooks of tdbg's need none."""
    if is_s3(path)[0]:
        return True
    ensure_dir(path, is_file=not is_dir)
    try:
        os.close(os.open(os.path.join(path, CLAIM_FILENAME) if is_dir else path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def remove_claim_file(path):
    if not is_s3(path)[0]:
        remove_file_if_exists(os.path.join(path, CLAIM_FILENAME))


# Names of smdebug's files ---------------------------------------------------------------------------------------------

def get_path_to_collections(directory) -> str:
    return os.path.join(directory, "collections", "000000000", "")


def get_path_to_events_directory(path) -> str:
    return os.path.join(path, "events", "")


def get_relative_event_file_path(path) -> str:
    """events/<step>/<file> of a file's path."""
    parts = Path(path).parts
    if len(parts) < 3 or parts[-3] not in ("events", "tensorboard"):
        raise SMDebugRuntimeError(f"{path} lies neither in events/<step>/ nor in tensorboard/<mode>/")
    return os.path.join(*parts[-3:])


def serialize_tf_device(device: str) -> str:
    """/replica:0/task:0 -> _replica-0_task-0, as it stands in a file's name."""
    return device.replace("/", "_").replace(":", "-")


def deserialize_tf_device(device_name: str) -> str:
    return device_name.replace("_", "/").replace("-", ":")


def _worker_of(name):
    return deserialize_tf_device(name) if name.startswith("_") else name


def get_worker_name_from_collection_file(filename: str) -> str:
    found = re.match(r".*/collections/.+/(.+)_collections.(json|ts)", filename)
    if found is None:
        raise SMDebugValueError(f"not the path of a collections file: {filename}")
    return _worker_of(found.group(1))


def parse_worker_name_from_file(filename: str) -> str:
    """Of an index file's or an event file's name."""
    found = re.match(r"^\d+_(.+)\.(json|csv|tfevents)$", os.path.basename(filename))
    if found is None:
        raise IndexReaderException(f"not the name of an index or event file: {filename}")
    return _worker_of(found.group(1))


# Where am I? ----------------------------------------------------------------------------------------------------------

def get_tb_worker() -> str:
    return f"{os.getpid()}_{socket.gethostname()}"


def get_distributed_worker():
    """This process's rank in torch.distributed or Horovod; None where neither is in use."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.mxnet"):
        hvd = sys.modules.get(name)
        if hvd is not None:
            try:
                return hvd.rank()
            except ValueError:          # not initialised
                pass
    return None


def get_node_id() -> str:
    """<rank or pid>-<host>, as SageMaker's configuration names the host."""
    from .json_config import get_node_id_from_resource_config

    rank = get_distributed_worker()
    return f"{os.getpid() if rank is None else rank}-{get_node_id_from_resource_config() or socket.gethostname()}".replace("_", "-")


def get_region():
    return (os.environ.get("AWS_REGION") or "").strip() or None


def get_aws_region_from_processing_job_arn(processing_job_arn) -> str:
    return processing_job_arn.split(":")[3]


def _sagemaker_parameters(variable) -> dict:
    try:
        found = json.loads(os.environ.get(variable) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_smmodelparallel_training() -> bool:
    """Does SageMaker say that this job splits its model?"""
    parameters = _sagemaker_parameters("SM_HPS").get("mp_parameters") or {}
    return "partitions" in parameters or "pipeline_parallel_degree" in parameters


def check_smdataparallel_env() -> bool:
    """Was this process started by SageMaker's data parallel library?"""
    return (int(os.environ.get("OMPI_COMM_WORLD_SIZE") or 0) >= 8
            and bool(_sagemaker_parameters("SM_FRAMEWORK_PARAMS").get("sagemaker_distributed_dataparallel_enabled")))


# For tests of training scripts ----------------------------------------------------------------------------------------

class SagemakerSimulator:
    """with SagemakerSimulator(json_file_contents="{...}"): what runs inside believes that it is a SageMaker job, with this
    hook configuration. `out_dir` is emptied first; with `cleanup`, files and environment are put away afterwards."""

    def __init__(self, json_config_path="/tmp/zcc_config.json", tensorboard_dir="/tmp/tensorboard",
                 training_job_name="sm_job", json_file_contents="{}", cleanup=True):
        self.out_dir = DEFAULT_SAGEMAKER_OUTDIR
        self.json_config_path, self.json_file_contents = json_config_path, json_file_contents
        self.tb_json_config_path = DEFAULT_SAGEMAKER_TENSORBOARD_PATH
        self.tensorboard_dir, self.training_job_name, self.cleanup = tensorboard_dir, training_job_name, cleanup

    def __enter__(self):
        if self.cleanup:
            shutil.rmtree(self.out_dir, ignore_errors=True)
        os.environ[CONFIG_FILE_PATH_ENV_STR] = self.json_config_path
        os.environ[TENSORBOARD_CONFIG_FILE_PATH_ENV_STR] = self.tb_json_config_path
        os.environ["TRAINING_JOB_NAME"] = self.training_job_name
        Path(self.json_config_path).write_text(self.json_file_contents, encoding="utf-8")
        ensure_dir(self.tb_json_config_path)
        Path(self.tb_json_config_path).write_text(json.dumps({"LocalPath": self.tensorboard_dir}), encoding="utf-8")
        return self

    def __exit__(self, *unused):
        if self.cleanup:
            remove_file_if_exists(self.json_config_path)
            remove_file_if_exists(self.tb_json_config_path)
            for name in (CONFIG_FILE_PATH_ENV_STR, "TRAINING_JOB_NAME", TENSORBOARD_CONFIG_FILE_PATH_ENV_STR):
                os.environ.pop(name, None)


class ScriptSimulator:
    """with ScriptSimulator(out_dir): the directories are not there before, nor afterwards."""

    def __init__(self, out_dir="/tmp/test", tensorboard_dir=None):
        self.out_dir, self.tensorboard_dir = out_dir, tensorboard_dir

    def _remove(self):
        for directory in (self.out_dir, self.tensorboard_dir):
            if directory:
                shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self):
        self._remove()
        return self

    def __exit__(self, *unused):
        self._remove()
