"""The reading commands over directories that smdebug wrote (tests/golden/smdebug)."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from program import ROOT

GOLDEN = ROOT / "tests" / "golden" / "smdebug"
SMDEBUG_PYTHON = pathlib.Path(os.environ.get("TDBG_SMDEBUG_PYTHON", ROOT / ".venv-smdebug" / "bin" / "python"))


def expected(name):
    return json.loads((GOLDEN / f"{name}.expected.json").read_text())


@pytest.mark.parametrize("name", ["dtypes", "pt_modes", "pt_reductions_only", "xgb_all"])
def test_status_tensors_and_show_agree_with_smdebug(tdbg, name):
    told = expected(name)
    report = tdbg.json("status", GOLDEN / name)
    assert report["workers"] == told["workers"] and report["steps"]["all"] == len(told["steps"])
    assert [t["name"] for t in tdbg.json("tensors", GOLDEN / name)] == sorted(told["tensors"])
    shown = 0
    for tensor, steps in told["tensors"].items():
        if tensor == "t_int8" or tensor.startswith("unreadable_"):
            continue
        kept = {int(step): next(iter(workers.values())) for step, workers in steps.items()}
        kept = {step: value for step, value in kept.items() if "head" in value}
        if not kept or shown >= 12:  # each is a process: enough to know
            continue
        shown += 1
        values = {v["global_step"]: v for v in tdbg.json("show", GOLDEN / name, tensor, "--raw", "--steps", "0:")["values"]}
        for step, value in kept.items():
            flat = values[step]["values"]
            while flat and isinstance(flat, list) and isinstance(flat[0], list) and not name == "dtypes":
                flat = [x for row in flat for x in row]
            if isinstance(flat, list) and flat and isinstance(flat[0], (int, float)):
                assert flat[: len(value["head"])] == pytest.approx(value["head"], rel=1e-6), (tensor, step)
    assert shown > 0 or name == "pt_reductions_only"


def test_an_index_without_its_tensors_is_damage_and_no_step_without_tensors(tdbg, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "pt_modes", run)
    index = run / "index" / "000000000" / "000000000001_worker_0.json"
    index.write_bytes(index.read_bytes().replace(b'"tensor_payload"', b'"uensor_payload"'))      # one bit
    told = tdbg.json("status", run, code=5)
    assert any('there is no "tensor_payload"' in line for line in told["damage"]), told


def test_tensors_counts_steps_and_knows_that_a_type_is_not_known(tdbg):
    rows = tdbg.ok("tensors", GOLDEN / "pt_reductions_only").stdout.splitlines()
    assert rows[1].split() == ["Net_conv.weight", "weights", "-", "[1,", "1,", "2]", "2", "(0..1)", "-"]
    assert tdbg.ok("tensors", GOLDEN / "dtypes", "^t_bool$").stdout.split()[-4:] == ["1", "(0)", "1", "(0)"]


def test_show_prints_saved_reductions_exactly(tdbg):
    told = expected("pt_reductions_only")["tensors"]["Net_fc1.weight"]
    shown = tdbg.json("show", GOLDEN / "pt_reductions_only", "Net_fc1.weight")["steps"]
    assert {str(s["global_step"]): s["reductions"] for s in shown} == {
        step: workers["worker_0"]["saved_reductions"] for step, workers in told.items()}
    assert "abs_l1" in tdbg.ok("show", GOLDEN / "pt_reductions_only", "Net_fc1.weight").stdout


def test_ls_lists_them_beside_ours(tdbg, tmp_path):
    shutil.copytree(GOLDEN / "pt_modes", tmp_path / "runs" / "old")
    shutil.copytree(ROOT / "tests" / "golden" / "v1.0", tmp_path / "runs" / "new")
    assert sorted(pathlib.Path(r["run"]).name for r in tdbg.json("ls", tmp_path / "runs")) == ["new", "old"]
    assert [pathlib.Path(r["run"]).name for r in tdbg.json("ls", tmp_path / "runs" / "old")] == ["old"]


def test_check_judges_values_that_smdebug_kept(tdbg):
    hit = tdbg("check", GOLDEN / "pt_modes", "--rule", "vanishing_gradient", "threshold=1000", "patience=1", "--json")
    verdict = json.loads(hit.stdout)["rules"][0]
    assert hit.returncode == 1 and verdict["RuleEvaluationStatus"] == "IssuesFound"
    unknown = tdbg("check", GOLDEN / "pt_reductions_only", "--rule", "all_zero", "collection_names=weights")
    assert unknown.returncode == 8 and "zero_count" in unknown.stdout + unknown.stderr


def test_check_judges_what_the_real_smdebug_wrote(tdbg, tmp_path):
    if not SMDEBUG_PYTHON.exists():
        pytest.skip("no .venv-smdebug (tools/setup.sh makes it)")
    subprocess.run([SMDEBUG_PYTHON, ROOT / "tests/python/smdebug_writer.py", tmp_path / "run", "1"],
                   input="".join(f"{s}\n" for s in range(6)) + "end\n", text=True, check=True, capture_output=True, timeout=120)
    hit = tdbg("check", tmp_path / "run", "--rule", "vanishing_gradient", "threshold=1e-9", "patience=1", "--json")
    verdict = json.loads(hit.stdout)["rules"][0]
    # 10^-step until then; the bias has a saved abs_mean only, and that is enough for this rule.
    assert verdict["RuleEvaluationStatus"] == "IssuesFound", verdict
    assert [(f["tensor"], f["global_step"], f["value"]) for f in verdict["findings"]] == [("gradient/fc.weight", 5, 0)]


def test_dump_shows_events_and_index(tdbg):
    event = next((GOLDEN / "dtypes" / "events").rglob("*.tfevents"))
    document = tdbg.json("dump", event)
    assert document["kind"] == "event file" and len(document["records"]) == 17
    first = document["records"][0]
    assert first["footer"] == "smdebug's constant" and first["values"][0]["tag"] == "t_float16"
    assert first["values"][0]["tensor"] == {"dtype": "float16", "shape": [2, 2], "elements": [0, 1, 2, -3]}
    index = next((GOLDEN / "dtypes" / "index").rglob("*.json"))
    assert json.loads(index.read_text())["meta"]["mode"] == "TRAIN"
    assert "tensor_payload" in tdbg.ok("dump", index).stdout


def test_a_damaged_event_file_is_dumped_as_far_as_it_goes(tdbg, tmp_path):
    event = next((GOLDEN / "dtypes" / "events").rglob("*.tfevents"))
    (tmp_path / "cut.tfevents").write_bytes(event.read_bytes()[:200])
    document = tdbg.json("dump", tmp_path / "cut.tfevents", code=5)
    assert len(document["records"]) == 1 and document["damaged"]["offset"] == 119
