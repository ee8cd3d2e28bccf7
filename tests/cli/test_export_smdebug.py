"""The real smdebug 1.0.34 opens what we write in its layout, and reads back what was recorded."""

import json
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import ship_run

sys.path.insert(0, ship_run.HOME)
pytest.importorskip("tdbg._capture", reason="the extension modules are not built")

HERE = pathlib.Path(__file__).resolve().parent
REAL = HERE.parents[1] / ".venv-smdebug" / "bin" / "python"
SCRIPT = HERE / "ship_run.py"
STEPS = 12
CONFIG = """
collections:
  weights: {save_interval: 2, eval.save_interval: 1}
  biases: {reductions: [min, abs_mean, l2_norm]}
  losses: {save_interval: 3}
"""

pytestmark = pytest.mark.skipif(not REAL.exists(), reason="the real smdebug is not installed (.venv-smdebug)")


def read(directory, tmp_path):
    """What the real trial answers, and its values by "name@step@worker"."""
    out = tmp_path / "values.npz"
    done = subprocess.run([REAL, HERE / "read_with_smdebug.py", directory, out], capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("answer "))
    return json.loads(line.removeprefix("answer ")), dict(np.load(out))


def open_run(directory, **options):
    from tdbg._capture import Run

    return Run.open(directory=str(directory), **options)


def saved_steps(interval, mode):
    return [s for s in range(STEPS) if ship_run.mode_of(s) == mode and ship_run.mode_step_of(s) % interval == 0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Written by `--format smdebug` while it was recorded, and exported from the run afterwards."""
    from program import Tdbg

    tdbg = Tdbg(tmp_path_factory.mktemp("smdebug"))
    (tdbg.directory / "c.yaml").write_text(CONFIG)
    done = tdbg("run", "--dir", "r", "--config", "c.yaml", "--format", "smdebug", "--", sys.executable, SCRIPT, str(STEPS), "0.1",
                timeout=120)
    assert done.returncode == 0, done.stderr
    assert "smdebug" in done.stderr and "tensors" in done.stderr
    tdbg.ok("export", "r", "--to", "smdebug", "exported")
    return tdbg


@pytest.mark.parametrize("where", ["r/smdebug", "exported"])
def test_the_real_smdebug_reads_back_what_was_recorded(recorded, tmp_path, where):
    answer, values = read(recorded.directory / where, tmp_path)
    assert answer["modes"] == ["EVAL", "TRAIN"]
    assert answer["workers"] == ["worker_0"]
    assert answer["loaded_all_steps"]
    # The biases' reductions were asked for at every step, so every step is there.
    for mode in (ship_run.TRAIN, ship_run.EVAL):
        steps = [ship_run.mode_step_of(s) for s in range(STEPS) if ship_run.mode_of(s) == mode]
        assert answer["steps"][{1: "TRAIN", 2: "EVAL"}[mode]] == steps
    assert answer["names"] == ["Loss_output_0", "Net_fc.bias", "Net_fc.weight", "lr/0"]
    assert answer["members"] == {"weights": ["Net_fc.weight"], "losses": ["Loss_output_0"]}
    assert answer["collections"]["weights"]["interval"] == 2

    kept = sorted(saved_steps(2, ship_run.TRAIN) + saved_steps(1, ship_run.EVAL))
    got = {int(key.split("@")[1]): value for key, value in values.items() if key.startswith("Net_fc.weight@")}
    assert sorted(got) == kept
    for step, value in got.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, ship_run.weight(step))
    for step in range(STEPS):
        loss = values[f"Loss_output_0@{step}@worker_0"]
        assert loss.dtype == np.float32 and loss.shape == () and loss == ship_run.loss(step)
        assert values[f"lr/0@{step}@worker_0"] == ship_run.rate(step)
        bias = ship_run.bias(step)
        for name, expected in (("min", bias.min()), ("abs_mean", abs(bias).mean()), ("l2", np.linalg.norm(bias))):
            assert answer["reductions"][f"Net_fc.bias@{step}@worker_0@{name}"] == pytest.approx(expected, rel=1e-6)
    assert sum(key.startswith("Net_fc.bias@") for key in answer["reductions"]) == 3 * STEPS


def test_what_it_says_is_what_smdebugs_calls_on_the_run_say(recorded, tmp_path):
    import tdbg as ours

    answer, _ = read(recorded.directory / "exported", tmp_path)
    trial = ours.open(recorded.directory / "r")
    for name in ("Net_fc.weight", "Net_fc.bias"):
        for mode in ("TRAIN", "EVAL"):
            assert answer["tensor_steps"][name][mode] == trial.tensor(name).steps(kind="saved", mode=mode.lower())


DTYPES = {
    "float16": np.array([1.5, -2, 65504, np.inf], np.float16), "float32": np.array([[1, 2], [3, 1e-40]], np.float32),
    "float64": np.array([1e300, -np.nan]), "int64": np.array([-(2**63), 2**63 - 1]), "int32": np.array([-5, 7], np.int32),
    "int16": np.array([-300, 300], np.int16), "int8": np.array([-1, -128, 127], np.int8), "uint8": np.array([0, 255], np.uint8),
    "uint16": np.array([65535], np.uint16), "uint32": np.array([2**32 - 1, 1], np.uint32),
    "uint64": np.array([2**62, 1], np.uint64), "bool": np.array([True, False]),
    "complex64": np.array([1 + 2j, 3], np.complex64), "complex128": np.array([1e300 - 2j]),
}


def test_every_dtype_keeps_its_values(tdbg, tmp_path):
    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0,
            "collections": [{"name": "all", "kinds": ["*"], "keep": True, "raw": {"train": {"interval": 1}}}]}
    run = open_run(tdbg.directory / "r", plan_json=json.dumps(plan))
    half = np.array([0x3F80, 0xC040], np.uint16)  # bfloat16: 1, -3
    eighth = np.array([0x38, 0xBC, 0x7E], np.uint8)  # float8_e4m3fn: 1, -1.5, 448
    huge = np.array([2**63, 0], np.uint64)
    run.begin_step(ship_run.TRAIN)
    for name, array in DTYPES.items():
        run.put_array(run.define(name, name, "weight", "", name, list(array.shape)), array)
    for name, array, dtype in (("half", half, "bfloat16"), ("eighth", eighth, "float8_e4m3fn"), ("huge", huge, "uint64")):
        ident = run.define(name, name, "weight", "", dtype, list(array.shape))
        run.put_ptr(ident, array.ctypes.data, dtype, list(array.shape), [1])
    run.put_array(run.define("empty", "empty", "weight", "", "float32", [0]), np.zeros(0, np.float32))
    run.end_step()
    run.end("completed")
    tdbg.ok("export", "r", "--to", "smdebug", "s")
    _, values = read(tdbg.directory / "s", tmp_path)
    for name, array in DTYPES.items():
        value = values[f"{name}@0@worker_0"]
        assert value.shape == array.shape
        np.testing.assert_array_equal(value, array)
        if np.dtype(name) in (np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.complex128):
            assert value.dtype == array.dtype
    np.testing.assert_array_equal(values["half@0@worker_0"], [1, -3])
    np.testing.assert_array_equal(values["eighth@0@worker_0"], [1, -1.5, 448])
    np.testing.assert_array_equal(values["huge@0@worker_0"], [2.0**63, 0])
    assert "empty@0@worker_0" not in values


def test_several_workers_and_a_run_without_a_saveconfig(tdbg, tmp_path):
    def worker(rank):
        run = open_run(tdbg.directory / "r", rank=rank, world_size=2, attempt=0, sibling_if_locked=False)
        ship_run.record(run, 3, rank=rank)
        run.end("completed")

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tdbg.ok("export", "r", "--to", "smdebug", "s")
    answer, values = read(tdbg.directory / "s", tmp_path)
    assert sorted(answer["workers"]) == ["worker_0", "worker_1"]
    assert answer["steps"]["GLOBAL"] == [0, 1, 2]
    for rank in (0, 1):
        assert values[f"Loss_output_0@2@worker_{rank}"] == ship_run.loss(2, rank)
        # Only statistics of it were kept: the reductions that follow from them.
        weight = ship_run.weight(2, rank).astype(float)
        got = {name: answer["reductions"][f"Net_fc.weight@2@worker_{rank}@{name}"] for name in ("mean", "abs_mean", "std", "abs_max")}
        assert got == pytest.approx({"mean": weight.mean(), "abs_mean": abs(weight).mean(), "std": weight.std(),
                                     "abs_max": abs(weight).max()}, rel=1e-5)


def test_rules_of_the_real_smdebug_follow_while_it_is_written(tdbg, tmp_path):
    follower = tmp_path / "follow.py"
    follower.write_text("""
import sys, time, os
from smdebug.trials import create_trial
from smdebug.rules.rule import Rule
from smdebug.rules import invoke_rule

class Steps(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.seen = []
    def invoke_at_step(self, step):
        self.seen.append(float(self.base_trial.tensor("Loss_output_0").value(step)))
        return False

while not os.path.isdir(os.path.join(sys.argv[1], "collections", "000000000")):
    time.sleep(0.05)
trial = create_trial(sys.argv[1])
live = not trial.loaded_all_steps
rule = Steps(trial)
invoke_rule(rule, start_step=0, end_step=int(sys.argv[2]))
print("seen", live, rule.seen)
""")
    job = tdbg.start("run", "--quiet", "--dir", "r", "--format", "smdebug:s", "--", sys.executable, SCRIPT, "30", "0.2")
    done = subprocess.run([REAL, follower, tdbg.directory / "s", "30"], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert job.wait(60) == 0
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("seen "))
    assert line == f"seen True {[float(ship_run.loss(s)) for s in range(30)]}"
