"""Losses that a script computes by itself, under `tdbg run`: what is wrong with them is found, their twins are silent."""

import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

SCRIPT = """
import sys, torch
from torch import nn

fault = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
if fault == "reach":
    net.append(nn.ReLU())
optimizer = torch.optim.Adam(net.parameters(), 3e-3)
inputs = torch.randn(512, 8)
targets = inputs[:, 0] + 0.5 * inputs[:, 1] * inputs[:, 2] + 0.1 * torch.randn(512)
if fault == "unscaled":
    targets = 5000 + 3000 * targets
steps = 60 if fault in ("broadcast", "reach") else 400
for step in range(steps):
    chosen = torch.randint(0, 512, (32,))
    out, y = net(inputs[chosen] if fault != "blind" else 0.001 * torch.randn(32, 8)), targets[chosen]
    if fault == "shuffled":
        y = y[torch.randperm(32)]
    if fault != "broadcast":
        out = out.squeeze(1)
    loss = ((out - y) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


@pytest.fixture
def found(tdbg):
    """The incidents of a fault's run: {id of its cause: sentence}."""
    (tdbg.directory / "train.py").write_text(SCRIPT)

    def of(fault):
        tdbg("run", "--dir", fault, "--", sys.executable, "train.py", fault, timeout=600)
        checked = json.loads(tdbg("check", fault, "--json").stdout)
        return {incident["id"]: incident["sentence"] for incident in checked["incidents"]}
    return of


@pytest.mark.parametrize("fault, cause, words", [
    ("shuffled", "no_improvement", "times that of predicting the targets' mean"),
    ("blind", "predicts_a_constant", "predictions differ between rows by"),
    ("unscaled", "targets_unscaled", "targets have a root mean square of"),
    ("reach", "targets_out_of_reach", "come from a ReLU, which gives nothing below 0"),
])
def test_what_is_compared_is_judged(found, fault, cause, words):
    incidents = found(fault)
    assert list(incidents) == [cause] and words in " ".join(incidents[cause].split())


def test_pairs_of_all_predictions_with_all_targets(found):
    assert found("well") == {}
    incident = found("broadcast")
    assert list(incident) == ["loss_broadcast"]
    assert "differences of shape [32,32], of predictions of shape [32,1]" in incident["loss_broadcast"]
