"""`tdbg steps` and `tdbg diff`, on runs written for the purpose; and the same answers through Python and the command line."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest

HOME = os.environ.get("TDBG_HOME", str(pathlib.Path(__file__).resolve().parents[2] / "python"))
if not any((pathlib.Path(p) / "tdbg").is_dir() for p in sys.path if p):
    sys.path.insert(0, HOME)
pytest.importorskip("tdbg._capture", reason="the extension modules are not built")
pytest.importorskip("tdbg._trial", reason="the extension modules are not built")

import tdbg as tdbg_python  # noqa: E402
from program import damage  # noqa: E402
from tdbg._capture import Run  # noqa: E402

PLAN = json.dumps({"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
    {"name": "weights", "kinds": ["weight"], "keep": True, "raw": {"train": {"interval": 2}}},
    {"name": "losses", "kinds": ["loss"], "keep": True}]})


def begin(path):
    return Run.open(directory=str(path), plan_json=PLAN)


def write(path, **what):
    run = begin(path)
    record(run, **what)
    run.end("done")
    return path


def record(run, steps=6, change=None, evaluations=0, name="Net_fc.weight", shape=(3, 4)):
    """`change(step, weight) -> weight` is what makes one run unlike another."""
    weight = run.define(name, "", "weight", "linear", "float32", list(shape))
    loss = run.define("Loss_output_0", "", "loss", "", "float32", [])
    for step in range(steps + evaluations):
        run.begin_step(1 if step < steps else 2)
        value = np.random.default_rng(step).standard_normal(shape).astype(np.float32)
        run.put_array(weight, value if change is None else change(step, value))
        run.put_array(loss, np.array(1 / (step + 1), np.float32))
        run.end_step()


def from_step(first, difference, index=(1, 2)):
    def change(step, value):
        if step >= first:
            value[index] += difference
        return value
    return change


def test_equal_runs_are_the_same(tdbg, tmp_path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    assert tdbg.ok("diff", a, b).stdout.startswith("the same exactly: ")
    found = tdbg.json("diff", a, b)
    assert found["same"] and found["first"] is None
    # The loss has one element, whose statistics are its value; the weights' values are kept at every second step.
    assert found["compared"] == {"steps": 6, "values": 9, "statistics": 3}


@pytest.mark.parametrize("entry", ["summary/mean", "summary/nan_count", "summary/tensor"])
def test_what_is_damaged_is_not_the_same(tdbg, tmp_path, entry):
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    damage(b, entry)
    for first, second in ((a, b), (b, a)):
        done = tdbg("diff", first, second)
        assert done.returncode == 5 and "as far as they can be read" in done.stdout
        assert len(done.stderr.splitlines()) == 1 and entry in done.stderr and "tdbg: b: 1 place" in done.stderr
    found = json.loads(tdbg("diff", a, b, "--json").stdout)
    assert not found["same"] and found["unread"] == 9 and len(found["damage"]["b"]) == 1 and found["damage"]["a"] == []
    # A difference is one whatever else cannot be read.
    c = write(tmp_path / "c", change=from_step(2, 0.5))
    damage(c, entry)
    done = tdbg("diff", a, c)
    assert done.returncode == 1 and "they part at step 2" in done.stdout and entry in done.stderr


def test_runs_part_at_a_step_and_a_tensor_by_their_values(tdbg, tmp_path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", change=from_step(4, 0.5))
    done = tdbg("diff", a, b)
    assert done.returncode == 1
    assert "they part at step 4 (TRAIN 4): Net_fc.weight differs (exactly)" in done.stdout
    assert "1 of 12 elements, by up to 0.5" in done.stdout
    first = json.loads(tdbg("diff", a, b, "--json").stdout)["first"]
    assert (first["global_step"], first["tensor"], first["by"], first["different"], first["index"]) == (
        4, "Net_fc.weight", "values", 1, 6)
    assert first["max_abs_difference"] == pytest.approx(0.5, rel=1e-6) and first["b"] - first["a"] == pytest.approx(0.5)


def test_runs_part_by_statistics_where_values_were_not_kept(tdbg, tmp_path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", change=from_step(3, 9.0))
    first = json.loads(tdbg("diff", a, b, "--json").stdout)["first"]
    assert (first["global_step"], first["by"]) == (3, "statistics") and first["field"] in ("max", "mean", "variance", "l1")


@pytest.mark.parametrize("flags, same", [((), False), (("--rtol", "1e-3"), True), (("--atol", "1e-3"), True),
                                         (("--atol", "1e-9"), False), (("--rtol", "1e-9"), False)])
def test_tolerances(tdbg, tmp_path, flags, same):
    a = write(tmp_path / "a")
    b = write(tmp_path / "b", change=lambda step, value: value * np.float32(1.00001))
    assert tdbg("diff", a, b, *flags).returncode == (0 if same else 1)


def test_what_there_is_one_of_is_said_as_one(tdbg, tmp_path):
    a, b = (write(tmp_path / name, steps=1) for name in "ab")
    assert tdbg.ok("diff", a, b).stdout == "the same exactly: 2 values and 0 statistics of 1 step were compared\n"
    assert tdbg.ok("steps", a).stdout.startswith("TRAIN: 1 step, 0 to 0\n")
    assert "kept      2 tensors" in tdbg.ok("status", a).stdout
    exported = tdbg.ok("export", a, tmp_path / "loss.csv", "Loss", "--to", "csv").stdout
    assert "1 row of 1 step, " in exported
    assert "2 steps from 0 to 1" in tdbg.fails(4, "show", write(tmp_path / "c", steps=2), "Net_fc.weight", "--steps", "9:")
    assert "none of the run's 2 tensors matches" in tdbg.fails(4, "tensors", a, "nothing-like-it")


def test_nan_is_like_nan_and_unlike_a_number(tdbg, tmp_path):
    a, b = (write(tmp_path / name, change=from_step(2, float("nan"))) for name in "ab")
    assert tdbg("diff", a, b).returncode == 0
    c = write(tmp_path / "c")
    found = json.loads(tdbg("diff", a, c, "--rtol", "10", "--json").stdout)["first"]
    assert found["global_step"] == 2 and found["a"] == "NaN" and found["max_abs_difference"] == "NaN"


def test_other_names_steps_and_shapes_are_reported(tdbg, tmp_path):
    a = write(tmp_path / "a")
    longer, renamed, reshaped = (write(tmp_path / "b", steps=8), write(tmp_path / "c", name="Net_fc2.weight"),
                                 write(tmp_path / "d", shape=(4, 3)))
    done = tdbg("diff", a, longer)
    assert done.returncode == 1 and "steps only in the second: 6, 7" in done.stdout
    assert "the same exactly" in done.stdout
    assert tdbg("diff", a, longer, "--common").returncode == 0
    found = json.loads(tdbg("diff", a, renamed, "--json").stdout)
    assert found["only_in_a"]["tensors"] == ["Net_fc.weight"] and found["only_in_b"]["tensors"] == ["Net_fc2.weight"]
    done = tdbg("diff", a, reshaped)
    assert done.returncode == 1
    assert "float32 [3, 4] against float32 [4, 3]" in done.stdout
    assert "Net_fc.weight: float32 [3, 4] in the first, float32 [4, 3] in the second" in done.stdout


def test_what_a_growing_run_has_not_come_to_is_no_difference(tdbg, tmp_path):
    a, growing = write(tmp_path / "a", steps=6, evaluations=1), begin(tmp_path / "b")
    for pair in ((a, tmp_path / "b"), (tmp_path / "b", a)):
        assert "b has recorded more" in tdbg.fails(6, "diff", *pair)
    record(growing, steps=3)
    done = tdbg.ok("diff", a, tmp_path / "b")
    assert done.stdout.startswith("the same exactly so far: ")
    assert done.stdout.splitlines()[1:] == ["steps still to come in the second: 3, 4, 5, 6"]
    found = tdbg.json("diff", tmp_path / "b", a)
    assert found["same"] and found["over"] == {"a": False, "b": True}
    assert found["to_come_in_a"] == {"tensors": [], "steps": [3, 4, 5, 6], "workers": []}
    assert found["only_in_b"] == found["to_come_in_b"] == {"tensors": [], "steps": [], "workers": []}
    # To come no more once it has ended.
    growing.end("done")
    done = tdbg("diff", a, tmp_path / "b")
    assert done.returncode == 1 and "the same exactly: " in done.stdout
    assert "steps only in the second" not in done.stdout and "steps only in the first: 3, 4, 5, 6" in done.stdout


def test_a_growing_run_can_differ_already(tdbg, tmp_path):
    a, growing = write(tmp_path / "a", steps=2), begin(tmp_path / "b")
    record(growing, steps=4)
    done = tdbg("diff", a, tmp_path / "b")  # the first has ended, and will never have these
    assert done.returncode == 1 and "steps only in the second: 2, 3" in done.stdout
    other = write(tmp_path / "c", change=from_step(1, 0.5))
    assert "they part at step 1" in tdbg("diff", other, tmp_path / "b").stdout
    renamed = write(tmp_path / "d", name="Net_fc2.weight")
    done = tdbg("diff", renamed, tmp_path / "b")
    assert done.returncode == 1 and "tensors only in the first: Net_fc2.weight" in done.stdout


def test_a_tensor_that_comes_later_is_awaited_of_a_growing_run(tdbg, tmp_path):
    ended, growing = begin(tmp_path / "a"), begin(tmp_path / "b")
    for run, steps in ((ended, 4), (growing, 2)):
        record(run, steps=steps)
    accuracy = ended.define("accuracy", "", "loss", "", "float32", [])
    ended.begin_step(2)
    ended.put_array(accuracy, np.array(0.5, np.float32))
    ended.end_step()
    ended.end("done")
    done = tdbg.ok("diff", tmp_path / "a", tmp_path / "b")
    assert done.stdout.splitlines()[1:] == ["tensors still to come in the second: accuracy",
                                            "steps still to come in the second: 2, 3, 4"]
    # It went past that step and did not bring it.
    record(growing, steps=4)
    done = tdbg("diff", tmp_path / "a", tmp_path / "b", "--steps", "3:")
    assert done.returncode == 1 and "tensors only in the first: accuracy" in done.stdout


def test_a_worker_that_comes_later_is_awaited_of_a_growing_run(tdbg, tmp_path):
    def begin_two(path):
        return [Run.open(directory=str(path), plan_json=PLAN, rank=rank, world_size=2) for rank in range(2)]

    for path in (tmp_path / "a", tmp_path / "b"):
        for run in begin_two(path):
            record(run)
            run.end("done")
    # Started again, and only one of the two is there by now.
    again = Run.open(directory=str(tmp_path / "b"), plan_json=PLAN, rank=0, world_size=2, step_base=6)
    done = tdbg.ok("diff", tmp_path / "a", tmp_path / "b")
    assert done.stdout.splitlines()[1:] == ["workers still to come in the second: worker_1"]
    again.end("done")
    done = tdbg("diff", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and "workers only in the first: worker_1" in done.stdout


def test_a_part_can_be_compared(tdbg, tmp_path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", change=from_step(4, 0.5))
    assert tdbg("diff", a, b, "--steps", ":4").returncode == 0
    assert tdbg("diff", a, b, "^Loss").returncode == 0
    assert tdbg("diff", a, b, "--collection", "losses").returncode == 0
    assert "share no tensor" in tdbg.fails(4, "diff", a, b, "nothing-like-it")
    tdbg.fails(2, "diff", a, b, "(")
    tdbg.fails(2, "diff", a, b, "--rtol", "-1")
    assert "no run" in tdbg.fails(4, "diff", a, tmp_path / "never")


def shards(path, world, change=0):
    """A weight of eight elements of which each rank keeps its part."""
    for rank in range(world):
        run = Run.open(directory=str(path), plan_json=PLAN, rank=rank, world_size=world, attempt=0)
        size = 8 // world
        weight = run.define("Net_fc.weight", "", "weight", "linear", "float32", [size], whole_shape=[8], part_begin=[rank * size])
        for step in range(4):
            run.begin_step(1)
            whole = np.arange(8, dtype=np.float32) / 7 + step
            whole[6] += change if step >= 3 else 0
            run.put_array(weight, whole[rank * size:(rank + 1) * size])
            run.end_step()
        run.end("done")
    return path


def test_a_sharded_tensor_is_the_same_however_it_is_divided(tdbg, tmp_path):
    two, four, other = shards(tmp_path / "two", 2), shards(tmp_path / "four", 4), shards(tmp_path / "other", 4, change=1)
    assert tdbg.ok("diff", two, four, "--common").stdout.startswith("the same exactly: ")
    found = tdbg.json("diff", two, other, "--common", code=1)
    first = found["first"]
    assert (first["global_step"], first["worker"], first["by"]) == (3, "", "statistics")
    # Divided alike it is compared part by part.
    first = tdbg.json("diff", four, other, code=1)["first"]
    assert (first["global_step"], first["worker"]) == (3, "worker_3")


def test_steps(tdbg, tmp_path):
    run = write(tmp_path / "a", evaluations=2)
    lines = tdbg.ok("steps", run).stdout.splitlines()
    assert lines[:2] == ["TRAIN: 6 steps, 0 to 5", "EVAL: 2 steps, 0 to 1"]
    assert lines[-1].split() == ["7", "EVAL", "1", "0", "2"]
    found = tdbg.json("steps", run)
    assert found["modes"]["EVAL"] == {"steps": 2, "first": 0, "last": 1} and found["last_complete_step"] == 7
    assert [(s["global_step"], s["raw_values"], s["statistics"], s["complete"]) for s in found["steps"][:3]] == [
        (0, 1, 2, True), (1, 0, 2, True), (2, 1, 2, True)]
    assert [s["global_step"] for s in tdbg.json("steps", run, "--kind", "raw")["steps"]] == [0, 2, 4]
    assert [s["global_step"] for s in tdbg.json("steps", run, "--mode", "eval")["steps"]] == [6, 7]
    assert [s["global_step"] for s in tdbg.json("steps", run, "--steps", "5:7")["steps"]] == [5, 6]
    assert "train, eval, predict" in tdbg.fails(2, "steps", run, "--mode", "evla")
    assert "none of the run's steps" in tdbg.fails(4, "steps", run, "--steps", "90:")


@pytest.mark.parametrize("which", ["golden", "written"])
def test_python_and_the_command_line_give_the_same_answers(tdbg, golden, tmp_path, which):
    run = golden if which == "golden" else write(tmp_path / "a", evaluations=2)
    trial = tdbg_python.open(run)
    said = tdbg.json("steps", run)["steps"]
    assert [(s["global_step"], s["mode"], s["mode_step"], s["complete"], s["raw_values"], s["statistics"]) for s in said] == [
        (s.global_step, s.mode.name, s.mode_step, s.complete, s.raw_values, s.summaries)
        for s in map(trial.step, trial.steps(show_incomplete_steps=True))]
    tensors = {t["name"]: t for t in tdbg.json("tensors", run)}
    assert sorted(tensors) == trial.tensor_names()
    for name, said in tensors.items():
        tensor = trial.tensor(name)
        assert said["summary_steps"] == tensor.steps(kind="summary") and said["raw_steps"] == tensor.steps(kind="raw")
        assert (said["dtype"], tuple(said["shape"])) == (tensor.dtype, tensor.shape)
        if tensor.steps(kind="summary"):
            for entry in tdbg.json("show", run, name)["steps"]:
                step = entry["global_step"]
                if "value" in entry:
                    assert float(entry["value"]) == tensor.scalar(step)
                    continue
                summary = tensor.summary(step)
                for field in tdbg_python.trial.Summary.FIELDS:
                    np.testing.assert_equal(float(entry[field]), float(getattr(summary, field)))
        if tensor.steps(kind="raw") and tensor.dtype in ("float32", "float64", "int64"):
            for entry in tdbg.json("show", run, name, "--raw", "--steps", "0:")["values"]:
                np.testing.assert_array_equal(np.array(entry["values"], tensor.dtype), tensor.value(entry["global_step"]))


def test_what_a_run_was_never_to_keep_is_no_failure_of_a_rule_that_nobody_asked_for(tdbg, tmp_path):
    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
        {"name": "gradients", "kinds": ["gradient"], "keep": True}, {"name": "losses", "kinds": ["loss"], "keep": True}]}
    run = Run.open(directory=str(tmp_path / "a"), plan_json=json.dumps(plan))
    gradient = run.define("gradient/w", "", "gradient", "linear", "float32", [4])  # too small for a histogram
    loss = run.define("Loss_output_0", "", "loss", "", "float32", [])
    for step in range(3010):
        run.begin_step(1)
        run.put_array(gradient, np.array([-1, 0, 1, 2], np.float32))
        run.put_array(loss, np.array(1 / (step + 1), np.float32))
        run.end_step()
    run.end("done")
    answer = tdbg.json("check", tmp_path / "a")  # exit code 0
    judged = {rule["RuleConfigurationName"]: rule["RuleEvaluationStatus"] for rule in answer["rules"]}
    # By default it does with statistics; a range of the distribution is a question to histograms, which are not there.
    assert judged["PoorWeightInitialization"] == "NoIssuesFound" and "WeightUpdateRatio" not in judged
    assert "Nothing to judge: raw values" in {r["rule"]: r["why"] for r in answer["not_run"]}["WeightUpdateRatio"]
    assert tdbg("check", tmp_path / "a", "--rule", "poor_weight_initialization", "distribution_range=0.001").returncode == 8
