"""What the script records by itself, and no step is open."""

import json
import os
import pathlib
import subprocess

import tdbg
import torch
from torch import nn

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
