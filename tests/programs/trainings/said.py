"""What a program says of its training, to be compared with what its run holds: losses to the last digit, steps."""

from __future__ import annotations

import hashlib


def loss(value) -> None:
    """What was trained on, of one step."""
    _say("loss", value)


def evaluated(value) -> None:
    """The loss of one batch that was evaluated."""
    _say("evaluated", value)


def steps(count: int) -> None:
    """How many updates there were, as the library counts them."""
    print("steps", int(count), flush=True)


def weights(model) -> None:
    """What it has learned, to the last bit."""
    kept = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(kept).hexdigest(), flush=True)


def _say(what: str, value) -> None:
    print(what, repr(float(value.detach() if hasattr(value, "detach") else value)), flush=True)
