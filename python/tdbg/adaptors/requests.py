"""What a watcher asks of a running training: carried out between two steps, on the training's thread."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from .. import checkpoint
from .guard import say


def obey(run: Any, text: str, model: Any = None) -> int:
    """Carries out one request of `Run.take_request`.

    :param model: for checkpoint functions that take one, where the script cannot reach its model (XGBoost's booster).
    :returns: the global step up to which more detail was asked for; 0 where it was something else.
    """
    request = json.loads(text)
    action = request.get("action")
    if action == "capture":
        return int(run.global_step) + 1 + int(request.get("steps", 0))
    if action == "checkpoint":
        error = checkpoint.save(model)
        run.put_context("checkpoint", json.dumps({"id": request.get("id"), "error": error}))
    elif action == "stop":
        say("stopping, as asked")
        # As a launcher on this machine would: handlers that save a checkpoint run, others get the default.
        os.kill(os.getpid(), signal.SIGTERM)
    return 0
