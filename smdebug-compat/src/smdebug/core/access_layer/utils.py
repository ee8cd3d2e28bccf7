import os
import time

from tdbg.compat.exceptions import SMDebugNotImplementedError
from tdbg.hook.locations import END_OF_JOB_FILENAME
from tdbg.hook.locations import has_training_ended as _has_ended
from tdbg.hook.locations import training_has_ended as _end

from ..._not_offered import S3, not_offered
from ..sagemaker_utils import is_sagemaker_job
from ..utils import is_s3

ENV_RULE_STOP_SIGNAL_FILENAME = "SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE"
DEFAULT_GRACETIME_FOR_RULE_STOP_SEC = 60
RULE_JOB_STOP_SIGNAL_FILENAME = os.environ.get(ENV_RULE_STOP_SIGNAL_FILENAME)
RULESTOP_GRACETIME_SECONDS = int(os.environ.get("rule_stop_grace_time_secs") or DEFAULT_GRACETIME_FOR_RULE_STOP_SEC)

__getattr__ = not_offered(__name__, S3, "delete_s3_prefixes", "TSAccessS3", "S3Handler", "ListRequest", "DeleteRequest")


def _local(path):
    path = os.fspath(path)
    if is_s3(path)[0]:
        raise SMDebugNotImplementedError(f"{path}: {S3}")
    return path


def training_has_ended(trial_prefix):
    """Writes the mark that ends a run of smdebug's layout; in a SageMaker job the platform writes it."""
    if not is_sagemaker_job():
        _end(_local(trial_prefix))


def has_training_ended(trial_prefix) -> bool:
    """Of smdebug's layout, or of tdbg's: has somebody said goodbye?"""
    return _has_ended(_local(trial_prefix))


def check_dir_exists(path) -> bool:
    """Does the directory hold a run that has ended?"""
    return has_training_ended(path)


def file_exists(file_path) -> bool:
    return os.path.exists(_local(file_path))


def is_rule_signalled_gracetime_passed(trial_prefix) -> bool:
    """Has the platform's stop signal, a file with the time at which it was given, been there for longer than a rule may
    still take? A file that cannot be read counts as one that has."""
    name = os.environ.get(ENV_RULE_STOP_SIGNAL_FILENAME)
    if name is None:
        return False
    try:
        with open(os.path.join(trial_prefix, name), encoding="utf-8") as file:
            return time.time() > int(file.read()) + RULESTOP_GRACETIME_SECONDS
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
