"""Hooks of frameworks that are not installed, or whose adaptors do not follow a hook: configured like any other, refused
when made. Configurations, collections, modes and trials need no framework.
"""

from __future__ import annotations

from ..exceptions import SMDebugNotImplementedError
from .base import BaseHook
from .singleton import get_hook


class _AbsentHook(BaseHook):
    instead = ""

    def __init__(self, *args, **kwargs):
        raise SMDebugNotImplementedError(f"a hook for {self.framework} cannot record here: {self.instead}")


class MxNetHook(_AbsentHook):
    framework = "mxnet"
    instead = "mxnet cannot be imported"


class XGBoostHook(_AbsentHook):
    framework = "xgboost"
    instead = "xgboost cannot be imported"


class SessionHook(_AbsentHook):
    framework = "tensorflow"
    instead = "TensorFlow 1's sessions are not offered"


class KerasHook(_AbsentHook):
    framework = "tensorflow"
    instead = "keras cannot be imported"


def hook_getter(hook_class):
    def get(json_config_path=None):
        return get_hook(hook_class, json_config_path, create=True)

    get.__name__ = "get_hook"
    return get


def tensorflow_hook(keras_hook):
    """smdebug.tensorflow's `get_hook`, where `keras_hook` is the class for Keras."""
    def get(hook_type=None, json_config_path=None, create_if_not_exists=False):
        return _tensorflow_hook(keras_hook, hook_type, json_config_path, create_if_not_exists)

    get.__name__ = "get_hook"
    return get


def _tensorflow_hook(keras_hook, hook_type, json_config_path, create_if_not_exists):
    if create_if_not_exists and hook_type not in ("keras", "session", "estimator"):
        raise ValueError(f"hook_type is {hook_type!r}: keras, session or estimator is accepted")
    wanted = keras_hook if hook_type in (None, "keras") else SessionHook
    return get_hook(wanted, json_config_path, create_if_not_exists)
