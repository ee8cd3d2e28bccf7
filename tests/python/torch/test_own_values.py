"""What the script records by itself, and no step is open."""

import contextlib
import json
import os
import pathlib
import subprocess
import types

import pytest
import tdbg
import torch
from torch import nn

from tdbg.adaptors.attached import AttachedLoop, AttachedRun
from tdbg.adaptors.waiting import MOST

TDBG = os.environ.get("TDBG_CLI", str(pathlib.Path(__file__).resolve().parents[3] / "build" / "tdbg"))


def train(steps, model=None):
    model = model or nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_what_is_recorded_after_the_last_step_is_there(watch):
    session = watch(names=["mine"])
    train(2)
    session.record_scalar("accuracy", 0.5, "")
    session.record_value("confusion", torch.ones(2, 2), "mine")
    [run] = session.made
    session.finish("closed")
    assert run.end_scalars == {("scalar/accuracy", 0): 0.5}
    assert run.end_values["confusion", 0, 0].tolist() == [[1, 1], [1, 1]]


def test_what_the_script_records_where_no_step_comes_is_counted(watch):
    session = watch()
    train(1)
    for _ in range(MOST + 3):
        session.record_scalar("accuracy", 0.5, "")
    assert [count for _, count, _ in session.made[0].lost] == [1, 1, 1]


def test_a_number_that_waits_for_its_step_is_the_one_that_was_given(watch):
    session = watch()
    train(1)
    total = torch.tensor(3.0)
    session.record_scalar("total", total, "")
    total.zero_()
    train(1)
    session.finish("closed")
    found = [step.scalars["scalar/total", 0] for step in session.made[0].steps if ("scalar/total", 0) in step.scalars]
    assert found == [3.0]


def test_a_sparse_tensor_of_the_scripts_is_a_dense_one(watch):
    session = watch(names=["mine"])
    train(1)
    session.record_value("edges", torch.eye(3).to_sparse(), "mine")
    train(1)
    session.finish("closed")
    steps = session.made[0].steps
    assert [step.values["edges", 0, 0].tolist() for step in steps if ("edges", 0, 0) in step.values] == [torch.eye(3).tolist()]
    assert all(any(name.startswith("gradient/") for name, *_ in step.values) for step in steps)


def test_a_name_that_cannot_be_recorded_is_given_up_and_nothing_else(watch, capfd):
    session = watch(strict=False)
    train(1)
    attached = AttachedLoop(session)
    for _ in range(20):
        attached.record("mine", object())
    train(2)
    session.finish("closed")
    assert len(session.made[0].steps) == 3 and capfd.readouterr().err.count("tdbg:") == 1


@pytest.mark.parametrize("raised, reason", [(SystemExit(), "completed"), (SystemExit(0), "completed"),
                                            (SystemExit(3), "exception"), (ValueError("no"), "exception")])
def test_leaving_by_sys_exit_is_no_failure(raised, reason):
    ends = []
    with contextlib.suppress(SystemExit, ValueError), AttachedRun(types.SimpleNamespace(finish=lambda *how: ends.append(how))):
        raise raised
    assert [how[0] for how in ends] == [reason]


def test_it_can_be_read_and_shown(tmp_path):
    model = nn.Linear(4, 3)
    attached = tdbg.attach(model, dir=str(tmp_path / "run"))
    train(4, model)
    attached.scalar("final_accuracy", 0.93)
    attached.close()
    final = tdbg.open(str(tmp_path / "run")).tensor("scalar/final_accuracy")
    assert final.steps() == [] and final.final_value() == 0.93 and final.final_summary().mean == 0.93

    def show(*arguments):
        return subprocess.run([TDBG, "show", str(tmp_path / "run"), *arguments], capture_output=True, text=True, timeout=60)

    assert "end   -      0.93" in show("scalar/final_accuracy").stdout
    assert json.loads(show("Linear_weight", "--json").stdout)["end"]["count"] == 12
    assert show("scalar/final_accuracy", "--steps", "0:2").returncode == 4
