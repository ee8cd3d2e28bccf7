"""smdebug's configuration files and smdebug's programs, under `tdbg run`."""

import json
import os
import pathlib
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

COMPAT = pathlib.Path(__file__).resolve().parents[2] / "smdebug-compat" / "src"

PLAIN = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(6):
    torch.nn.functional.mse_loss(net(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    if n % 2:
        optimizer.step()
        optimizer.zero_grad()
"""

HOOKED = """
import torch
import smdebug.pytorch as smd
torch.manual_seed(0)
hook = smd.Hook(out_dir="out", save_config=smd.SaveConfig(save_interval=3), include_collections=["gradients"])
net = torch.nn.Linear(4, 2)
hook.register_module(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(7):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(torch.ones(3, 4)), torch.zeros(3, 2))
    (loss * (float("inf") if n == 5 else 1.0)).backward()
    optimizer.step() if n < 5 else None
"""


@pytest.fixture
def python(tdbg):
    probe = tdbg("doctor", "--python", sys.executable, "--json")
    capture = next((f for f in json.loads(probe.stdout) if f["what"] == "tdbg._capture"), {"answer": "no Python"})
    if capture.get("verdict") != "good":
        pytest.skip(f"the extension does not load here: {capture['answer']}")
    return sys.executable


def test_a_configuration_file_of_smdebugs_is_one_warning_and_a_plan(tdbg):
    (tdbg.directory / "hook.json").write_text(json.dumps({
        "S3OutputPath": "s3://b/p", "LocalPath": str(tdbg.directory / "run"), "HookParameters": {"key": "value", "save_interval": "2"},
        "CollectionConfigurations": [{"CollectionName": "weights"}]}))
    done = tdbg.ok("plan", "--config", "hook.json")
    assert done.stderr.count("tdbg: ") == 1 and "HookParameters.key" in done.stderr
    plan = json.loads((tdbg.directory / "run" / "plan.json").read_text())
    assert plan["step_by"] == "forward" and not plan["context"]
    weights = next(c for c in plan["collections"] if c["name"] == "weights")
    assert weights["raw"]["train"]["interval"] == 2 and not weights["summaries"]
    (tdbg.directory / "wrong.json").write_text('{"HookParameters": {"save_interval": "often"}}')
    assert "HookParameters.save_interval" in tdbg.fails(2, "plan", "--config", "wrong.json", "--dir", "other")


def test_without_a_hook_exactly_what_the_file_says_is_kept(tdbg, python):
    (tdbg.directory / "train.py").write_text(PLAIN)
    (tdbg.directory / "hook.json").write_text(json.dumps({
        "CollectionConfigurations": [{"CollectionName": "weights", "CollectionParameters": {"save_interval": 2}},
                                     {"CollectionName": "losses", "CollectionParameters": {"end_step": 0}}]}))
    done = tdbg.ok("run", "--dir", "run", "--", python, "train.py",
                   env={"SMDEBUG_CONFIG_FILE_PATH": str(tdbg.directory / "hook.json")})
    assert "tdbg: no rule was watching (completed)" in done.stderr
    code = ("import tdbg; t = tdbg.open('run'); print(t.tensor_names(), t['Linear_weight'].steps(kind='raw'), t.steps())")
    import subprocess
    done = subprocess.run([python, "-c", code], cwd=tdbg.directory, text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": tdbg.env["TDBG_HOME"]})
    assert done.stdout.split("\n")[0] == "['Linear_weight'] [0, 2, 4] [0, 2, 4]", done.stderr


def test_a_script_with_a_hook_is_judged_by_the_launchers_rules(tdbg, python):
    (tdbg.directory / "train.py").write_text(HOOKED)
    home = tdbg.env["TDBG_HOME"]
    done = tdbg.ok("run", "--dir", "run", "--rule", "exploding_tensor", "--json", "--", python, "train.py",
                   env={"PYTHONPATH": f"{home}{os.pathsep}{COMPAT}"})
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert "IssuesFound" in json.dumps(report), report
    assert os.path.realpath(tdbg.directory / "out") == str(tdbg.directory / "run")
    assert not (tdbg.directory / "run-2").exists()
