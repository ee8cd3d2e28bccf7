"""Hooks of frameworks that are not installed, or of what a framework no longer has: configured like any other, refused
when made. Configurations, collections, modes and trials need no framework.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..exceptions import SMDebugNotImplementedError
from .base import BaseHook
from .singleton import get_hook


class _AbsentHook(BaseHook):
    instead = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise SMDebugNotImplementedError(f"a hook for {self.framework} cannot record here: {self.instead}")


class MxNetHook(_AbsentHook):
    framework = "mxnet"
    instead = "mxnet cannot be imported"


class XGBoostHook(_AbsentHook):
    framework = "xgboost"
    instead = "xgboost cannot be imported"


class SessionHook(_AbsentHook):
    framework = "tensorflow"
    instead = "tensorflow cannot be imported"


class EstimatorHook(_AbsentHook):
    framework = "tensorflow"
    instead = (
        "tf.estimator was removed from TensorFlow in 2.16. SessionHook is for tf.compat.v1.train.MonitoredSession "
        "(hooks=[hook]), KerasHook for Keras' models"
    )


class KerasHook(_AbsentHook):
    framework = "tensorflow"
    instead = "keras cannot be imported"


def hook_getter(hook_class: type[Any]) -> Callable[..., Any]:
    def get(json_config_path: str | None = None) -> Any:
        return get_hook(hook_class, json_config_path, create=True)

    get.__name__ = "get_hook"
    return get


def tensorflow_hook(**classes: Any) -> Callable[..., Any]:
    """smdebug.tensorflow's `get_hook`, where `classes` give the class of each hook_type when called."""
    def get(hook_type: str | None = None, json_config_path: str | None = None,
            create_if_not_exists: bool = False) -> Any:
        if hook_type not in classes and (create_if_not_exists or hook_type is not None):
            raise ValueError(f"hook_type is {hook_type!r}: one of {', '.join(classes)} is accepted")
        wanted = BaseHook if hook_type is None else classes[hook_type]()
        return get_hook(wanted, json_config_path, create_if_not_exists)

    get.__name__ = "get_hook"
    return get
