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
classes = "classes" in fault
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4 if classes else 1))
if "twice" in fault:
    net.append(nn.Softmax(1))
if fault == "reach":
    net.append(nn.ReLU())
optimizer = torch.optim.Adam(net.parameters(), 3e-3)
inputs = torch.randn(512, 8)
targets = inputs[:, 0] + 0.5 * inputs[:, 1] * inputs[:, 2] + 0.1 * torch.randn(512)
if fault == "unscaled":
    targets = 5000 + 3000 * targets
labels = (targets > 0).long() + 2 * (inputs[:, 3] > 0)
if "sorted" in fault:
    inputs = inputs[labels.argsort()]
    labels = labels.sort().values
steps = 400 if fault in ("shuffled", "blind", "unscaled", "well", "classes", "classes, shuffled") else 60
for step in range(steps):
    chosen = torch.randint(0, 512, (32,))
    if "sorted" in fault:
        chosen = torch.arange(32) + 32 * step % 512
    out, y = net(inputs[chosen] if fault != "blind" else 0.001 * torch.randn(32, 8)), targets[chosen]
    if "shuffled" in fault:
        y, chosen = y[torch.randperm(32)], chosen[torch.randperm(32)]
    if fault != "broadcast" and not classes:
        out = out.squeeze(1)
    if not classes:
        loss = ((out - y) ** 2).mean()
    else:
        loss = -torch.log_softmax(out, 1)[range(32), labels[chosen]].mean()
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
    ("classes, shuffled", "no_improvement", "as good as guessing (1.386), and no longer falls"),
    ("classes, twice", "not_logits", "softmax is given what a softmax gave"),
    ("classes, sorted", "labels_sorted", "have labels of one class alone"),
])
def test_what_is_compared_is_judged(found, fault, cause, words):
    incidents = found(fault)
    assert list(incidents) == [cause] and words in " ".join(incidents[cause].split())


def test_pairs_of_all_predictions_with_all_targets(found):
    assert found("well") == {} and found("classes") == {}
    incident = found("broadcast")
    assert list(incident) == ["loss_broadcast"]
    assert "differences of shape [32,32], of predictions of shape [32,1]" in incident["loss_broadcast"]
