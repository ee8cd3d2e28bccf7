"""A run that keeps values alone, as smdebug's hooks do, is judged, shown and exported as one that keeps statistics."""

import csv
import json
import math
import os
import subprocess
import sys

import pytest
from program import BINARY, ROOT

pytest.importorskip("torch")
accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))

#: A net whose first layers' gradients vanish, with a hook, or attached as argv[1] says.
PROGRAM = """
import json, sys
import torch
import tdbg

torch.manual_seed(3)
torch.set_num_threads(1)
net = torch.nn.Sequential(*[part for _ in range(12) for part in (torch.nn.Linear(32, 32), torch.nn.Sigmoid())])
criterion = torch.nn.MSELoss()
if sys.argv[1] == "hook":
    from tdbg.hook.save_config import SaveConfig
    from tdbg.hook.torch import Hook
    end = Hook(out_dir=sys.argv[2], include_collections=["weights", "gradients", "losses"], save_config=SaveConfig(save_interval=1))
    end.register_module(net)
    end.register_loss(criterion)
else:
    end = tdbg.attach(net, config=json.loads(sys.argv[1]), dir=sys.argv[2])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    criterion(net(torch.randn(8, 32)), torch.randn(8, 32)).backward()
    optimizer.step()
end.close()
"""
COLLECTIONS = ("weights", "biases", "gradients")
VALUES = {"record_end": False, "rules": [], "collections": {name: {"raw": True, "summaries": False, "save_interval": 1} for name in COLLECTIONS}}
STATISTICS = {"record_end": False, "rules": []}
RULES = (["vanishing_gradient"], ["exploding_tensor"], ["all_zero", "collection_names=weights"], ["poor_weight_initialization"],
         ["tensor_variance", "collection_names=gradients", "min_threshold=1e-10"])


def train(tdbg, what, run):
    env = {**tdbg.env, "TDBG_CLI": str(BINARY), "PYTHONPATH": HOME}
    done = subprocess.run([sys.executable, "-c", PROGRAM, what if what == "hook" else json.dumps(what), run], cwd=tdbg.directory,
                          env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def findings(tdbg, run, rule):
    done = tdbg("check", run, "--rule", *rule, "--json")
    (verdict,) = json.loads(done.stdout)["rules"]
    return done.returncode, verdict["RuleEvaluationStatus"], [f["global_step"] for f in verdict.get("findings", [])]


def rows(tdbg, run):
    tdbg.ok("export", run, "--to", "csv", run + ".csv")
    with open(tdbg.directory / (run + ".csv")) as file:
        return {(row["global_step"], row["tensor"]): row for row in csv.DictReader(file)}


def tags(tdbg, run):
    tdbg.ok("export", run, "--to", "tensorboard", run + ".tb")
    read = {}
    for path in (tdbg.directory / (run + ".tb")).rglob("*tfevents*"):
        events = accumulator.EventAccumulator(str(path.parent), {"histograms": 0})
        events.Reload()
        read |= {tag: [e.step for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        read |= {tag: [e.step for e in events.Histograms(tag)] for tag in events.Tags()["histograms"]}
    return read


def test_values_and_statistics_of_one_training_say_the_same(tdbg):
    train(tdbg, VALUES, "values")
    train(tdbg, STATISTICS, "statistics")
    made, captured = rows(tdbg, "values"), rows(tdbg, "statistics")
    kept = {key for key in captured if not key[1].startswith(("scalar/", "context/"))}
    assert kept and kept <= set(made)
    for key in kept:
        for column in captured[key]:
            if captured[key][column] != made[key][column] and column != "value":
                assert math.isclose(float(captured[key][column]), float(made[key][column]), rel_tol=1e-12), (key, column)
    for rule in RULES:
        assert findings(tdbg, "values", rule) == findings(tdbg, "statistics", rule), rule
    assert findings(tdbg, "values", ["vanishing_gradient"])[:2] == (1, "IssuesFound")
    made, captured = tags(tdbg, "values"), tags(tdbg, "statistics")
    # Capture keeps every tenth histogram, and none of small tensors; of a value there always is one.
    assert set(captured) <= set(made) and all(set(captured[tag]) <= set(made[tag]) for tag in captured)


def test_a_hooks_run_is_judged_shown_and_exported(tdbg):
    train(tdbg, "hook", "hook")
    code, status, steps = findings(tdbg, "hook", ["vanishing_gradient"])
    assert (code, status) == (1, "IssuesFound") and steps
    shown = tdbg.ok("show", "hook", "gradient/Sequential_0.weight", "--field", "mean_abs").stdout.splitlines()
    assert len(shown) == 20 and all(0 < float(line.split("\t")[1]) < 1e-7 for line in shown)
    made = rows(tdbg, "hook")
    assert 0 < float(made["3", "gradient/Sequential_0.weight"]["l2"]) < 1e-5
    read = tags(tdbg, "hook")
    assert any("gradient/Sequential_0.weight" in tag for tag in read) and any("MSELoss_output_0" in tag for tag in read)
