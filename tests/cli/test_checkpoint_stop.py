"""`checkpoint_stop` under `tdbg run`: a rule fires, the script saves between two steps, then SIGTERM, and all of it is said."""

import json
import sys

import numpy as np
import pytest

TORCH = """
import json, signal, sys, time, torch
import tdbg
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
done = stopping = 0

@tdbg.on_checkpoint
def save():
    torch.save({"steps": done, "weight": net.weight.detach().numpy().tolist()}, "last.pt")

def asked(number, frame):       # as a script does that wants to leave in good order
    global stopping
    stopping = done + 3
signal.signal(signal.SIGTERM, asked)

while not stopping or done < stopping:
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    if done >= 20:
        loss = loss * 1e-12
    loss.backward()
    optimizer.step()
    done += 1                   # the step is over when its optimizer has stepped, and only then is save() called
    time.sleep(0.005)
print("left after", done, "steps")
"""


def action_of(tdbg, name):
    (action,) = [a for a in tdbg.json("status", "r")["actions"] if a["action"] == name]
    return action


def test_a_checkpoint_from_between_two_steps_then_sigterm_and_the_summary_says_so(tdbg):
    torch = pytest.importorskip("torch")
    (tdbg.directory / "train.py").write_text(TORCH)
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "patience=1", "--on-issue", "checkpoint_stop:60",
                "--collect", "weights:1", "--", sys.executable, "train.py", timeout=120)
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert "left after" in done.stdout, "SIGTERM came as a signal that the script handles"
    assert "VanishingGradient found an issue at step 20 and stopped the training" in done.stderr

    report = tdbg.json("status", "r")
    assert report["rules"][0]["findings"][0]["global_step"] == 20
    assert report["job"]["stop"] == "requested" and report["job"]["stopped_by"] == "VanishingGradient"
    action = action_of(tdbg, "checkpoint_stop")
    assert action["ok"] and action["output"] == "checkpoint saved" and action["global_step"] == 20

    saved = torch.load(tdbg.directory / "last.pt")
    assert saved["steps"] > 20, "the rule had seen step 20"
    # Weights at a step are those its gradients were computed with: what was saved after step s - 1 is what step s began with.
    began = tdbg.json("show", "r", "weight", "--raw", "--steps", f"{saved['steps']}")["values"][0]
    assert np.array_equal(np.float32(began["values"]).reshape(3, 4), np.float32(saved["weight"]))
    text = next(line for line in (tdbg.directory / "r" / "events.jsonl").read_text().splitlines()
                if json.loads(line)["kind"] == "job_ended")
    assert not json.loads(text)["killed"]


def test_a_booster_is_handed_to_the_function_that_saves_it(tdbg):
    xgboost = pytest.importorskip("xgboost")
    (tdbg.directory / "train.py").write_text("""
import time, xgboost, numpy as np
import tdbg

@tdbg.on_checkpoint
def save(booster):
    booster.save_model("last.json")

class Slow(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, log):
        time.sleep(0.01)

x = np.random.default_rng(0).normal(size=(100, 3))
xgboost.train({"nthread": 1, "max_depth": 6}, xgboost.DMatrix(x, np.sin(9 * x[:, 0])), 3000, callbacks=[Slow()])
print("trained to the end")
""")
    done = tdbg("run", "--dir", "r", "--rule", "tree_depth", "depth=2", "--on-issue", "checkpoint_stop:60", "--",
                sys.executable, "train.py", timeout=120)
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert "trained to the end" not in done.stdout
    assert action_of(tdbg, "checkpoint_stop")["output"] == "checkpoint saved"
    booster = xgboost.Booster(model_file=tdbg.directory / "last.json")
    assert 1 < booster.num_boosted_rounds() < 3000


def test_without_a_function_the_job_is_stopped_all_the_same(tdbg):
    pytest.importorskip("torch")
    (tdbg.directory / "train.py").write_text(TORCH.replace("@tdbg.on_checkpoint", ""))
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "patience=1", "--on-issue", "checkpoint_stop:60", "--",
                sys.executable, "train.py", timeout=120)
    assert done.returncode == 3 and not (tdbg.directory / "last.pt").exists()
    assert "the script registered no tdbg.on_checkpoint" in action_of(tdbg, "checkpoint_stop")["output"]
