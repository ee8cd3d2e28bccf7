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
    assert report["losses"] == [], report["losses"]
    return report["rules"]


@pytest.mark.parametrize("twin", ["faulty", "healthy"])
@pytest.mark.parametrize("name", TRAININGS)
def test_a_fault_trips_its_rules_and_the_healthy_twin_does_not(tdbg, captures, name, twin):
    statuses = train(tdbg, name, TRAININGS[name], *(["--healthy"] if twin == "healthy" else []))
    expected = "IssuesFound" if twin == "faulty" else "NoIssuesFound"
    for status in statuses:
        assert status["RuleEvaluationStatus"] == expected, (status["RuleConfigurationName"], status["StatusDetails"])
        if twin == "faulty":
            assert status["findings"] and status["StatusDetails"].startswith("RuleEvaluationConditionMet: ")


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


def test_other_bounds_than_were_kept_are_an_error_that_names_them(tdbg, captures):
    train(tdbg, "saturated", [["saturated_activation"]], "--healthy")
    assert tdbg("check", "r", "--rule", "saturated_activation").returncode == 0
    again = tdbg("check", "r", "--rule", "saturated_activation", "threshold_tanh_max=3", "--json")
    assert again.returncode == 8, again.stdout
    details = json.loads(again.stdout)["rules"][0]["StatusDetails"]
    assert "count_within(-9.4999,3) of 1_input_0 was not kept (kept: count_within(-9.4999,9.4999))" in details


def test_every_demonstration_is_run():
    scripts = {path.stem for path in FAULTS.glob("*.py")} - {"data"}
    assert scripts == set(TRAININGS), "a script without a test, or a test without a script"
