"""The hook's JSON file, read in smdebug's steps. `create_hook_from_json_config` is all that most need."""

import json
import os

from tdbg.compat.exceptions import SMDebugValueError
from tdbg.hook import ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook.text import parse_bool
from tdbg.modes import ModeKeys

from .config_constants import (
    CONFIG_COLLECTION_CONFIG_KEY,
    CONFIG_COLLECTION_NAME_KEY,
    CONFIG_COLLECTION_PARAMS_KEY,
    CONFIG_FILE_PATH_ENV_STR,
    CONFIG_HOOK_PARAMS_KEY,
    CONFIG_INCLUDE_REGEX_KEY,
    CONFIG_INCLUDE_WORKERS_KEY,
    CONFIG_OUTDIR_KEY,
    CONFIG_RDN_CFG_KEY,
    CONFIG_REDUCTION_CONFIGS_KEY,
    CONFIG_SAVE_ALL_KEY,
    CONFIG_SAVE_CONFIGS_KEY,
    DEFAULT_CONFIG_FILE_PATH,
    DEFAULT_RESOURCE_CONFIG_FILE,
    DEFAULT_SAGEMAKER_OUTDIR,
    DEFAULT_SAGEMAKER_TENSORBOARD_PATH,
    DEFAULT_WORKER_NAME,
    EXPORT_TENSORBOARD_KEY,
    TENSORBOARD_CONFIG_FILE_PATH_ENV_STR,
    TENSORBOARD_DIR_KEY,
)
from .logger import get_logger
from .sagemaker_utils import is_sagemaker_job
from .utils import merge_two_dicts, split


def create_hook_from_json_config(hook_cls, json_config_path=None, default_values=None):
    """:param default_values: save parameters ({"save_interval": 10}) that hold where the file sets none"""
    return hook_cls.create_from_json_file(json_config_path, default_values)


def get_json_config_as_dict(json_config_path) -> dict:
    """:raises FileNotFoundError: neither the path, nor $SMDEBUG_CONFIG_FILE_PATH, nor SageMaker's own is there"""
    path = json_config_path or os.environ.get(CONFIG_FILE_PATH_ENV_STR) or DEFAULT_CONFIG_FILE_PATH
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _local_text(path, key):
    """What a JSON file says under `key`; None where it does not, or is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file).get(key)
    except FileNotFoundError:
        return None


def get_tensorboard_dir_from_json_config():
    return _local_text(os.environ.get(TENSORBOARD_CONFIG_FILE_PATH_ENV_STR) or DEFAULT_SAGEMAKER_TENSORBOARD_PATH, "LocalPath")


def get_node_id_from_resource_config():
    return _local_text(DEFAULT_RESOURCE_CONFIG_FILE, "current_host")


def collect_hook_config_params(params_dict) -> dict:
    """The hook's own parameters, with the types that its constructor takes."""
    params = params_dict.get(CONFIG_HOOK_PARAMS_KEY) or {}
    found = {CONFIG_REDUCTION_CONFIGS_KEY: {}, CONFIG_SAVE_CONFIGS_KEY: {},
             CONFIG_RDN_CFG_KEY: ReductionConfig.from_dict(params) if "reductions" in params else None,
             CONFIG_INCLUDE_REGEX_KEY: _list(params[CONFIG_INCLUDE_REGEX_KEY]) if params.get(CONFIG_INCLUDE_REGEX_KEY) else None,
             "out_dir": params_dict.get(CONFIG_OUTDIR_KEY, DEFAULT_SAGEMAKER_OUTDIR),
             "save_config_modes": parse_save_config_modes_dict(params),
             EXPORT_TENSORBOARD_KEY: parse_bool(params.get(EXPORT_TENSORBOARD_KEY), False),
             TENSORBOARD_DIR_KEY: params.get(TENSORBOARD_DIR_KEY)}
    if CONFIG_SAVE_ALL_KEY in params:
        found[CONFIG_SAVE_ALL_KEY] = parse_bool(params[CONFIG_SAVE_ALL_KEY], False)
    if CONFIG_INCLUDE_WORKERS_KEY in params:
        found[CONFIG_INCLUDE_WORKERS_KEY] = params[CONFIG_INCLUDE_WORKERS_KEY]
    return found


def _collections(params_dict):
    for config in params_dict.get(CONFIG_COLLECTION_CONFIG_KEY) or ():
        if CONFIG_COLLECTION_NAME_KEY not in config:
            raise SMDebugValueError(f"an entry of {CONFIG_COLLECTION_CONFIG_KEY} has no {CONFIG_COLLECTION_NAME_KEY}: {config}")
        yield config[CONFIG_COLLECTION_NAME_KEY], config.get(CONFIG_COLLECTION_PARAMS_KEY) or {}


def get_include_collections(params_dict):
    """The names of the file's collections; None where it says nothing of collections."""
    if params_dict.get(CONFIG_COLLECTION_CONFIG_KEY) is None:
        return None
    return [name for name, _ in _collections(params_dict)]


def add_collections_to_manager(collection_manager, params_dict, hook_params):
    """The file's collections into a manager; what one does not say of its schedule, the hook's parameters do."""
    for name, params in _collections(params_dict):
        collection = collection_manager.get(name)
        modes = parse_save_config_modes_dict(params, hook_params["save_config_modes"])
        collection.save_config = {mode: SaveConfigMode.from_dict(values) for mode, values in modes.items()}
        if "reductions" in params:
            collection.reduction_config = ReductionConfig.from_dict(params)
        if params.get(CONFIG_INCLUDE_REGEX_KEY):
            collection.include(_list(params[CONFIG_INCLUDE_REGEX_KEY]))
        if "save_histogram" in params:
            collection.save_histogram = parse_bool(params["save_histogram"], True)


def parse_save_config_modes_dict(params, base_config_modes=None) -> dict:
    """{mode: save parameters}: a mode's own ("train.save_interval") over those for all, over `base_config_modes`."""
    for_all = parse_save_config_dict(params)
    return {mode: {**(base_config_modes or {}).get(mode, {}), **for_all, **parse_save_config_dict(params, mode)}
            for mode in ModeKeys}


def parse_save_config_dict(params, mode=None) -> dict:
    """The save parameters for one mode, or (None) those without a mode in front."""
    if not isinstance(params, dict):
        raise SMDebugValueError(f"{params!r}: a dict is accepted")
    prefix = "" if mode is None else mode.name.lower() + "."
    found = {key: params[prefix + key] for key in ("save_interval", "start_step", "end_step") if prefix + key in params}
    if prefix + "save_steps" in params:
        found["save_steps"] = [int(step) for step in _list(params[prefix + "save_steps"])]
    return found


def _list(value):
    return split(value) if isinstance(value, str) else list(value)
