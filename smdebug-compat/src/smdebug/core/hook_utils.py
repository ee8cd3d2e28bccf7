import os

from tdbg.compat.exceptions import SMDebugRuntimeError

from .access_layer.utils import check_dir_exists
from .logger import get_logger
from .utils import is_s3


def verify_and_get_out_dir(out_dir) -> str:
    """The path, `~` expanded. :raises SMDebugRuntimeError: none, or it holds a run that has ended"""
    if out_dir is None:
        raise SMDebugRuntimeError("a hook needs out_dir: the directory that is to hold the run")
    if is_s3(out_dir)[0]:
        return out_dir
    out_dir = os.path.expanduser(out_dir)
    if check_dir_exists(out_dir):
        raise SMDebugRuntimeError(f"{out_dir} holds a run that has ended; choose another directory, or remove it")
    return out_dir


def get_tensorboard_dir(export_tensorboard, tensorboard_dir, out_dir):
    """Where TensorBoard's files go; None: nowhere. A directory alone asks for them."""
    if tensorboard_dir:
        return os.path.expanduser(tensorboard_dir)
    return os.path.join(out_dir, "tensorboard") if export_tensorboard else None
