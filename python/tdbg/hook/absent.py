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
    instead = "`tdbg run -- python train.py`, or tdbg.attach(framework=\"keras\"), records Keras 3 without one"


def hook_getter(hook_class):
    def get(json_config_path=None):
        return get_hook(hook_class, json_config_path, create=True)

    get.__name__ = "get_hook"
    return get


def tensorflow_hook(hook_type=None, json_config_path=None, create_if_not_exists=False):
    if create_if_not_exists and hook_type not in ("keras", "session", "estimator"):
        raise ValueError(f"hook_type is {hook_type!r}: keras, session or estimator is accepted")
    wanted = {"keras": KerasHook, None: _AbsentHook}.get(hook_type, SessionHook)
    return get_hook(wanted, json_config_path, create_if_not_exists)
