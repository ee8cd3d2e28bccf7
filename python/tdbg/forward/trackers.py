"""Experiment trackers behind one interface. Each library's own settings say where it sends, and as whom."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any

#: Name -> value, for one step.
Values = dict[str, float]


class Tracker(ABC):
    """One run in one tracker."""

    @abstractmethod
    def log(self, step: int, values: Values) -> None:
        """Sends one step's numbers. Steps ascend."""

    @abstractmethod
    def verdict(self, rule: str, status: str, details: str, step: int) -> None:
        """Sends a rule's status that is new or has changed."""

    @abstractmethod
    def finish(self, completed: bool) -> None:
        """Call when there is nothing more to send."""


def library(name: str) -> Any:
    """The tracker's library.

    :raises ImportError: says how to get it
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"--to {name} needs {name}, which this Python does not have ({error}); pip install {name}, "
                          "or name another Python: --python COMMAND") from error


class Mlflow(Tracker):
    """MLflow; $MLFLOW_TRACKING_URI says where."""

    _MOST = 1000  # metrics of one request; the server's limit
    _FORBIDDEN = re.compile(r"[^\w\-. /:]")

    def __init__(self, project: str, name: str, settings: dict[str, str]) -> None:
        self._mlflow = library("mlflow")
        self._client = self._mlflow.MlflowClient()
        experiment = self._client.get_experiment_by_name(project)
        ident = experiment.experiment_id if experiment else self._client.create_experiment(project)
        self._run = self._client.create_run(ident, run_name=name).info.run_id
        for key, value in settings.items():
            self._client.set_tag(self._run, f"tdbg.{key}", value[:5000])

    def log(self, step: int, values: Values) -> None:
        now = int(time.time() * 1000)
        metrics = [self._mlflow.entities.Metric(self._FORBIDDEN.sub("_", key), value, now, step)
                   for key, value in values.items()]
        for begin in range(0, len(metrics), self._MOST):
            self._client.log_batch(self._run, metrics=metrics[begin:begin + self._MOST])

    def verdict(self, rule: str, status: str, details: str, step: int) -> None:
        key = self._FORBIDDEN.sub("_", rule)
        self._client.set_tag(self._run, f"tdbg.rule.{key}", f"{status}: {details}"[:5000] if details else status)
        self._client.log_metric(self._run, f"tdbg/rule/{key}", float(status == "IssuesFound"), step=max(step, 0))

    def finish(self, completed: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if completed else "KILLED")


class Wandb(Tracker):
    """Weights & Biases; $WANDB_MODE and its other variables say whether and where it sends."""

    def __init__(self, project: str, name: str, settings: dict[str, str]) -> None:
        wandb = library("wandb")
        self._run = wandb.init(project=project, name=name, config={"tdbg": settings})
        self._run.define_metric("*", step_metric="global_step")

    def log(self, step: int, values: Values) -> None:
        self._run.log({"global_step": step, **values})

    def verdict(self, rule: str, status: str, details: str, step: int) -> None:
        self._run.summary[f"tdbg/rule/{rule}"] = f"{status}: {details}" if details else status
        if status == "IssuesFound":
            self._run.alert(title=f"{rule}: {status}"[:64], text=details or status)

    def finish(self, completed: bool) -> None:
        self._run.finish(exit_code=0 if completed else 1)


class Trackio(Tracker):
    """Trackio: a local database, or the Space that $TRACKIO_SPACE_ID names."""

    def __init__(self, project: str, name: str, settings: dict[str, str]) -> None:
        self._trackio = library("trackio")
        config = {f"tdbg_{key}": value for key, value in settings.items()}
        self._trackio.init(project=project, name=name, config=config)
        self._last = 0

    def log(self, step: int, values: Values) -> None:
        self._last = step
        self._trackio.log(dict(values), step=step)

    def verdict(self, rule: str, status: str, details: str, step: int) -> None:
        self._trackio.log({f"tdbg/rule/{rule}": float(status == "IssuesFound")}, step=max(step, self._last))

    def finish(self, completed: bool) -> None:
        self._trackio.finish()


#: Makes a tracker from (project, the run's name there, its configuration there).
TRACKERS: dict[str, Callable[[str, str, dict[str, str]], Tracker]] = {
    "mlflow": Mlflow, "trackio": Trackio, "wandb": Wandb}
