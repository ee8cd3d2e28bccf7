"""tdbg export: files that NumPy, safetensors, csv and pyarrow read back equal; what is refused; what is left behind."""

import contextlib
import csv
import json
import os
import pathlib
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import ship_run
from program import processes_marked, until

sys.path.insert(0, ship_run.HOME)
pytest.importorskip("tdbg._capture", reason="the extension modules are not built")

STEPS = 12
GOLDEN_SMDEBUG = pathlib.Path(__file__).resolve().parents[1] / "golden/smdebug/dtypes"
PLAN = {"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
    {"name": "weights", "kinds": ["weight"], "keep": True, "raw": {"train": {"interval": 2}, "eval": {"interval": 1}}},
    {"name": "biases", "kinds": ["bias"], "keep": True}, {"name": "losses", "kinds": ["loss"], "keep": True}]}
RAW_STEPS = [s for s in range(STEPS) if ship_run.mode_of(s) == ship_run.EVAL or ship_run.mode_step_of(s) % 2 == 0]
MODES = {ship_run.TRAIN: "TRAIN", ship_run.EVAL: "EVAL"}


def open_run(directory, **options):
    from tdbg._capture import Run

    return Run.open(directory=str(directory), **options)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    from program import Tdbg

    tdbg = Tdbg(tmp_path_factory.mktemp("export"))
    run = open_run(tdbg.directory / "r", plan_json=json.dumps(PLAN))
    ship_run.record(run, STEPS)
    run.end("completed")
    return tdbg


def finite(array):
    return array[np.isfinite(array)].astype(float)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_for_each_tensor_and_step(recorded):
    told = recorded.json("export", "r", "a.csv", "--to", "csv")
    rows = rows_of(recorded.directory / "a.csv")
    assert told["rows"] == len(rows) == 4 * STEPS and told["steps"] == STEPS
    assert told["bytes"] == (recorded.directory / "a.csv").stat().st_size
    for row in rows:
        step = int(row["global_step"])
        assert row["mode"] == MODES[ship_run.mode_of(step)] and int(row["mode_step"]) == ship_run.mode_step_of(step)
        if row["tensor"] == "Net_fc.weight":
            array = ship_run.weight(step)
            expected = {"mean": finite(array).mean(), "mean_abs": abs(finite(array)).mean(), "abs_max": abs(finite(array)).max(),
                        "nan_count": np.isnan(array).sum(), "zero_count": (array == 0).sum(), "count": array.size}
            assert {k: float(row[k]) for k in expected} == pytest.approx(expected, rel=1e-5)
        elif row["tensor"] == "Loss_output_0":
            assert np.float32(row["value"]) == ship_run.loss(step)
        elif row["tensor"] == "lr/0":
            assert float(row["value"]) == ship_run.rate(step)


def test_what_is_chosen_is_what_is_written(recorded):
    recorded.ok("export", "r", "b.csv", "weight", "--to", "csv", "--steps", "2:9", "--every", "2", "--fields", "l2,abs_max")
    rows = rows_of(recorded.directory / "b.csv")
    assert list(rows[0]) == ["global_step", "mode", "mode_step", "worker", "tensor", "l2", "abs_max"]
    expected = [s for s in range(2, 9) if ship_run.mode_step_of(s) % 2 == 0]
    assert [(row["tensor"], int(row["global_step"])) for row in rows] == [("Net_fc.weight", s) for s in expected]
    recorded.ok("export", "r", "c.csv", "--to", "csv", "--collection", "losses")
    assert {row["tensor"] for row in rows_of(recorded.directory / "c.csv")} == {"Loss_output_0"}


def test_csv_of_values(recorded):
    recorded.ok("export", "r", "v.csv", "--to", "csv", "--raw", "--steps", "0:5")
    got = {}
    for row in rows_of(recorded.directory / "v.csv"):
        got.setdefault(int(row["global_step"]), []).append(np.float32(row["value"]))
    assert sorted(got) == [s for s in RAW_STEPS if s < 5]
    for step, values in got.items():
        np.testing.assert_array_equal(np.array(values).reshape(40, 50), ship_run.weight(step))


def test_npz_and_safetensors_hold_the_values(recorded):
    load_file = pytest.importorskip("safetensors.numpy").load_file
    for to in ("npz", "safetensors"):
        told = recorded.json("export", "r", f"values.{to}", "--to", to, "--raw")
        path = recorded.directory / f"values.{to}"
        arrays = dict(np.load(path)) if to == "npz" else load_file(path)
        assert sorted(arrays) == sorted(f"Net_fc.weight@{s}" for s in RAW_STEPS)
        assert told["arrays"] == len(RAW_STEPS) and told["bytes"] == path.stat().st_size
        for step in RAW_STEPS:
            value = arrays[f"Net_fc.weight@{step}"]
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value, ship_run.weight(step))


def test_npz_and_safetensors_hold_the_statistics(recorded):
    load_file = pytest.importorskip("safetensors.numpy").load_file
    for to in ("npz", "safetensors"):
        recorded.ok("export", "r", f"stats.{to}", "--to", to, "--fields", "mean_abs,value")
        path = recorded.directory / f"stats.{to}"
        arrays = dict(np.load(path)) if to == "npz" else load_file(path)
        assert len(arrays) == 4 * 3
        np.testing.assert_array_equal(arrays["Net_fc.weight/global_step"], range(STEPS))
        np.testing.assert_allclose(arrays["Net_fc.weight/mean_abs"],
                                   [abs(finite(ship_run.weight(s))).mean() for s in range(STEPS)], rtol=1e-6)
        np.testing.assert_array_equal(arrays["lr/0/value"], [ship_run.rate(s) for s in range(STEPS)])


def test_parquet_is_the_same_table(recorded):
    parquet = pytest.importorskip("pyarrow.parquet")
    recorded.ok("export", "r", "same.csv", "--to", "csv")
    recorded.ok("export", "r", "same.parquet", "--to", "parquet", "--python", sys.executable)
    table = parquet.read_table(recorded.directory / "same.parquet").to_pydict()
    rows = rows_of(recorded.directory / "same.csv")
    assert list(table) == list(rows[0])
    for name, column in table.items():
        expected = [row[name] for row in rows]
        if name in ("mode", "worker", "tensor"):
            assert column == expected
        else:
            np.testing.assert_array_equal(np.array(column, float), np.array(expected, float))
    assert not [name for name in os.listdir(recorded.directory) if name.startswith(".")]


def test_parquet_without_pyarrow_says_what_to_do(recorded):
    python = recorded.directory / "nopyarrow"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.exit(3)'\n")
    python.chmod(0o755)
    text = recorded.fails(6, "export", "r", "x.parquet", "--to", "parquet", "--python", python)
    assert "pyarrow" in text and "--to csv" in text
    text = recorded.fails(4, "export", "r", "x.parquet", "--to", "parquet", "--python", "no-such-python")
    assert "no-such-python" in text
    assert not (recorded.directory / "x.parquet").exists()


def test_every_dtype_in_archives(tdbg):
    load_file = pytest.importorskip("safetensors.numpy").load_file
    arrays = {"float16": np.array([1.5, np.nan], np.float16), "float64": np.array([[1e300], [-0.0]]), "int8": np.array([-1], np.int8),
              "uint16": np.array([65535], np.uint16), "uint64": np.array([2**64 - 1], np.uint64), "bool": np.array([True, False]),
              "complex64": np.array([1 + 2j], np.complex64), "complex128": np.array([[1e300 - 2j]])}
    plan = {"kind": "tdbg.plan", "major": 1, "minor": 0,
            "collections": [{"name": "all", "kinds": ["*"], "keep": True, "raw": {"train": {"interval": 1}}}]}
    run = open_run(tdbg.directory / "r", plan_json=json.dumps(plan))
    run.begin_step(ship_run.TRAIN)
    for name, array in arrays.items():
        run.put_array(run.define(name, name, "weight", "", name, list(array.shape)), array)
    half = np.array([0x3F80, 0xC040], np.uint16)
    run.put_ptr(run.define("bfloat16", "b", "weight", "", "bfloat16", [2]), half.ctypes.data, "bfloat16", [2], [1])
    run.end_step()
    run.end("completed")
    tdbg.ok("export", "r", "a.npz", "--to", "npz", "--raw")
    tdbg.ok("export", "r", "a.safetensors", "--to", "safetensors", "--raw")
    npz = dict(np.load(tdbg.directory / "a.npz"))
    for name, array in arrays.items():
        assert npz[f"{name}@0"].dtype == array.dtype and npz[f"{name}@0"].shape == array.shape
        np.testing.assert_array_equal(npz[f"{name}@0"], array)
    np.testing.assert_array_equal(npz["bfloat16@0"], np.array([1, -3], np.float32))
    from safetensors import safe_open

    with safe_open(tdbg.directory / "a.safetensors", "numpy") as file:
        metadata = file.metadata()
        assert metadata["complex64@0.dtype"] == "complex64" and metadata["run"] == "r"
        for name, array in arrays.items():
            value = file.get_tensor(f"{name}@0")
            if array.dtype.kind == "c":
                value = np.ascontiguousarray(value).view(array.dtype)[..., 0]
            assert value.dtype == array.dtype and value.shape == array.shape
            np.testing.assert_array_equal(value, array)
    assert load_file  # bfloat16 is not NumPy's: only torch opens that one


def test_nothing_is_overwritten_unless_asked(recorded):
    for to in ("csv", "npz", "safetensors"):
        recorded.ok("export", "r", f"twice.{to}", "--to", to, "--collection", "losses")
        before = (recorded.directory / f"twice.{to}").read_bytes()
        assert "--force" in recorded.fails(6, "export", "r", f"twice.{to}", "--to", to)
        assert (recorded.directory / f"twice.{to}").read_bytes() == before
        recorded.ok("export", "r", f"twice.{to}", "--to", to, "--force", "--raw")
        assert (recorded.directory / f"twice.{to}").read_bytes() != before
        recorded.ok("export", "r", f"twice.{to}", "--to", to, "--force")
    recorded.ok("export", "r", "tb", "--to", "tensorboard")
    recorded.fails(6, "export", "r", "tb", "--to", "tensorboard")
    recorded.ok("export", "r", "tb", "--to", "tensorboard", "--force")
    (recorded.directory / "tb" / "notes.txt").write_text("mine")
    assert "notes.txt" in recorded.fails(6, "export", "r", "tb", "--to", "tensorboard", "--force")
    assert (recorded.directory / "tb" / "notes.txt").read_text() == "mine"
    recorded.ok("export", "r", "layout", "--to", "smdebug")
    recorded.ok("export", "r", "layout", "--to", "smdebug", "--force")


@pytest.mark.parametrize("to", ["csv", "parquet", "npz", "safetensors"])
def test_force_replaces_no_file_but_an_export(recorded, to):
    import numpy

    mine = recorded.directory / "mine"
    others = {"npz": lambda: numpy.savez(mine.open("wb"), **{"a/global_step": numpy.arange(3), "a@0": numpy.arange(3)}),
              "safetensors": lambda: mine.write_bytes(b"\x02\0\0\0\0\0\0\0{}"),
              "csv": lambda: mine.write_text("step,loss\n1,2\n"),
              "parquet": lambda: mine.write_bytes(b"PAR1" + bytes(8) + b"\x08\0\0\0PAR1")}
    makers = [others[to], lambda: mine.write_text("import torch\n")]
    for write in makers:
        write()
        before = mine.read_bytes()
        assert "mine is not known to be" in recorded.fails(6, "export", "r", "mine", "--to", to, "--force")
        assert mine.read_bytes() == before
    before = (recorded.directory / "r/run.json").read_bytes()
    recorded.fails(6, "export", "r", "r/run.json", "--to", to, "--force")
    assert (recorded.directory / "r/run.json").read_bytes() == before


def test_force_replaces_an_earlier_parquet(recorded):
    pytest.importorskip("pyarrow")
    for force in ([], ["--force"]):
        recorded.ok("export", "r", "again.parquet", "--to", "parquet", "--python", sys.executable, *force)


def test_force_replaces_no_directory_but_an_export(recorded):
    # Named exactly as ours are: PyTorch's SummaryWriter names its files so.
    logs = recorded.directory / "logs"
    logs.mkdir()
    theirs = logs / "events.out.tfevents.1700000000.host.77.0"
    theirs.write_bytes(b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\x5d\x33\xf0\xd8\x41\x1a\x0dbrain.Event:2\xec\xf3\x32\x8d")
    assert theirs.name in recorded.fails(6, "export", "r", "logs", "--to", "tensorboard", "--force")
    assert theirs.exists()
    # What smdebug itself recorded has the names of an export.
    theirs = recorded.directory / "recording"
    shutil.copytree(GOLDEN_SMDEBUG, theirs)
    before = sorted(theirs.rglob("*"))
    recorded.fails(6, "export", "r", "recording", "--to", "smdebug", "--force")
    recorded.ok("export", "r", "recording", "--to", "smdebug", "--follow")  # does not make it ours
    recorded.fails(6, "export", "r", "recording", "--to", "smdebug", "--force")
    assert set(before) <= set(theirs.rglob("*"))


@pytest.mark.parametrize("code, words, arguments", [
    (2, "did you mean tensorboard", ["--to", "tensorbord"]),
    (2, "--raw", ["--to", "tensorboard", "--raw"]),
    (2, "--raw", ["--to", "parquet", "--raw"]),
    (2, "--follow", ["--to", "csv", "--follow"]),
    (2, "every", ["--to", "tensorboard", "--every", "0"]),
    *((2, f"every: found '{every}'", ["--to", to, "--every", every, *raw])
      for to, raw, every in [("csv", [], "0"), ("csv", ["--raw"], "0"), ("npz", [], "0"), ("safetensors", ["--raw"], "0"),
                             ("parquet", [], "0"), ("csv", [], "-3")]),
    (2, "--statistics-every: found '0'", ["--to", "csv", "--statistics-every", "0"]),
    (2, "mean_abs", ["--to", "csv", "--fields", "mean_ab"]),
    (4, "tdbg tensors", ["--to", "csv", "--collection", "nothing"]),
    (4, "tdbg tensors", ["--to", "csv", "--steps", "500:"]),
    (4, "values", ["--to", "npz", "--raw", "--collection", "losses"]),
])
def test_a_wrong_request_is_one_line_and_leaves_nothing(recorded, code, words, arguments):
    assert words in recorded.fails(code, "export", "r", "wrong", *arguments)
    assert not [name for name in os.listdir(recorded.directory) if "wrong" in name]


@pytest.mark.parametrize("entry", ["summary/max", "summary/nan_count"])
def test_what_is_damaged_is_named_and_the_rest_is_written(recorded, entry):
    from program import damage

    shutil.copytree(recorded.directory / "r", recorded.directory / "hurt", dirs_exist_ok=True)
    damage(recorded.directory / "hurt", entry)
    for to in ("csv", "npz", "safetensors", "tensorboard", "smdebug"):
        done = recorded("export", "hurt", f"hurt-{to}", "--to", to, "--force", "--json")
        assert done.returncode == 5, (to, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and entry in done.stderr and "1 place" in done.stderr, done.stderr
        told = json.loads(done.stdout)
        assert told["steps"] > 0 and len(told["damage"]) == 1 and entry in told["damage"][0]
        assert (recorded.directory / f"hurt-{to}").exists()

    followed = recorded("export", "hurt", "hurt-followed", "--to", "tensorboard", "--follow")
    assert followed.returncode == 5 and entry in followed.stderr


def test_of_values_too_the_damaged_one_is_named_and_the_others_are_written(recorded):
    from program import damage

    shutil.copytree(recorded.directory / "r", recorded.directory / "bruised")
    damage(recorded.directory / "bruised", "Net_fc.weight@0")
    for to in ("csv", "npz", "safetensors"):
        done = recorded("export", "bruised", f"bruised-{to}", "--to", to, "--raw", "--json")
        assert done.returncode == 5 and "Net_fc.weight@0" in done.stderr, (to, done.stderr)
        assert json.loads(done.stdout)["steps"] == len(RAW_STEPS) - 1


def test_damage_that_leaves_nothing_to_export_is_no_empty_run(recorded):
    from program import damage

    shutil.copytree(recorded.directory / "r", recorded.directory / "lost")
    damage(recorded.directory / "lost", "step/global")
    assert "step/global" in recorded.fails(5, "export", "lost", "lost.csv", "--to", "csv")


def test_an_interrupted_export_leaves_nothing(tdbg):
    run = open_run(tdbg.directory / "r", plan_json=json.dumps(PLAN))
    ship_run.record(run, 3000)
    run.end("completed")
    job = tdbg.start("export", "r", "tb", "--to", "smdebug", "--quiet")
    end = time.monotonic() + 20
    while not any(name.startswith(".tb.") for name in os.listdir(tdbg.directory)):
        assert time.monotonic() < end and job.poll() is None
        time.sleep(0.001)
    job.send_signal(signal.SIGINT)
    assert job.wait(20) == 6
    assert os.listdir(tdbg.directory) == ["r"]


def test_a_failing_export_is_told_once_and_hurts_nobody(tdbg):
    (tdbg.directory / "blocked").write_text("a file where the directory should be")
    done = tdbg("run", "--dir", "r", "--tensorboard", "blocked", "--", sys.executable, ship_run.__file__, "10", "0.05",
                timeout=60)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("tdbg: ") and "tensorboard" in line]
    assert len(told) == 1 and "go on" in told[0] and "tdbg export r --to tensorboard" in told[0]
    assert tdbg.json("status", "r")["steps"]["all"] == 10
    (export,) = tdbg.json("status", "r")["exports"]
    assert not export["ok"] and "blocked" in export["text"]


def test_a_later_attempt_takes_over_its_steps(tdbg):
    for steps in (6, 4):
        done = tdbg("run", "--quiet", "--dir", "r", "--format", "smdebug", "--tensorboard", "tb", "--", sys.executable,
                    ship_run.__file__, str(steps), "0.05", timeout=60)
        assert done.returncode == 0, done.stderr
    # The second attempt says that it starts at step 0 again: of the first one nothing is left.
    index = sorted(p.name for p in (tdbg.directory / "r/smdebug/index").rglob("*.json"))
    assert [int(name.split("_")[0]) for name in index] == list(range(4))
    assert (tdbg.directory / "r/smdebug/training_job_end.ts").exists()


def test_what_an_exporter_left_out_that_was_killed_is_written_by_the_next(tdbg):
    """A machine that is taken away takes the exporter with it, in the middle of its work."""
    command = ("run", "--quiet", "--dir", "r", "--format", "smdebug", "--", sys.executable, ship_run.__file__)
    job = tdbg.start(*command, "1000000", "0.02")
    (exporter,) = until(lambda: [pid for pid, line in processes_marked(tdbg.mark) if " export " in line], "an exporter")
    os.kill(exporter, signal.SIGSTOP)
    until(lambda: tdbg("status", "r", "--json").returncode == 0 and tdbg.json("status", "r")["steps"]["all"] >= 12, "it trains")
    while left := processes_marked(tdbg.mark):
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    job.wait()
    tdbg.ok(*command, "6", "0", "", "8")
    index = sorted(p.name for p in (tdbg.directory / "r/smdebug/index").rglob("*.json"))
    assert [int(name.split("_")[0]) for name in index] == list(range(14))


def test_following_ends_with_the_run(tdbg):
    job = tdbg.start("export", "r", "tb", "--to", "tensorboard", "--follow", "--json")
    time.sleep(0.3)
    run = open_run(tdbg.directory / "r", plan_json=json.dumps(PLAN))
    ship_run.record(run, 5, pause=0.05)
    assert job.poll() is None
    run.end("completed")
    assert job.wait(20) == 0


def test_smdebugs_own_configuration_asks_for_tensorboard(tdbg):
    hook = {"LocalPath": str(tdbg.directory / "r"), "HookParameters": {"export_tensorboard": "true", "tensorboard_dir": "tb"}}
    (tdbg.directory / "hook.json").write_text(json.dumps(hook))
    answer = json.loads(tdbg.ok("plan", "--config", "hook.json").stdout)
    assert answer["exports"] == [["--to", "tensorboard", str(tdbg.directory / "tb"), "--statistics-every", "10"]]
