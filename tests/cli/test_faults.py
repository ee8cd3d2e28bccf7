"""The demonstrations of examples/faults: each fault trips its rules on a real training, and its healthy twin does not."""

import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

from program import ROOT  # noqa: E402

FAULTS = ROOT / "examples" / "faults"
# Script -> rules with their parameters. `interval` where the default would take a longer training.
TRAININGS = {
    "vanishing": [["vanishing_gradient"]],
    "exploding": [["exploding_tensor"]],
    "unchanged": [["unchanged_tensor", "collection_names=weights", "interval=10"]],
    "overfit": [["overfit"]],
    "plateau": [["loss_not_decreasing", "interval=40"], ["overtraining", "interval=20"],
                ["weight_update_ratio", "interval=20"]],
    "initialisation": [["poor_weight_initialization"],
                       ["tensor_variance", "collection_names=relu_input", "min_threshold=0.01"]],
    "imbalance": [["class_imbalance", "labels_regex=loss_input_1",
                   "predictions_regex=loss_input_0", "argmax=True", "threshold_misprediction=1"],
                  ["class_imbalance", "name=by_its_defaults"]],
    "cut_off": [["all_zero", "collection_names=gradients"]],
    "dead_relu": [["dead_relu"]],
    "saturated": [["saturated_activation"]],
    "pixels": [["check_input_images"]],
    "padding": [["nlp_sequence_ratio"]],
}
# Those that every landing tries: one rule of gradients, one of weights over steps, one of outputs.
ALWAYS = ("exploding", "saturated")


@pytest.fixture
def captures(tdbg):
    probe = tdbg("doctor", "--python", sys.executable, "--json")
    capture = next((f for f in json.loads(probe.stdout) if f["what"] == "tdbg._capture"), {"answer": "no Python"})
    if capture.get("verdict") != "good":
        pytest.skip(f"the extension does not load here: {capture['answer']}")


def train(tdbg, name, rules, *arguments):
    flags = [word for rule in rules for word in ("--rule", *rule)]
    done = tdbg("run", "--dir", "r", *flags, "--", sys.executable, FAULTS / f"{name}.py", *arguments, timeout=240)
    assert done.returncode == 0, done.stderr
    report = tdbg.json("status", "r")
    assert report["dropped"] == [], report["dropped"]
    return report["rules"]


# What the gradients of healthy models are zero by, by mathematics or by design. A linear warm-up as people use it.
ZERO_BY_DESIGN = """
import torch
from torch import nn
torch.manual_seed(0)

class Lora(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.lora_A, self.lora_B = nn.Linear(size, 4, bias=False), nn.Linear(4, size, bias=False)
        nn.init.zeros_(self.lora_B.weight)
    def forward(self, x):
        return self.lora_B(self.lora_A(x))

class Block(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.fc1, self.fc2, self.gamma = nn.Linear(size, size), nn.Linear(size, size), nn.Parameter(torch.full((size,), scale))
    def forward(self, x):
        return x + self.gamma * self.fc2(torch.relu(self.fc1(x)))

class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
    def forward(self, x):
        return torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) / size ** 0.5, -1) @ self.value(x)

size = 16
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv1d(1, size, 3, padding=1), nn.BatchNorm1d(size)
        self.rezero, self.small = Block(size, 0.0), Block(size, 1e-6)
        self.attention, self.lora, self.head = Attention(size), Lora(size), nn.Linear(size, 1)
    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x))).transpose(1, 2)
        x = self.attention(self.small(self.rezero(x)))
        return self.head(x + self.lora(x)).mean(1)

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 20))
for step in range(60):
    x = torch.randn(32, 1, size)
    loss = (model(x) - x.mean(-1)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step(); warm_up.step()
"""


@pytest.mark.parametrize("steps", [pytest.param(2, marks=pytest.mark.long), 60])
def test_what_is_zero_by_mathematics_or_by_design_has_not_vanished(tdbg, captures, steps):
    (tdbg.directory / "train.py").write_text(ZERO_BY_DESIGN.replace("range(60)", f"range({steps})"))
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "--rule", "poor_weight_initialization", "--",
                sys.executable, "train.py", timeout=120)
    assert done.returncode == 0, done.stderr
    vanishing, poor = tdbg.json("status", "r")["rules"]
    assert vanishing["RuleEvaluationStatus"] == "NoIssuesFound", vanishing["StatusDetails"]
    assert "gradient/Net_conv.bias: its weight's gradient has not vanished" in vanishing["StatusDetails"]
    assert poor["RuleEvaluationStatus"] == "NoIssuesFound", poor["StatusDetails"]


@pytest.mark.parametrize("twin", ["faulty", "healthy"])
@pytest.mark.parametrize("name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in TRAININGS])
def test_a_fault_trips_its_rules_and_the_healthy_twin_does_not(tdbg, captures, name, twin):
    statuses = train(tdbg, name, TRAININGS[name], *(["--healthy"] if twin == "healthy" else []))
    expected = "IssuesFound" if twin == "faulty" else "NoIssuesFound"
    for status in statuses:
        assert status["RuleEvaluationStatus"] == expected, (status["RuleConfigurationName"], status["StatusDetails"])
        if twin == "faulty":
            assert status["findings"] and status["StatusDetails"].startswith("RuleEvaluationConditionMet: ")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_is_learnt_by_heart_is_said_without_a_rule(tdbg, captures, seed):
    train(tdbg, "overfit", [], "--seed", seed)
    (incident,) = tdbg.json("status", "r")["incidents"]
    assert incident["detector"] == "validation_rises", incident
    (tdbg.directory / "r").rename(tdbg.directory / "faulty")
    (status,) = train(tdbg, "overfit", [], "--seed", seed, "--healthy")
    assert status["RuleEvaluationStatus"] == "NoIssuesFound" and tdbg.json("status", "r")["incidents"] == [], status


@pytest.mark.long
def test_counts_are_kept_and_the_outputs_are_not(tdbg, captures):
    train(tdbg, "dead_relu", [["dead_relu"]], "--healthy")
    listed = {t["name"]: t for t in tdbg.json("tensors", "r", "--all")}
    assert [n for n in listed if n.startswith("statistic/")] == [
        f"statistic/count_above(0)/{n}_output_0" for n in ("1", "3", "6")]
    assert all(listed[f"{n}_output_0"]["raw_steps"] == [] for n in ("1", "3", "6"))
    assert not any(t["name"].startswith("statistic/") for t in tdbg.json("tensors", "r"))
    shown = tdbg.json("show", "r", "statistic/count_above(0)/3_output_0", "--steps", "5")
    assert shown["values"][0]["shape"] == [2 + 16]
    assert shown["values"][0]["values"][:2] == [128 * 16, 128]


@pytest.mark.long
def test_other_bounds_than_were_kept_are_an_error_that_names_them(tdbg, captures):
    train(tdbg, "saturated", [["saturated_activation"]], "--healthy")
    assert tdbg("check", "r", "--rule", "saturated_activation").returncode == 0
    again = tdbg("check", "r", "--rule", "saturated_activation", "threshold_tanh_max=3", "--json")
    assert again.returncode == 8, again.stdout
    details = json.loads(again.stdout)["rules"][0]["StatusDetails"]
    assert "count_within(-9.4999,3) of 1_input_0 was not kept (kept: count_within(-9.4999,9.4999))" in details


def test_every_demonstration_is_run():
    in_readme = {"born_nan", "detached"}    # tests/docs/test_front_door.py
    scripts = {path.stem for path in FAULTS.glob("*.py")} - {"data"}
    assert scripts == set(TRAININGS) | in_readme, "a script without a test, or a test without a script"
