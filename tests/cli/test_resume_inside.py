"""Where an attempt begins that no launcher started (an elastic agent inside the job did), and of which one rank alone is
told where it goes on."""

import sys

import pytest

pytest.importorskip("torch")

# Two processes with the environment of torchrun's workers, which need no collectives to be ranks of one run. The one
# that comes second waits until the other has recorded a step of this attempt.
RANKS = """
import os, subprocess, sys
first = int(sys.argv[1])
workers = [subprocess.Popen([sys.executable, "train.py", str(int(rank != first))],
                            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in (0, 1)]
sys.exit(max(worker.wait() for worker in workers))
"""

TRAIN = """
import os, sys, time
sys.path.insert(0, os.environ["TDBG_HOME"])
import tdbg, torch
torch.set_num_threads(1)
attempt, rank = int(os.environ["TDBG_ATTEMPT"]), int(os.environ["RANK"])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if attempt == 1 and rank == 0:
    tdbg.resume_step(6)
for step in range(6 * attempt, 10):
    while int(sys.argv[1]) and not os.path.exists(f"began-{attempt}"):
        time.sleep(0.01)
    optimizer.zero_grad(); model(torch.randn(2, 4)).mean().backward(); optimizer.step()
    if step == 6 * attempt + 1:
        open(f"began-{attempt}", "w").close()
sys.exit(1 - attempt)
"""


@pytest.mark.parametrize("first", [pytest.param(0, marks=pytest.mark.long), 1])
def test_ranks_begin_at_one_step_whichever_of_them_is_told(tdbg, first):
    """SGD keeps no count, and rank 0 alone has loaded the checkpoint: after 10 steps, of which 6 are in it."""
    (tdbg.directory / "train.py").write_text(TRAIN)
    (tdbg.directory / "ranks.py").write_text(RANKS)
    done = tdbg.ok("run", "--quiet", "--dir", "r", "--max-restarts", 1, "--", sys.executable, "ranks.py", first)
    status = tdbg.json("status", "r")
    said, shown = " ".join(done.stderr.split()), " ".join(tdbg.ok("status", "r").stdout.split())
    steps = tdbg.json("steps", "r")["steps"]
    if first == 0:
        assert status["step_bases"] == [{"attempt": 1, "step": 6, "from": "script", "replaced": 4, "missing": 0}]
        assert "attempt 1 goes on at step 6, as the script says" in said and "behind" not in said
        assert len(steps) == 10
    else:       # it has steps by now, which cannot be numbered anew
        assert status["step_bases"] == [{"attempt": 1, "step": 10, "from": "behind", "replaced": 0, "missing": 0,
                                         "others": [{"worker": "worker_0", "step": 6, "recorded": False}]}]
        assert said.count("rank 0 begins at step 10, as rank 1 of this attempt did, and not at step 6, as its script says") == 1
        assert "worker_0 says that it begins at step 6, and was numbered as the others are" in shown
        assert len(steps) == 14
    assert all(step["complete"] for step in steps)


AGENT = """
import subprocess, sys
while (code := subprocess.run([sys.executable, "train.py"]).returncode) < 0:
    pass
sys.exit(code)
"""

ELASTIC = """
import os, signal, sys
sys.path.insert(0, os.environ["TDBG_HOME"])
import tdbg, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.OPTIMIZER(model.parameters(), lr=0.01)
begin = 0
if os.path.exists("last.pt"):
    state = torch.load("last.pt")
    optimizer.load_state_dict(state["optimizer"]); begin = state["step"]
    SAID
for step in range(begin, 14):
    optimizer.zero_grad(); model(torch.randn(2, 4)).mean().backward(); optimizer.step()
    if step % 3 == 2:
        model.eval()
        with torch.no_grad(): torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 1))
        model.train()
    if step == 7 and not begin: torch.save({"optimizer": optimizer.state_dict(), "step": 8}, "last.pt")
    if step == 10 and not begin: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("optimizer, said, source", [
    ("Adam", "pass", "optimizer"), pytest.param("SGD", "tdbg.resume_step(8)", "script", marks=pytest.mark.long)])
def test_what_an_agent_inside_the_job_starts_again_goes_on_where_its_checkpoint_is(tdbg, optimizer, said, source):
    """Killed after 11 steps of training and 3 evaluations; 8 and 2 of them are before the checkpoint."""
    (tdbg.directory / "train.py").write_text(ELASTIC.replace("OPTIMIZER", optimizer).replace("SAID", said))
    (tdbg.directory / "agent.py").write_text(AGENT)
    done = tdbg.ok("run", "--quiet", "--dir", "r", "--", sys.executable, "agent.py")
    assert tdbg.json("status", "r")["step_bases"] == [
        {"attempt": 1, "step": 10, "from": source, "replaced": 4, "missing": 0}]
    assert "attempt 1 goes on at step 10, as the" in " ".join(done.stderr.split())
    steps = tdbg.json("steps", "r")["steps"]
    assert [step["global_step"] for step in steps] == [*range(18)]
    assert [step["mode_step"] for step in steps if step["mode"] == "TRAIN"] == [*range(14)]
