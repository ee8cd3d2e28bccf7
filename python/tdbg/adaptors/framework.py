"""What an adaptor must provide, as types: `Adaptor` is its folder, `Framework` its Session. The conformance suite
(tests/frameworks/conformance) checks each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class Adaptor(Protocol):
    """A folder's `__init__`. Both functions are a Door's (door.py); TensorFlow, which has no session of its own, hands
    them on."""

    def arm(self, **options: Any) -> Any:
        """The framework was just imported under `tdbg run`: replaces and hooks what is needed, opens nothing."""

    def attach(self, model: Any = None, config: Any = None, dir: Any = None, **options: Any) -> Any:
        """The script attaches. Raises on bad configuration."""


@runtime_checkable
class Framework(Protocol):
    """A Session: what a Door wants of it. `Watch` has all of it but `accepts`, `install`, `watch` and `disarm`."""

    # : The class of a model that a script may hand over, and what it is called in a message; None: the framework makes
    # its models : itself, and whatever is handed over is left alone.
    accepts: ClassVar[tuple[type | tuple[type, ...], str] | None]
    #: ARMED, OPEN or OFF (watch.py).
    state: str
    #: Of Run.open's arguments those that the script gave: used when the run is opened.
    options: dict[str, Any]
    #: Called when everything is sealed; the Door sets it.
    when_over: Callable[[Any], None]

    @property
    def run(self) -> Any:
        """The run; None before the first training event."""

    def install(self) -> None:
        """Replaces or hooks what is needed, through `patches`. Called before the training begins, or later."""

    def watch(self, models: list[Any]) -> None:
        """The script gives these models (of class `accepts`): only they are watched. []: whatever trains is watched."""

    def disarm(self) -> None:
        """Sets `state` to OFF and undoes `install`. Does not touch the run. Idempotent."""

    def finish(self, reason: str, message: str = "") -> None:
        """Closes what is open, records the final weights, seals the run, disarms. Idempotent."""

    def forked(self) -> None:
        """Called in the child of a fork, which must not use the parent's run."""

    def at_exit(self) -> None:
        """The process ends."""


@runtime_checkable
class LoopFramework(Framework, Protocol):
    """A Framework whose process has one run: a LoopSession (session.py), which calls these, and its `_opened` and
    `_last_words`."""

    def adaptor(self) -> str:
        """Name and version: "torch 2.13.0"."""

    def rank(self) -> tuple[int, int]:
        """(rank, world size): which of how many workers this process is. ranks.py reads the environment."""

    def record_value(self, name: str, tensor: Any, collection: str) -> None:
        """The script records a tensor: the framework's, or NumPy's, or a number."""

    def record_scalar(self, name: str, value: Any, collection: str) -> None:
        """The script records a number: the series `scalar/<name>`."""
