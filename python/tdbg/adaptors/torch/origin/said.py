"""A birth in words, and as the record of a run (docs/format.md, "Where a NaN began")."""

from __future__ import annotations

import math
from typing import Any

import torch

from .advice import advice
from .birth import BUFFER, CONSTANT, INPUT, LABEL, OPERATION, PARAMETER, UNSEEN, Birth
from .lines import Line


def inputs_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """What a model is called with, and what each is called in a sentence."""
    found: list[tuple[str, Any]] = []
    for n, value in enumerate(args):
        if isinstance(value, dict):
            found += [(f"the model's input {key!r}", v) for key, v in value.items()]
        elif isinstance(value, (list, tuple)):
            found += [(f"the model's input {n}[{k}]", v) for k, v in enumerate(value)]
        else:
            found.append((f"the model's input {n}" if n else "the model's input", value))
    found += [(f"the model's input {key!r}", value) for key, value in kwargs.items()]
    return [(name, value) for name, value in found if type(value) is torch.Tensor]


def title_of(birth: Birth, direction: str, noun: str) -> str:
    place = birth.place.words()
    where = f", {place}" if place else ""
    whose = "the loss" if direction == "forward" else "gradients"
    if birth.what == UNSEEN:
        return f"{whose} became {noun}, and where that began could not be seen"
    if birth.what == OPERATION:
        return f"{whose} became {noun} in {birth.said}{where}"
    if birth.what in (PARAMETER, BUFFER, INPUT, LABEL):
        what = f"the {birth.what} {birth.name}" if birth.what in (PARAMETER, BUFFER) else birth.name
        verb = "is" if direction == "forward" else "are"
        return f"{whose} {verb} {noun} because {what} {'are' if birth.what == LABEL else 'is'} not finite"
    assert birth.what == CONSTANT
    return f"the loss became {noun} by what {birth.said} was given without a gradient{where}"


def sentence_of(birth: Birth, direction: str, noun: str, loss: Line | None = None, history: str = "") -> str:
    """All of it. `loss`: the line of the script that is named where that of the operation is not known. `history`: of
    a parameter, what made it so."""
    sentence = f"{title_of(birth, direction, noun)}: {birth.because}"
    if birth.line is not None:
        sentence += f" ({birth.line.words()})"
    if birth.became_nan:
        sentence += f"; {birth.became_nan}"
    if history:
        sentence += f"; {history}"
    elif birth.line is None and loss is not None:      # which says nothing of who wrote to a parameter
        sentence += f" ({loss.words()})"
    return sentence


def record_of(birth: Birth, direction: str, noun: str, loss: Line | None = None,
              history: dict[str, Any] | None = None) -> dict[str, Any]:
    """As JSON has it. `history`: its `text` goes into the sentence."""
    line = birth.line or loss
    record: dict[str, Any] = {
        "title": title_of(birth, direction, noun),
        "sentence": sentence_of(birth, direction, noun, loss, (history or {}).get("text", "")),
        "direction": direction,
        "state": noun,
        "what": birth.what,
        "operation": birth.operation,
        "node": birth.node,
        "inside": birth.place.inside,
        "after": birth.place.after,
        "before": birth.place.before,
        "name": birth.name,
        "because": birth.because,
        "numbers": {k: _number(v) for k, v in birth.numbers.items()},
        "became_nan": birth.became_nan,
        "advice": advice(birth, direction, (history or {}).get("found") or (history or {}).get("by", "")),
        "candidates": birth.candidates,
    }
    if line is not None:
        record |= {"file": line.file, "line": line.number, "code": line.code, "line_of": line.of}
    if history:
        record["update"] = history
    return record


def _number(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
