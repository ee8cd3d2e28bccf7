"""Attaching to TensorFlow: by the launcher's environment (`arm`), or from the script (`attach`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from .. import adaptor
from ..patches import Patches
from . import sessions, tape

_patches = None


def arm(**options: Any) -> None:
    """Watches gradients that are taken outside of Keras, and sessions. Idempotent."""
    global _patches
    if _patches is None:
        _patches = Patches()
        tape.patch(_patches, _session)
        sessions.patch(_patches, _session)


def disarm() -> None:
    """The watch is over: TensorFlow is as it was. `arm` begins another one."""
    global _patches
    if _patches is not None:
        _patches.undo()
        _patches = None


def stand_down(why: str) -> None:
    """Somebody else watches from here on: nothing is to be recorded twice."""
    if os.environ.get("TDBG_RUN") or "tdbg.adaptors.keras" in sys.modules:
        # Imported later, Keras would begin a watch, and arm this one again.
        adaptor("keras").stand_down(why)
    disarm()


def _session() -> Any:
    """The Keras adaptor's session; None when its watch is over."""
    return adaptor("keras").watching()


def attach(model: Any = None, config: Any = None, dir: Any = None, open_run: Callable[..., Any] | None = None,
           **options: Any) -> Any:
    """As tdbg.adaptors.keras.attach: Keras models, tapes and sessions are all watched."""
    attached = adaptor("keras").attach(model=model, config=config, dir=dir, open_run=open_run, **options)
    arm()
    return attached
