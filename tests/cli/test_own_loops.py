"""Loops of which the script says what a step is, and scripts in which nothing steps, as `tdbg run` sees them."""

import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

from test_training import script  # noqa: E402,F401

PRELUDE = """
import torch, tdbg
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
"""
WGAN = PRELUDE + """
generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
of_generator, of_critic = (torch.optim.RMSprop(m.parameters(), lr=5e-3) for m in (generator, critic))
for step in range(4):
    for _ in range(5):
        of_critic.zero_grad()
        (critic(generator(torch.randn(4, 2)).detach()).mean() - critic(torch.randn(4, 3)).mean()).backward()
        of_critic.step()
    of_generator.zero_grad()
    (-critic(generator(torch.randn(4, 2))).mean()).backward()
    of_generator.step()
    tdbg.step()
"""
#: What a script does -> its lines, and what is said of it.
STEPLESS = {
    "an optimizer of its own": ("""
class Own:                              # no torch.optim.Optimizer, and nobody says tdbg.step()
    def __init__(self, parameters):
        self.parameters = list(parameters)
    def step(self):
        with torch.no_grad():
            for p in self.parameters:
                p -= 0.1 * p.grad
                p.grad = None
model = nn.Linear(4, 3)
optimizer = Own(model.parameters())
for _ in range(3):
    nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
    optimizer.step()
""", ["3 forwards of the model, 3 losses, 3 calls of backward, and no optimizer stepped", "tdbg.attach(model)", "tdbg.step()"]),
    "an optimizer that is never stepped": ("""
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
""", ["no optimizer stepped, so no weight was updated: SGD was made, and step() was never called",
      "call optimizer.step() after backward()"]),
    "an evaluation": ("""
model = nn.Linear(4, 3).eval()
with torch.no_grad():
    for _ in range(5):
        nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3))
""", ["5 losses, and no optimizer stepped", "this was an evaluation, and tdbg records trainings"]),
    "an evaluation of a model that has an optimizer": ("""
model = nn.Linear(4, 3)
torch.optim.SGD(model.parameters(), lr=0.1)      # a checkpoint's, as scripts restore it
model.eval()
with torch.no_grad():
    for _ in range(5):
        nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3))
""", None),
}


def start(tdbg, source, *flags):
    (tdbg.directory / "loop.py").write_text(source)
    return tdbg("run", "--dir", "run", *flags, "--", sys.executable, "loop.py", env={"PYTHONPATH": tdbg.env["TDBG_HOME"]},
                timeout=120)


@pytest.mark.parametrize("config", ["by_call.yaml", pytest.param("by_call.json", marks=pytest.mark.long)])
def test_a_step_is_what_lies_between_two_calls_where_the_configuration_says_so(tdbg, script, config):  # noqa: F811
    (tdbg.directory / config).write_text(
        "step_by: call\nrules: []\n" if config.endswith("yaml") else json.dumps({"step_by": "call", "rules": []}))
    done = start(tdbg, WGAN, "--config", config)
    assert done.returncode == 0, done.stderr
    shown = {name: tdbg.json("show", "run", name) for name in ("Linear_weight", "gradient/Linear_weight", "Linear_1_weight")}
    assert [[row["global_step"] for row in document["steps"]] for document in shown.values()] == [[0, 1, 2, 3]] * 3
    steps = tdbg.json("status", "run")["steps"]
    assert (steps["all"], steps["TRAIN"]) == (4, 4), "the critic stepped 20 times"


@pytest.mark.long
@pytest.mark.parametrize("what", STEPLESS)
def test_where_nothing_steps_it_is_said_what_was_seen(tdbg, script, what):  # noqa: F811
    source, words = STEPLESS[what]
    done = start(tdbg, PRELUDE + source)
    assert done.returncode == 0, done.stderr
    if words is None:        # an optimizer was made: evaluations are steps, and no training is missed
        assert "no optimizer stepped" not in done.stderr
        assert tdbg.json("status", "run")["steps"]["EVAL"] == 5
        return
    for word in words:
        assert word in " ".join(done.stderr.split()), done.stderr
    assert "never imported" not in done.stderr
