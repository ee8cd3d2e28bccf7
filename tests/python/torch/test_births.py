"""Of each birth of births.py and births_more.py: what is said of it, and that nothing is said of healthy trainings.

How many are right, and were at first: docs/nan-origin.md, "How often it is right".
"""

import re
import warnings

import pytest
import torch
from births import BIRTHS
from births_healthy import HEALTHY
from births_more import MORE

RIGHT, VAGUE, MISSED, WRONG, FALSE = "right", "vague", "missed", "wrong", "false reason"
ALL = {**BIRTHS, **MORE}
#: In the gate: those of which something false was said once, and whose answers had to be made sure of since.
SOON = ["scores in half precision", "noise of a Gumbel that is infinite", "two masks that add up to -infinity", "softmax of a row that where masked",
        "multi-head attention of padding alone", "an input that forward changed in place", "what was not initialised", "an input that is far too large",
        "a frozen layer's weight", "a row that is met late", "a learning rate of infinity", "a learning rate of NaN", "Adam without an eps",
        "Adam in half precision", "a NaN in Adam's state", "missing labels, left out by where", "derivative of eigenvectors that repeat",
        "a root at 0 at every step under a scaler", "weights that the script divides by 0"]
SOON_HEALTHY = ["a scaler that begins far too high", "validation, NaN", "gradients that the script cleans", "where, guarded before",
                "causal mask of -infinity", "infinite bound of a clamp"]
#: Of which too little is known; it is said to be.
UNKNOWN = {"0 times -infinity", "divergence from logarithms of 0", "ratio of two masked policies", "sums in half precision",
           "gradients that the script divides by 0", "gradients that grow", "cubed in float16", "scores in half precision, with a mask"}
_NO_REASON = re.compile("all that (it was given|was given to it and to others).*(is finite, and (its|their) result is not)|is not kept")


def marked(names, soon):
    return [pytest.param(name, marks=() if name in soon else pytest.mark.long) for name in names]


def records_of(watch, train):
    torch.manual_seed(0)
    session = watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train()
    session.finish("closed")
    return [record for _, record in session.made[0].contexts.get("nan_origin", [])]


def graded(birth, records):
    """What is said, against what was written down before. `vague`: nothing false, and too little to mend it by."""
    if not records:
        return MISSED
    record = records[0]
    where = record["direction"] == birth.direction and re.fullmatch(birth.what, record["what"]) \
        and re.fullmatch(birth.operation or ".*", record["operation"]) and re.fullmatch(birth.name or ".*", record["name"])
    if re.search(birth.never, record["sentence"] + record["advice"]):
        return FALSE
    if where and re.search(birth.because, record["sentence"]):
        return RIGHT
    if record["what"] == "unseen" or where and _NO_REASON.search(record["because"]):
        return VAGUE
    return FALSE if where else WRONG


@pytest.mark.parametrize("name", marked(ALL, SOON))
def test_birth(watch, name):
    records = records_of(watch, ALL[name].train)
    expected = (RIGHT, VAGUE) if name in UNKNOWN else (RIGHT,)
    assert graded(ALL[name], records) in expected, [f"{r['what']} {r['operation']}: {r['sentence']} | {r['advice']}" for r in records]


@pytest.mark.parametrize("name", marked(HEALTHY, SOON_HEALTHY))
def test_healthy(watch, name):
    assert [r["sentence"] for r in records_of(watch, HEALTHY[name])] == []


def test_nine_of_ten_are_right():
    assert len(UNKNOWN) <= len(ALL) / 10
