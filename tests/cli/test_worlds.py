"""Jobs of several processes under `tdbg run`: what is said while they train is what `tdbg check` says afterwards, and a
stop arrives. The launcher does not know how many workers there will be; its first worker's files say it."""

import itertools
import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch in this Python")

# Rank 0's loss is infinite at one step, of which rank 1 sees nothing: the gradients are finite.
SCRIPT = """
import os, sys, time, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
class Loss(torch.nn.Module):
    extra = 0.0
    def forward(self, y, target):
        return ((y - target) ** 2).mean() + self.extra

kind, steps, bad, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
changed = int(sys.argv[5]) if len(sys.argv) > 5 else -1   # the step at which one element of rank 1's copy is another
torch.set_num_threads(1)
alone = kind == "elastic"   # no collectives: gloo over torchrun's store does not come back after a restart, with or without tdbg
if not alone:
    dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
if alone:
    model = net
elif kind == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(net)
else:
    model = fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
random = torch.Generator().manual_seed(0 if "same" in sys.argv else rank)
if "alone" in sys.argv:
    model = net     # the wrapper is made, and not called: gradients are not summed
criterion = Loss()
for step in range(steps):
    x = torch.randn(16, 8, generator=random)
    if alone and step == changed and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while rank == 0 or not os.path.exists(os.environ["TDBG_RUN"] + "/0/worker_0/worker.json"):
            time.sleep(0.05)    # rank 0 until torchrun ends it, which has seen rank 1 die
        os._exit(7)
    if kind == "ddp" and step == changed and rank == 1:
        with torch.no_grad():
            net[2].weight[0, 3] += 1e-6
    optimizer.zero_grad()
    criterion.extra = float("inf") if rank == 0 and step == bad else 0.0
    criterion(model(x), x[:, :1]).backward()
    optimizer.step()
    time.sleep(pause)
if not alone:
    dist.barrier()
    dist.destroy_process_group()
print("trained to the end")
"""
EXPLODING = ("--rule", "exploding_tensor", "collection_names=losses")


@pytest.fixture
def train(tdbg):
    """Runs the two ranks; gloo aborts a rank now and then on a busy machine, so up to three times."""
    (tdbg.directory / "train.py").write_text(SCRIPT)
    probe = tdbg("doctor", "--python", sys.executable, "--json")
    capture = next((f for f in json.loads(probe.stdout) if f["what"] == "tdbg._capture"), {"answer": "no Python"})
    if capture.get("verdict") != "good":
        pytest.skip(f"the extension does not load here: {capture['answer']}")

    names = (f"r{n}" for n in itertools.count())    # of a run that is there the second would be the next attempt

    def run(flags, *arguments, restarts=0):
        for _ in range(3):
            name = next(names)
            done = tdbg("run", "--dir", name, *flags, "--", sys.executable, "-m", "torch.distributed.run", "--standalone",
                        "--nproc_per_node", "2", "--max-restarts", str(restarts), "train.py", *map(str, arguments), timeout=120)
            if "terminate called without an active exception" not in done.stderr:
                break
        return name, done
    return run


def verdicts(statuses):
    return [{key: value for key, value in status.items() if key != "LastModifiedTime"} for status in statuses]


def live_and_replayed(tdbg, name):
    again = tdbg("check", name, "--own", "--json")
    return verdicts(tdbg.json("status", name)["rules"]), verdicts(json.loads(again.stdout)["rules"])


def test_parts_of_two_ranks_are_judged_live_as_afterwards(tdbg, train):
    name, done = train((*EXPLODING, "--rule", "vanishing_gradient"), "fsdp2", 40, -1, 0)
    assert done.returncode == 0, done.stderr
    live, replayed = live_and_replayed(tdbg, name)
    assert live == replayed
    assert [(rule["RuleEvaluationStatus"], rule["steps_judged"]) for rule in live] == [("NoIssuesFound", 40)] * 2


def test_a_stop_that_one_rank_causes_arrives_at_once(tdbg, train):
    name, done = train((*EXPLODING, "--rule", "vanishing_gradient", "--on-issue", "stop"), "ddp", 2000, 20, 0.01)
    assert done.returncode == 3, done.stderr
    assert "trained to the end" not in done.stdout
    live, replayed = live_and_replayed(tdbg, name)
    assert live == replayed
    finding, = live[0]["findings"]
    assert (finding["global_step"], finding["worker"]) == (20, "worker_0")
    assert tdbg.json("status", name)["steps"]["all"] < 500, "the other 1,979 take 20 s"


@pytest.mark.long
def test_a_copy_of_a_weight_that_one_rank_changes_is_an_incident_and_equal_copies_are_none(tdbg, train):
    name, done = train((), "ddp", 30, -1, 0, 12)
    assert done.returncode == 0, done.stderr
    live, replayed = live_and_replayed(tdbg, name)
    assert live == replayed
    found = [i for i in tdbg.json("status", name)["incidents"] if i["detector"] == "replica_differs"]
    assert len(found) == 1, tdbg.json("status", name)["incidents"]
    assert found[0]["first_step"] == 12, found
    assert "worker_1 is not that of worker_0 any more" in found[0]["sentence"] and "_2.weight" in found[0]["sentence"], found
    name, done = train((), "ddp", 30, -1, 0, -1)
    assert done.returncode == 0, done.stderr
    assert not [i for i in tdbg.json("status", name)["incidents"] if i["detector"] == "replica_differs"]


def found_of(tdbg, name):
    return [(i["detector"], i["first_step"]) for i in tdbg.json("status", name)["incidents"]]


def test_ranks_that_are_given_the_same_batches_are_an_incident(tdbg, train):
    name, done = train((), "ddp", 20, -1, 0, -1, "same")
    assert done.returncode == 0, done.stderr
    assert found_of(tdbg, name) == [("same_on_all_ranks", 9)]
    live, replayed = live_and_replayed(tdbg, name)
    assert live == replayed


@pytest.mark.long
def test_ranks_whose_gradients_are_not_summed_are_an_incident_and_others_are_none(tdbg, train):
    name, done = train((), "ddp", 120, -1, 0, -1, "alone")
    assert done.returncode == 0, done.stderr
    assert found_of(tdbg, name) == [("ranks_apart", 100)]
    name, done = train((), "ddp", 120, -1, 0, -1)
    assert done.returncode == 0, done.stderr
    assert found_of(tdbg, name) == []


@pytest.mark.long
def test_workers_that_torchrun_starts_again_are_the_next_attempt(tdbg, train):
    name, done = train((*EXPLODING, "--rule", "vanishing_gradient"), "elastic", 25, -1, 0.02, 12, restarts=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained to the end") == 2
    attempts = sorted(path.name for path in (tdbg.directory / name).iterdir() if path.name.isdigit())
    assert attempts == ["0", "1"]
    assert all((tdbg.directory / name / attempt / f"worker_{rank}" / "worker.json").exists() for attempt in attempts for rank in (0, 1))
    live, replayed = live_and_replayed(tdbg, name)
    assert live == replayed
    assert [rule["RuleEvaluationStatus"] for rule in live] == ["NoIssuesFound"] * 2
    status = tdbg.json("status", name)
    (begun,) = status["step_bases"]
    assert (begun["attempt"], begun["from"]) == (1, "behind"), "nobody says where the restarted training goes on: it hides nothing"
    assert status["steps"]["all"] == begun["step"] + 25
