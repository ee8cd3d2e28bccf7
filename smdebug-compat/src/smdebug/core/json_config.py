from tdbg.hook.base import CONFIG_FILE_PATH_ENV_STR, DEFAULT_SAGEMAKER_OUTDIR, TENSORBOARD_CONFIG_FILE_PATH_ENV_STR
from tdbg.hook.base import DEFAULT_SAGEMAKER_CONFIG as DEFAULT_CONFIG_FILE_PATH
from tdbg.hook.base import DEFAULT_SAGEMAKER_TENSORBOARD_CONFIG as DEFAULT_SAGEMAKER_TENSORBOARD_PATH


def create_hook_from_json_config(hook_cls, json_config_path=None, default_values=None):
    return hook_cls.create_from_json_file(json_config_path)
