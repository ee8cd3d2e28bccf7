"""Where what is not finite began, as the training process found it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NanOrigin:
    """Where a NaN or an infinity began. `what`: "operation", "parameter", "buffer", "input", "label", "constant"
    (something without a gradient), or "unseen": then `because` says why it could not be seen."""

    global_step: int
    worker: str
    attempt: int
    #: All of it in words: the title, and why, with the numbers.
    sentence: str
    title: str
    what: str
    #: "forward" (the loss is not finite) or "backward" (the loss is, a gradient is not).
    direction: str
    #: "log", "matmul", ...; "" where it is no operation.
    operation: str
    #: Layers: the one it is in, or those before and behind it. "" where there is none.
    inside: str
    after: str
    before: str
    #: Of the parameter, buffer, input or label.
    name: str
    because: str
    numbers: dict[str, Any]
    #: What to do about it; "" where nothing is known.
    advice: str
    #: The line of the script, and its text; "" and 0 where it is not known. `record["line_of"]` says what stands in it.
    file: str
    line: int
    code: str
    #: All fields of the record (docs/format.md, "Where a NaN began").
    record: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.global_step}: {self.sentence}"


_TEXTS = ("sentence", "title", "what", "direction", "operation", "inside", "after", "before", "name", "because",
          "advice", "file", "code")


def origins_of(records: Iterable[tuple[str, int, int, str]]) -> list[NanOrigin]:
    """:param records: (worker, attempt, global step, JSON); what is no such record is left out"""
    found = []
    for worker, attempt, step, text in records:
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if not isinstance(record, dict) or not isinstance(record.get("sentence"), str):
            continue
        texts = {key: str(record.get(key, "")) for key in _TEXTS}
        numbers, line = record.get("numbers"), record.get("line")
        found.append(NanOrigin(global_step=step, worker=worker, attempt=attempt, record=record,
                               numbers=numbers if isinstance(numbers, dict) else {},
                               line=line if isinstance(line, int) else 0, **texts))
    return sorted(found, key=lambda o: (o.attempt, o.global_step, o.what == "unseen", o.direction != "forward"))
