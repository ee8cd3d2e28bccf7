"""A forward after the last update is no step, whichever way it is made and whatever is recorded; the readers of a run agree."""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from test_black_box import CLI, run
from torch import nn

import tdbg

STEPS = 5


def forward(model, x):
    model(x)


def without_gradients(model, x):
    with torch.no_grad():
        model(x)


def loss(model, x):
    return F.mse_loss(model(x), torch.zeros(8, 2))


def backward(model, x):
    loss(model, x).backward()


def evaluated(model, x):
    model.eval()
    with torch.no_grad():
        loss(model, x)
    model.train()


def micro_step_and_evaluation(model, x):
    backward(model, x)
    evaluated(model, x)


def clipped(model, x):
    backward(model, x)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def several(model, x):
    forward(model, x)
    without_gradients(model, x)
    forward(model, x)


TRAILING = {f.__name__: f for f in (forward, without_gradients, loss, backward, micro_step_and_evaluation, clipped, several)}


def train(watch, trailing, steps=STEPS, kinds=("weight", "gradient", "loss", "output"), **options):
    torch.manual_seed(0)
    session = watch(kinds=kinds, **options)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        backward(model, torch.randn(8, 6))
        optimizer.step()
    trailing(model, torch.randn(8, 6))
    session.finish("closed")
    return session.made[0], session


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize("kinds", [("weight", "gradient", "loss"), ("weight", "gradient", "loss", "output")], ids=["plain", "outputs"])
@pytest.mark.parametrize("trailing", TRAILING)
def test_it_is_no_step(watch, trailing, kinds, lane):
    made, _ = train(watch, TRAILING[trailing], kinds=kinds, force_lane=lane)
    modes = [step.mode for step in made.steps]
    assert modes.count(1) == STEPS == made.modes[1] + 1
    assert modes.count(2) == (trailing == "micro_step_and_evaluation")
    assert made.end_values, "the final weights are there all the same"


@pytest.mark.parametrize("lane", [False, True])
def test_a_training_without_an_update_has_no_step_and_says_so(watch, lane):
    made, session = train(watch, backward, steps=0, force_lane=lane)
    assert made.steps == [] and any("no optimizer stepped" in said for *_, said in made.lost)


SCRIPT = textwrap.dedent("""
    import sys, torch, torch.nn as nn, torch.nn.functional as F, tdbg
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        loss = F.mse_loss(model(torch.randn(8, 6)), torch.zeros(8, 2))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    model(torch.randn(8, 6))
    if sys.argv[1] == "backward":
        F.mse_loss(model(torch.randn(8, 6)), torch.zeros(8, 2)).backward()
        model.eval()
        with torch.no_grad():
            F.mse_loss(model(torch.randn(8, 6)), torch.zeros(8, 2))
""")


@pytest.mark.parametrize("collect", ["outputs", "outputs:1"])
@pytest.mark.parametrize("trailing", ["forward", "backward"])
def test_all_readers_agree(tmp_path, trailing, collect):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = run("run", "--dir", tmp_path / "run", "--collect", collect, "--", sys.executable, script, trailing)
    assert done.returncode == 0, done.stderr
    evaluations = int(trailing == "backward")
    assert ("5 TRAIN, 1 EVAL" if evaluations else "steps 0 to 4") in done.stderr, done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps(mode="TRAIN")) == STEPS
    name = "2_output_0"
    assert trial.tensor(name).steps(mode="TRAIN") == list(range(STEPS))
    tensors = json.loads(subprocess.run([*CLI, "tensors", str(tmp_path / "run"), "--json"], capture_output=True, text=True, check=True).stdout)
    shown = next(t for t in tensors if t["name"] == name)
    assert len(shown["summary_steps"]) == STEPS + evaluations and len(shown["raw_steps"]) in (0, STEPS + evaluations)
    status = json.loads(run("status", tmp_path / "run", "--json").stdout)
    assert {mode: status["steps"].get(mode, 0) for mode in ("all", "TRAIN", "EVAL", "last")} == {
        "all": STEPS + evaluations, "TRAIN": STEPS, "EVAL": evaluations, "last": STEPS - 1 + evaluations}
    assert not status["dropped"], status["dropped"]
