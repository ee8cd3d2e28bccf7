"""Small runs to try a rule on, and judging them with the real program. For tests of rules of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Verdict(NamedTuple):
    """What the program said of a run."""

    status: str  #: "IssuesFound", "NoIssuesFound", "Error", "Stopped", "InProgress"
    details: str
    steps_judged: int
    findings: list[dict[str, Any]]  #: keys: global_step, tensor, worker, measure, value, comparison, threshold, text


_KINDS = {"gradients": "gradient", "weights": "weight", "biases": "bias", "losses": "loss", "outputs": "output"}


def write_run(directory: str | os.PathLike[str], tensors: Mapping[str, Mapping[str, Sequence[Any]]],
              raw_every: int = 1) -> str:
    """Writes a run as a training would; its directory.

    :param directory: must not exist
    :param tensors: collection -> name -> one array per TRAIN step; None: absent at that step
    :param raw_every: values are kept every so many steps, statistics at every step
    """
    from tdbg._capture import Run

    schedule = {"interval": raw_every, "start": 0, "end": -1, "steps": []}
    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0,
            "collections": [{"name": name, "kinds": [_KINDS.get(name, name)], "keep": True, "summaries": True,
                             "raw": {"train": schedule}} for name in tensors]}
    run = Run.open(directory=str(directory), plan_json=json.dumps(plan))
    series = []
    for collection, members in tensors.items():
        for name, values in members.items():
            arrays = [None if v is None else np.ascontiguousarray(v) for v in values]
            first = next(v for v in arrays if v is not None)
            series.append((run.define(name, name, _KINDS.get(collection, collection), "", first.dtype.name,
                                      list(first.shape)), arrays))
    for step in range(max(len(arrays) for _, arrays in series)):
        run.begin_step(1)
        for ident, arrays in series:
            array = arrays[step] if step < len(arrays) else None
            if array is not None:
                run.put_array(ident, array)
        run.end_step()
    run.end("completed")
    return str(directory)


def check(directory: str | os.PathLike[str], rule: str, **parameters: object) -> Verdict:
    """Judges a run with `tdbg check --rule-file`.

    :param rule: "FILE.py:CLASS" or "FILE.so:CLASS"
    :param parameters: the rule's; also limit_seconds, limit_memory
    :raises ValueError: tdbg refused the rule; its words
    """
    from tdbg.program import program

    words = [program(), "check", str(directory), "--json", "--rule-file", rule]
    words += [f"{key}={value}" for key, value in parameters.items()]
    done = subprocess.run(words, capture_output=True, text=True, env={"TDBG_PYTHON": sys.executable, **os.environ})
    if done.returncode not in (0, 1, 8):
        raise ValueError(done.stderr.strip())
    status, = json.loads(done.stdout)["rules"]
    return Verdict(status["RuleEvaluationStatus"], status["StatusDetails"], status["steps_judged"], status["findings"])
