"""What a walk finds: the birth of a NaN, and what comes into a graph from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .graph import Place
from .lines import Line
from .values import Values

OPERATION, PARAMETER, BUFFER, INPUT, LABEL, CONSTANT, UNSEEN = (
    "operation",
    "parameter",
    "buffer",
    "input",
    "label",
    "constant",
    "unseen",
)


class Outside(NamedTuple):
    """Something that comes into the graph: `what` is BUFFER, INPUT, LABEL, or PARAMETER (a frozen one), `name` what it
    is called. `changed`: in place, since it came."""

    what: str
    name: str
    tensor: torch.Tensor
    changed: bool = False


@dataclass
class Birth:
    """Where it began. `what`: one of the words above; UNSEEN says in `because` why that could not be told."""

    what: str
    place: Place = field(default_factory=Place)
    operation: str = ""                  # operations.short of the node
    node: str = ""                       # autograd's name
    said: str = ""                       # operations.words of the node
    name: str = ""                       # of a parameter, buffer, input, label
    because: str = ""
    line: Line | None = None             # where the operation was called, if torch kept that
    numbers: dict[str, Any] = field(default_factory=dict)
    became_nan: str = ""                 # where an infinity became NaN, in words
    candidates: list[str] = field(default_factory=list)
    nodes: int = 0
    tensors: int = 0
    bytes: int = 0

    @property
    def is_seen(self) -> bool:
        return self.what != UNSEEN


def counted_of(values: Values) -> str:
    bad = values.nan or values.inf
    return (f"{bad:,} of its {values.count:,} elements {'is' if bad == 1 else 'are'} "
            f"{'NaN' if values.nan else 'infinite'}")
