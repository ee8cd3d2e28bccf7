"""A training that is interrupted goes on: where each attempt begins, one series without gaps, the same weights, the same verdicts."""

import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest
from program import ROOT, follows, processes_marked

pytest.importorskip("torch")

#: Rehearsed reclaims in one training; 20 where somebody waits for them.
INTERRUPTIONS = int(os.environ.get("TDBG_TEST_INTERRUPTIONS", "4"))
#: Launchers killed at random instants; 100 where somebody waits for them.
KILLS = int(os.environ.get("TDBG_TEST_KILLS", "8"))
EVERY = 60
STEPS = EVERY * (INTERRUPTIONS + 2) // 2 + 100

TRAIN = """
import os, random, sys, time
import torch
sys.argv[1:] = sys.argv[1:] or ["80", "none"]
torch.set_num_threads(1)
torch.manual_seed(0)
directory = os.environ.get("TDBG_CHECKPOINT_DIR", sys.argv[2])
last = os.path.join(directory, "last.pt")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.OPTIMIZER(model.parameters(), lr=0.01)
begin = 0
if os.path.exists(last):
    state = torch.load(last)
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"]); begin = state["step"]
SAID
def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 4, generator=generator)
    return x, x.sum(1, keepdim=True)
for step in range(begin, int(sys.argv[1])):
    while step == int(sys.argv[1]) - 60 and os.path.exists("hold"): time.sleep(0.01)
    model.train()
    x, y = batch(step)
    loss = torch.nn.functional.mse_loss(model(x), y)
    if step >= 100: loss = loss * 1e-6      # Adam learns all the same, and a rule has something to find
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            torch.nn.functional.mse_loss(model(x), y)
    if step % EVERY == EVERY - 1:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, last + ".tmp")
        os.replace(last + ".tmp", last)
    time.sleep(float(os.environ.get("PAUSE", "0")))
torch.save(model.state_dict(), "final.pt")
"""
RULES = ["--rule", "loss_not_decreasing", "num_steps=10", "--rule", "vanishing_gradient", "threshold=1e-5"]


def script(tdbg, optimizer="Adam", said="", every=7):
    """A checkpoint after every so many steps. Before the last 60 it waits for as long as there is a file `hold`."""
    (tdbg.directory / "train.py").write_text(TRAIN.replace("OPTIMIZER", optimizer).replace("SAID", said).replace("EVERY", str(every)))
    return [sys.executable, "train.py"]


def steps_of(tdbg, run):
    """[(global step, mode, mode step)] as every reader sees them."""
    listed = tdbg.json("steps", run)
    return [(s["global_step"], s["mode"], s["mode_step"]) for s in listed["steps"]]


def steps_seen(tdbg):
    if not (tdbg.directory / "r/run.json").exists():
        return 0
    return tdbg.json("status", "r")["steps"]["all"]


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.1)


def weights(path):
    import torch
    return {name: value.numpy().tobytes() for name, value in torch.load(path).items()}


def verdicts(tdbg, command, run, *flags):
    done = tdbg(command, run, *flags, "--json")
    left_out = ("LastModifiedTime", "follows_from")
    return [{k: v for k, v in rule.items() if k not in left_out} for rule in json.loads(done.stdout)["rules"]]


@pytest.mark.long
def test_a_training_that_is_reclaimed_again_and_again_is_one_training(tdbg):
    train = script(tdbg)
    tdbg.ok("run", "--quiet", "--dir", "whole", *RULES, "--checkpoint-dir", "c0", "--", *train, STEPS, "none", timeout=300)
    os.rename(tdbg.directory / "final.pt", tdbg.directory / "whole.pt")
    done = tdbg.ok("run", "--quiet", "--dir", "r", *RULES, "--checkpoint-dir", "c", "--interrupt-every", f"{EVERY // 2}steps",
                   "--interruptions", INTERRUPTIONS, "--", *train, STEPS, "none", env={"PAUSE": "0.01"}, timeout=900)
    job = tdbg.json("jobs", "r")
    assert len(job["attempts"]) == INTERRUPTIONS + 1 and job["status"] == "Completed"
    assert weights(tdbg.directory / "final.pt") == weights(tdbg.directory / "whole.pt")
    assert steps_of(tdbg, "r") == steps_of(tdbg, "whole")
    bases = tdbg.json("status", "r")["step_bases"]
    assert [b["from"] for b in bases] == ["optimizer"] * INTERRUPTIONS
    assert all(b["missing"] == 0 for b in bases) and sum(b["replaced"] for b in bases) > 0
    assert f"goes on at step {bases[0]['step']}, as the optimizer's own state (Adam) says" in done.stderr
    live = verdicts(tdbg, "status", "r")
    assert live == verdicts(tdbg, "check", "r", *RULES) == verdicts(tdbg, "check", "whole", *RULES)
    assert "IssuesFound" in {rule["RuleEvaluationStatus"] for rule in live}
    assert not list(pathlib.Path(tdbg.directory / "r").glob("*/tmp"))


def test_who_says_nothing_hides_nothing_and_who_says_it_goes_on_there(tdbg):
    """SGD keeps no count. Three attempts in one job: 0 crashes, 1 says nothing, 2 says where it goes on."""
    said = ("if os.environ['TDBG_ATTEMPT'] == '2': import tdbg; tdbg.resume_step(begin)\n"
            "if os.environ['TDBG_ATTEMPT'] != '2': sys.argv[1] = '12'")
    train = script(tdbg, "SGD", said)
    text = (tdbg.directory / "train.py").read_text()
    (tdbg.directory / "train.py").write_text(text + "if os.environ['TDBG_ATTEMPT'] != '2': sys.exit(1)\n")
    done = tdbg.ok("run", "--quiet", "--dir", "r", "--checkpoint-dir", "c", "--max-restarts", 2, "--", *train, 20, "none")
    said = " ".join(done.stderr.split())
    # Attempt 0 trained twelve steps and evaluated once; attempt 1 begins behind them, with the script's step 7.
    assert "attempt 1 begins at step 13, behind the steps of the attempts before it: where it goes on is not stated" in said
    assert "attempt 2 goes on at step 7, as the script says; steps 7 to 18 are trained again" in said
    status = tdbg.json("status", "r")
    assert status["step_bases"] == [{"attempt": 1, "step": 13, "from": "behind", "replaced": 0, "missing": 0},
                                    {"attempt": 2, "step": 7, "from": "script", "replaced": 12, "missing": 0}]
    shown = " ".join(tdbg.ok("status", "r").stdout.split())
    assert "attempt 1 at step 13, behind the steps of the attempts before it, since where it goes on is not stated" in shown
    assert "attempt 2 at step 7, as the script says; 12 steps trained again" in shown


#: Killed at step 30; a NaN at step 20, in the first attempt alone. CHECKPOINT says what of it is kept.
FAULTY = """
import os, signal, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.OPTIMIZER(model.parameters(), lr=0.01)
last, step = sys.argv[1], 0
if os.path.exists(last):
    state = torch.load(last)
    model.load_state_dict(state["model"]); step = state["step"]
    if "optimizer" in state: optimizer.load_state_dict(state["optimizer"])
    SAID
first = step == 0
while step < 40:
    x = torch.randn(8, 4)
    loss = torch.nn.functional.mse_loss(model(x), x * float("inf") if first and step == 20 else x)
    optimizer.zero_grad(); loss.backward()
    if not torch.isfinite(loss): LEFT_OUT
    optimizer.step(); step += 1
    if step == SAVED and first:
        torch.save({"model": model.state_dict(), "step": step, **({"optimizer": optimizer.state_dict()} if KEPT else {})}, last)
    if step == 30 and first: os.kill(os.getpid(), signal.SIGKILL)
"""


def found_in(tdbg, command, run, *flags):
    done = tdbg(command, run, *flags, "--json")
    found = [(f["global_step"], f.get("attempt")) for rule in json.loads(done.stdout)["rules"] for f in rule["findings"]]
    return done.returncode, sorted(set(found), key=str)


@pytest.mark.parametrize("optimizer, kept, saved, said, steps, finding", [
    ("Adam", True, 30, "", 40, (20, None)),         # it does not count the step that was left out, and the run knows
    pytest.param("SGD", True, 30, "", 40, (20, None), marks=pytest.mark.long),  # keeps no count: laid behind, and nothing is hidden
    pytest.param("SGD", True, 10, "", 60, (20, None), marks=pytest.mark.long),  # what is trained again is there twice
    pytest.param("Adam", False, 30, "", 40, (20, None), marks=pytest.mark.long),  # the checkpoint has the weights alone: a count of 0 says nothing
    pytest.param("Adam", True, 10, "", 40, (20, 0), marks=pytest.mark.long),  # it counts, and its steps replace the NaN's
    ("SGD", True, 10, "import tdbg; tdbg.resume_step(step)", 40, (20, 0)),
])
def test_what_an_earlier_attempt_found_stands(tdbg, optimizer, kept, saved, said, steps, finding):
    left_out = "optimizer.zero_grad()" if saved == 30 else "[p.grad.zero_() for p in model.parameters()]"
    text = FAULTY.replace("LEFT_OUT", left_out).replace("OPTIMIZER", optimizer).replace("KEPT", str(kept)).replace("SAVED", str(saved)).replace("SAID", said)
    (tdbg.directory / "faulty.py").write_text(text)
    tdbg.ok("run", "--quiet", "--dir", "r", "--max-restarts", "1", "--", sys.executable, "faulty.py", "last.pt")
    status = tdbg.json("status", "r")
    assert (status["steps"]["all"], status["steps"]["TRAIN"]) == (steps, steps)
    assert [s[0] for s in steps_of(tdbg, "r")] == list(range(steps))
    assert found_in(tdbg, "status", "r", "--exit-code") == (1, [finding])
    assert found_in(tdbg, "check", "r", "--own") == (1, [finding])
    assert "at step 20" in tdbg.ok("ls", ".").stdout
    assert ("in attempt 0, whose step 20 was trained again since" in " ".join(tdbg.ok("status", "r").stdout.split())) == (
        finding[1] == 0)


def test_a_launcher_that_is_killed_is_followed_by_another(tdbg):
    train = script(tdbg)
    env = {**tdbg.env, "PAUSE": "0.01"}
    flags = ["run", "--quiet", "--dir", "r", *RULES, "--checkpoint-dir", "c", "--max-restarts", "1"]
    tdbg.env = env
    job = tdbg.start(*flags, "--", *train, 100000, "none", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: steps_seen(tdbg) > 20, 60)
    job.kill()
    job.wait(20)
    assert tdbg.json("jobs", "r")["life"] == "unwatched"
    assert "without a command" in tdbg.fails(6, "resume", "r", "--", "true")
    tdbg.ok("resume", "r", "--detach")
    state = tdbg.json("jobs", "r")
    assert state["life"] == "watched" and state["attempt"] == 0 and state["status"] == "InProgress"
    assert "is running" in tdbg.fails(6, "resume", "r")
    assert "another tdbg" in tdbg.fails(6, *flags, "--", *train, 1, "none")
    until(lambda: any(r["RuleEvaluationStatus"] == "IssuesFound" for r in tdbg.json("status", "r")["rules"]), 60)
    os.kill(state["pid"], signal.SIGKILL)   # the training dies: started again, by the policy of its first launcher
    until(lambda: tdbg.json("jobs", "r")["attempt"] == 1, 60)
    until(lambda: len(tdbg.json("status", "r")["step_bases"]) == 1, 60)
    assert tdbg.json("status", "r")["step_bases"][0]["from"] == "optimizer"
    tdbg.ok("stop", "r")
    until(lambda: tdbg.json("jobs", "r")["status"] == "Stopped", 60)
    assert verdicts(tdbg, "status", "r") == verdicts(tdbg, "check", "r", *RULES)


@pytest.mark.long
def test_a_training_that_ends_under_its_second_launcher_is_complete(tdbg):
    script(tdbg)
    (tdbg.directory / "hold").touch()
    tdbg.env["PAUSE"] = "0.02"
    job = tdbg.start("run", "--quiet", "--dir", "r", "--checkpoint-dir", "c", "--", sys.executable, "train.py", 150, "none",
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: steps_seen(tdbg) >= 3, 60)
    job.kill()
    job.wait(20)
    second = tdbg.start("resume", "r", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until(lambda: tdbg.json("jobs", "r")["life"] == "watched", 60)
    (tdbg.directory / "hold").unlink()
    said = second.communicate(timeout=120)[1]
    assert second.returncode == 0 and ("looks after 'r' again" in said or said == ""), said
    state = tdbg.json("jobs", "r")
    assert state["status"] == "Completed" and state["exit_code"] == 0 and state["attempt"] == 0
    assert (tdbg.directory / "final.pt").exists()
    assert [s[0] for s in steps_of(tdbg, "r")] == list(range(165))


@pytest.mark.long
def test_the_rehearsal_of_the_document_does_what_it_says(tdbg):
    # Steps are trained again unless an interruption comes right behind a checkpoint: of every 15th step, none of 20 does.
    script(tdbg, every=15)
    tdbg.env["PAUSE"] = "0.02"
    block = (ROOT / "docs/jobs.md").read_text().split("```sh\n")[2].split("```")[0]
    rehearsal, status = [shlex.split(line)[1:] for line in block.strip().splitlines()]
    done = tdbg.ok(*[sys.executable if word == "python" else word for word in rehearsal], timeout=120)
    said = " ".join(done.stderr.split())
    assert "interrupted by --interrupt-every; attempt 2 begins; its predecessor's $TMPDIR is wiped" in said
    shown = tdbg.ok(*status).stdout
    assert shown.count("as the optimizer's state says") == 2 and "trained again" in shown
    tdbg.fails(2, "run", "--interrupt-every", "often", "--", "true")
    tdbg.fails(2, "run", "--interruptions", "3", "--", "true")


@pytest.mark.long
def test_launchers_that_are_killed_at_random_instants_lose_nothing(tdbg):
    """One training, one launcher after the other: each is killed at a random instant, as soon as it begins or when it judges."""
    chance = random.Random(int(os.environ.get("TDBG_TEST_SEED", "0")))
    train = script(tdbg)
    tdbg.env["PAUSE"] = "0.01"
    steps = 200 + 60 * KILLS
    (tdbg.directory / "hold").touch()
    launcher = tdbg.start("run", "--quiet", "--dir", "r", *RULES, "--checkpoint-dir", "c", "--", *train, steps, "none",
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: steps_seen(tdbg) >= 3, 60)
    for _ in range(KILLS):
        if chance.random() < 0.5:   # else amid its start
            until(lambda: follows(launcher.pid), 60)
        time.sleep(chance.choice((0.02, 0.1, 0.5)) * chance.random())
        launcher.kill()
        launcher.wait(20)
        launcher = tdbg.start("resume", "r", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until(lambda: follows(launcher.pid), 60)
    (tdbg.directory / "hold").unlink()
    assert launcher.wait(300) == 0, launcher.stderr.read()
    launcher.stderr.close()
    state = tdbg.json("jobs", "r")
    assert state["status"] == "Completed" and len(state["attempts"]) == 1, state
    assert [s[0] for s in steps_of(tdbg, "r")] == list(range(steps + steps // 10))
    assert verdicts(tdbg, "status", "r") == verdicts(tdbg, "check", "r", *RULES)
    actions = [json.loads(line)["kind"] for line in (tdbg.directory / "r/events.jsonl").read_text().splitlines()]
    assert actions.count("job_started") == actions.count("job_ended") == 1


def test_launchers_that_are_killed_while_they_start_leave_a_job_that_can_be_started(tdbg):
    chance = random.Random(int(os.environ.get("TDBG_TEST_SEED", "0")))
    for _ in range(KILLS):
        launcher = tdbg.start("run", "--quiet", "--dir", "k", "--", "sh", "-c", "sleep 0.2", stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        time.sleep(0.25 * chance.random())
        launcher.kill()
        launcher.wait(20)
        tdbg.ok("jobs")     # whatever it looks like
    until(lambda: not processes_marked(tdbg.mark), 60)  # the last one's command, too, has ended
    tdbg.ok("run", "--quiet", "--dir", "k", "--", "true")
    assert tdbg.json("jobs", "k")["status"] == "Completed"
