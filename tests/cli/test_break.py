"""Breakpoints on running trainings, through the program: hold, keep, capture, stop; with two ranks; and with bad conditions."""

import json
import signal
import subprocess
import sys
import time

import pytest

# Trains until a file appears, at a step in 5 ms; from step 30 on the gradients are large. Two ranks are two processes with gloo.
SCRIPT = """
import os, pathlib, sys, time
import torch, torch.nn as nn, torch.nn.functional as F
rank = int(os.environ.get("RANK", 0))
if os.environ.get("WORLD_SIZE"):
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
torch.manual_seed(0); torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
if os.environ.get("WORLD_SIZE"): model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
end = time.monotonic() + 300
step = 0
over = torch.zeros(1)
while time.monotonic() < end:
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    loss = F.cross_entropy(model(x), y) * (1000.0 if step >= 30 else 1.0)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); step += 1
    over[0] = float(pathlib.Path("enough").exists())
    if os.environ.get("WORLD_SIZE"): torch.distributed.all_reduce(over)
    if over[0] > 0: break
    time.sleep(0.005)
print("trained", step)
"""
RANKS = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2"}) for r in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""
SOON = 240      # where seconds are usual: an import of torch takes a minute on a machine that is busy


class Job:
    def __init__(self, tdbg, *flags, ranks=1):
        self.tdbg, self.run = tdbg, tdbg.directory / "r"
        (tdbg.directory / "train.py").write_text(SCRIPT)
        (tdbg.directory / "ranks.py").write_text(RANKS)
        self.process = tdbg.start("run", "--dir", "r", *flags, "--", sys.executable, "train.py" if ranks == 1 else "ranks.py",
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def until(self, what, *arguments):
        end = time.monotonic() + SOON
        while not (found := what(*arguments)):
            assert time.monotonic() < end, (what, self.process.poll())
            time.sleep(0.05)
        return found

    def events(self, kind=None):
        path = self.run / "events.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in found if kind in (None, event["kind"])]

    def step(self):
        done = self.tdbg("steps", "r", "--json")
        steps = json.loads(done.stdout)["steps"] if done.returncode == 0 else []
        return steps[-1]["global_step"] if steps else -1

    def held(self):
        done = self.tdbg("status", "r", "--json")       # at first there is no run yet
        return json.loads(done.stdout)["held"] if done.returncode == 0 else []

    def end(self):
        (self.tdbg.directory / "enough").touch()
        out, err = self.process.communicate(timeout=SOON)
        return self.process.returncode, out, err


@pytest.fixture
def job(tdbg):
    started = []

    def start(*flags, **options):
        started.append(Job(tdbg, *flags, **options))
        return started[-1]
    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.process.communicate(timeout=SOON)


def test_a_training_is_held_looked_at_and_goes_on(tdbg, job):
    one = job("--break", "gradient/*.l2 > 100 then pause:120")
    held = one.until(one.held)
    (worker,) = held
    assert worker["worker"] == "worker_0" and worker["seconds"] == 120 and "gradient/" in worker["because"]
    step = one.step()
    assert step == worker["after_step"] >= 30
    # While it is held, everything of that step can be read, and more can be asked for: from the next step on.
    assert tdbg.json("show", "r", "backward_loss", "--steps", f"{step}:{step + 1}")["steps"]
    asked = tdbg.json("capture", "r", "--collect", "gradients", "--steps", "3", "--raw")
    assert asked["first_step"] == step + 1
    assert "tdbg continue r" in tdbg.ok("status", "r").stdout
    assert "is held after step" in tdbg.ok("break", "r").stderr
    time.sleep(0.5)
    assert one.step() == step, "it does not train while it is held"
    assert tdbg.json("continue", "r")["goes_on"]
    one.until(lambda: one.step() > step + 5)
    code, out, err = one.end()
    assert code == 0 and "trained" in out and "goes on after step" in err
    kinds = [event["kind"] for event in one.events()]
    for kind in ("break_set", "break_hit", "held", "released"):
        assert kinds.count(kind) == 1, (kind, kinds)
    assert kinds.index("break_set") < kinds.index("break_hit") < kinds.index("held") < kinds.index("released")
    hit = one.events("break_hit")[0]
    assert hit["value"] > hit["bound"] == 100 and hit["global_step"] >= 30 and hit["tensor"].startswith("gradient/")
    raw = tdbg.json("steps", "r", "--kind", "raw")["steps"]
    assert [entry["global_step"] for entry in raw][:3] == [step + 1, step + 2, step + 3]
    (listed,) = tdbg.json("break", "r")["breakpoints"]
    assert listed["state"] == "hit" and listed["hit_step"] == hit["global_step"]
    assert "is not running" in tdbg.fails(6, "break", "r", "gradient/*.l2 > 1")
    assert "no worker of the run is held" in tdbg.fails(6, "continue", "r")


def test_two_ranks_are_held_after_the_same_step_and_a_dead_watcher_does_not_hold_them_for_ever(tdbg, job):
    one = job("--break", "gradient/*.l2 > 100 then pause:3", ranks=2)
    held = one.until(lambda: len(one.held()) == 2 and one.held())
    assert {worker["worker"] for worker in held} <= {"worker_0", "worker_1"}
    assert len({worker["after_step"] for worker in held}) == 1
    one.process.kill()      # the launcher and its watcher, not the training
    one.process.wait(timeout=SOON)      # the pipes are held by what it started, until the training ends
    step = held[0]["after_step"]
    one.until(lambda: one.step() > step + 5)
    (tdbg.directory / "enough").touch()
    one.until(lambda: not tdbg.json("status", "r")["alive"])
    one.process.communicate(timeout=SOON)


def test_a_condition_set_while_it_trains_keeps_a_step_whole_and_one_stops_it(tdbg, job):
    one = job()
    one.until(lambda: one.step() > 35)
    for condition, wrong in (("gradient/*.l3 > 1", "no field 'l3'"), ("nothing/*.l2 > 1", "tdbg tensors r"),
                             ("gradient/*.l2", "there is no comparison"), ("gradient/*.l2 > much", "is no number")):
        assert wrong in tdbg.fails(2, "break", "r", condition)
    assert "acts on the job itself" in tdbg.fails(2, "break", "r", "gradient/*.l2 > 1", "--then", "exec:true")
    kept = tdbg.json("break", "r", "gradient/*.l2 > 100", "--then", "blackbox")
    assert kept["break"] == 1 and kept["followed"]
    boxes = one.until(lambda: tdbg.json("status", "r")["black_boxes"])
    assert boxes[0]["step"] > kept["after_step"]
    listed = tdbg.ok("replay", "r")
    assert "gradient/*.l2 > 100" in listed.stdout and "tdbg: go back into it: tdbg replay r --step " in listed.stderr
    # Of its own history, once most of it is large, nothing exceeds a hundred times the median: it stays set, and is taken back.
    one.until(lambda: one.step() > 150)
    assert tdbg.json("break", "r", "gradient/*.l2 > 100 x median", "--then", "stop")["break"] == 2
    assert tdbg.json("break", "r", "--remove", "2")["removed"] == 2
    assert "removed already" in tdbg.fails(6, "break", "r", "--remove", "2")
    assert "no breakpoint 9" in tdbg.fails(4, "break", "r", "--remove", "9")
    tdbg.ok("break", "r", "gradient/*.l2 > 0.001 x median", "--then", "stop")
    assert one.process.wait(timeout=SOON) == 3
    assert [b["state"] for b in tdbg.json("break", "r")["breakpoints"]] == ["hit", "removed", "hit"]
    assert tdbg.json("status", "r")["job"]["stopped_by"] == "break 3"


@pytest.mark.parametrize("flag, wrong", [("loss > 5", "has no statistic"), ("a.l2 > 1 then dance", "no action of a breakpoint"),
                                         ("a.l5 > 1", "no field 'l5'")])
def test_a_wrong_break_is_refused_before_anything_starts(tdbg, flag, wrong):
    assert wrong in tdbg.fails(2, "run", "--dir", "r", "--break", flag, "--", "true")
    assert not (tdbg.directory / "r").exists()


@pytest.mark.long
def test_verify_and_flight_are_flags_and_a_difference_is_an_incident(tdbg):
    (tdbg.directory / "train.py").write_text("""
import torch, torch.nn as nn, torch.nn.functional as F
calls = [0]
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(4, 2)
    def forward(self, x):
        calls[0] += 1
        return self.l(x) * (1 + 1e-4 * calls[0])
net = Net(); optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""")
    done = tdbg.ok("run", "--dir", "r", "--verify-every", "5", "--flight", "2", "--", sys.executable, "train.py",
                   timeout=SOON)
    assert "gradients of the last 2 steps" in done.stderr
    incident = next(i for i in tdbg.json("status", "r")["incidents"] if i["detector"] == "not_repeatable")
    assert incident["first_step"] == 0 and "nondeterminism is likelier" in incident["sentence"]
    assert "rank 0" in incident["sentence"] and "output 0" in incident["sentence"]
    tdbg.fails(2, "run", "--verify-every", "0", "--", "true")
    (tdbg.directory / "c.yaml").write_text("verify_every: 5\nflight: 3\n")
    done = tdbg.ok("run", "--dir", "by-file", "--config", "c.yaml", "--flight", "2", "--", sys.executable, "train.py", timeout=SOON)
    assert "gradients of the last 2 steps" in done.stderr
    assert any(i["detector"] == "not_repeatable" for i in tdbg.json("status", "by-file")["incidents"])
    (tdbg.directory / "c.yaml").write_text("verify_every: often\n")
    assert "c.yaml:1: verify_every" in tdbg.fails(2, "run", "--config", "c.yaml", "--", "true")
