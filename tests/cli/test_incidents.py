"""What a run says of which nobody named a rule: incidents, live and judged again alike; healthy twins say nothing."""

import json
import sys

import pytest

SCRIPT = """
import sys, torch
import torch.nn.functional as F
from torch import nn

fault = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.head = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)
    def forward(self, x):
        x = torch.relu(self.l2(torch.relu(self.l1(x))))
        x = self.head(x.detach() if fault == "detach" else x)
        return x.softmax(1) if fault == "softmax" else x

net = Net()
centres = torch.randn(4, 16)
count = 16 if fault == "overfit" else 512
labels = torch.randint(0, 4, (count,))
inputs = centres[labels] + torch.randn(count, 16)
if fault == "overfit":
    labels = torch.randint(0, 4, (count,))
held_labels = torch.randint(0, 4, (128,))
held = centres[held_labels] + torch.randn(128, 16)
if fault == "bytes":
    inputs, held = 40 * inputs + 128, 40 * held + 128
trained = [p for n, p in net.named_parameters() if fault != "left_out" or not n.startswith("l1")]
optimizer = torch.optim.Adam(trained, 5e-3)
for step in range(120):
    chosen = torch.randint(0, count, (16,))
    loss = F.cross_entropy(net(inputs[chosen]), labels[chosen])
    if fault == "nan" and step == 40:
        loss = loss * torch.log(torch.zeros(()))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step % 10 == 9:
        net.eval()
        with torch.no_grad():
            scores = net(held)
            if fault == "evaluation" and step == 39:
                scores[7] = float("nan")
            F.cross_entropy(scores, held_labels)
        net.train()
"""


@pytest.fixture
def script(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT)
    return lambda fault: tdbg("run", "--dir", fault, "--", sys.executable, "train.py", fault, timeout=600)


def test_a_rule_that_found_nothing_says_what_it_never_saw(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT)
    done = tdbg("run", "--dir", "r", "--rule", "vanishing_gradient", "--", sys.executable, "train.py", "detach", timeout=600)
    assert done.returncode == 0 and "no issue found" in done.stderr
    words = "4 parameters never had a gradient: Net_l1.weight, Net_l1.bias, Net_l2.weight and 1 more"
    assert words in " ".join(done.stderr.split()), done.stderr
    (rule,) = tdbg.json("status", "r")["rules"]
    assert words in rule["StatusDetails"]


@pytest.mark.parametrize("fault, id, first_step, words", [
    ("detach", "no_gradient", 9, "parameters get no gradient, at TRAIN step 9"),
    ("left_out", "no_optimizer", 9, "parameters are in no optimizer, at TRAIN step 9"),
    pytest.param("overfit", "validation_rises", None, "validation gets worse while training improves", marks=pytest.mark.long),
    ("nan", "nonfinite", 44, "at TRAIN step 40 (global 44)"),
    ("evaluation", "nonfinite", 43, "at EVAL step 3 (global 43)"),
    pytest.param("bytes", "input_unscaled", 2, "inputs are not scaled, at TRAIN step 2", marks=pytest.mark.long),
    pytest.param("softmax", "not_logits", 2, "a loss is given probabilities where it takes logits", marks=pytest.mark.long),
])
def test_a_fault_is_one_incident_that_says_its_cause(tdbg, script, fault, id, first_step, words):
    done = script(fault)
    assert done.returncode == 0 and words in done.stderr, done.stderr
    assert f"tdbg explain {fault}" in done.stderr

    told = tdbg.json("status", fault)
    (incident,) = told["incidents"]
    assert ("the graph is cut between Net_l2 and Net_head" in incident["sentence"]) == (fault == "detach")
    assert incident["id"] == id and first_step in (None, incident["first_step"])
    assert ("if the training itself stays finite" in incident["advice"]) == (fault == "evaluation")
    assert incident["sentence"] and incident["advice"] and incident["evidence"] and incident["confidence"]

    again = json.loads(tdbg("check", fault, "--own", "--json").stdout)
    assert again["incidents"] == told["incidents"], "judged again it is what was said live"

    story = tdbg("explain", fault)
    lines = story.stdout.splitlines()
    assert story.returncode == 1 and id in story.stdout and len(lines) <= 20 and max(map(len, lines)) <= 100
    before = tdbg("explain", fault, "--step", str(incident["first_step"] - 1))
    assert before.returncode == 0 and "no incident" in before.stdout
    if incident["tensor"]:
        assert tdbg("explain", fault, "--tensor", incident["tensor"]).returncode == 1

    import tdbg as package

    trial = package.open(str(tdbg.directory / fault))
    (read,) = trial.incidents()
    assert (read.id, read.first_step, read.sentence) == (id, incident["first_step"], incident["sentence"])
    assert read.sentence in str(read) and read.title in trial.incidents()._repr_html_()
    assert id in {finding["detector"] for finding in trial.findings()}
    assert incident["title"] in tdbg("ls", ".").stdout

    segment = next((tdbg.directory / fault).rglob("*.safetensors"))
    segment.write_bytes(segment.read_bytes()[:200])
    damaged = tdbg("explain", fault)
    assert damaged.returncode == 1 and id in damaged.stdout and segment.name in damaged.stderr, damaged
    damaged = tdbg("explain", fault, "--step", str(incident["first_step"] - 1))
    assert damaged.returncode == 5 and segment.name in damaged.stderr, damaged


@pytest.mark.long
def test_the_healthy_twin_says_nothing_and_a_run_that_nobody_watched_can_be_explained(tdbg, script):
    done = script("none")
    assert done.returncode == 0 and "no issue found" in done.stderr and "Profile  NoIssuesFound" in done.stderr
    told = tdbg("explain", "none")
    assert told.returncode == 0 and "no incident" in told.stdout and "not judged" not in told.stdout
    events = tdbg.directory / "none" / "events.jsonl"   # as if its launcher had been killed
    events.write_text("".join(line for line in events.read_text().splitlines(True) if '"status":"NoIssuesFound"' not in line))
    assert "to the run's end by Profile: tdbg check" in " ".join(tdbg("explain", "none").stdout.split())

    (tdbg.directory / "off.yaml").write_text("rules: []\n")
    tdbg("run", "--dir", "off", "--config", "off.yaml", "--", sys.executable, "train.py", "detach", timeout=600)
    assert tdbg.json("status", "off")["incidents"] == []
    late = tdbg("explain", "off")
    assert late.returncode == 1 and "no_gradient" in late.stdout


# Two ranks that do not wait for each other, started by a script of somebody's own: torchrun would end the other one.
RANKS = """
import os, subprocess, sys
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:]], env={**os.environ, "RANK": str(r), "LOCAL_RANK": str(r),
                                                                                "WORLD_SIZE": "2"}) for r in range(2)]
    ranks[1].wait()
    open("over", "w").close()
    sys.exit(ranks[0].wait())
import time, torch
torch.set_num_threads(1)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(40):
    if os.environ["RANK"] == "1" and sys.argv[1] == "dies" and step == 20:
        os._exit(9)
    while os.environ["RANK"] == "0" and step == 25 and not os.path.exists("over"):
        time.sleep(0.05)
    optimizer.zero_grad(); net(torch.randn(8, 4)).square().mean().backward(); optimizer.step()
"""


@pytest.mark.parametrize("how", ["dies", pytest.param("lives", marks=pytest.mark.long)])
def test_a_rank_that_died_is_an_incident(tdbg, how):
    (tdbg.directory / "ranks.py").write_text(RANKS)
    done = tdbg("run", "--dir", how, "--", sys.executable, "ranks.py", how, timeout=600)
    told = tdbg.json("status", how)
    found = [(i["id"], i["first_step"], i["worker"]) for i in told["incidents"]]
    assert found == ([("rank_died", 19, "worker_1")] if how == "dies" else []), done.stderr
    again = json.loads(tdbg("check", how, "--own", "--json").stdout)
    assert again["incidents"] == told["incidents"], "judged again it is what was said live"
