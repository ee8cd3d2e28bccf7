"""What a watcher asks of a running training: carried out between two steps, on the training's thread."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

from .. import checkpoint
from .guard import say
from .hold import hold


def obey(
    run: Any,
    text: str,
    model: Any = None,
    rank: tuple[int, int] = (0, 1),
    keep_step: Callable[[str], None] | None = None,
) -> int:
    """Carries out one request of `Run.take_request`. Of a `pause` it returns when the training may go on.

    :param model: for checkpoint functions that take one, where the script cannot reach its model (XGBoost's booster).
    :param rank: this worker's, and the world size
    :param keep_step: keeps the next step whole, because of this sentence; None: there is no black box here
    :returns: the global step up to which more detail was asked for; 0 where it was something else.
    """
    request = json.loads(text)
    action = request.get("action")
    if action == "capture":
        return int(run.global_step) + 1 + int(request.get("steps", 0))
    if action == "checkpoint":
        error = checkpoint.save(model)
        run.put_context("checkpoint", json.dumps({"id": request.get("id"), "error": error}))
    elif action == "pause":
        hold(run, request, *rank)
    elif action == "blackbox":
        if keep_step is not None:
            keep_step(str(request.get("because") or "somebody asked for it"))
    elif action == "stop":
        say("stopping, as asked")
        # As a launcher on this machine would: handlers that save a checkpoint run, others get the default.
        os.kill(os.getpid(), signal.SIGTERM)
    return 0
