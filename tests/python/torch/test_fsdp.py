"""FSDP2: each rank records its own part, and what is read without naming a rank is the whole tensor's."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

PACKAGE = pathlib.Path(os.environ.get("TDBG_HOME", pathlib.Path(__file__).resolve().parents[3] / "python")) / "tdbg"
pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")
tdbg = pytest.importorskip("tdbg")

from tdbg.adaptors.torch.shards import whole_of

# Seven and three rows do not divide by two, one row leaves a rank without any; the embedding has
# histograms (256 elements), though each half of it alone would have none.
TRAINING = """
import os, sys, pickle
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

class Collectives(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = {}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # What a DTensor's own operation gathers is not seen by this mode: so are those counted that gather to look at one element.
        looks = str(func).startswith(("aten.select", "aten._local_scalar")) and any(issubclass(t, DTensor) for t in types)
        if "c10d" in func.namespace or looks:
            self.counts[str(func)] = self.counts.get(str(func), 0) + 1
        return func(*args, **(kwargs or {}))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.fc1, self.fc2, self.last = nn.Linear(12, 7), nn.Linear(7, 3), nn.Linear(3, 1)
    def forward(self, x):
        return self.last(torch.tanh(self.fc2(torch.relu(self.fc1(self.embedding(x))))))

def work(rank, file, kept):
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Net()
    mesh = init_device_mesh("cpu", (2,))
    for part in (model.fc1, model.fc2):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    random = torch.Generator().manual_seed(rank)
    steps = []
    with Collectives() as communication:
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(torch.randint(0, 40, (6,), generator=random)), torch.ones(6, 1)).backward()
            if kept:                  # this script's own gathers: both ranks take part
                whole = {"Net_" + n: p.full_tensor().detach().numpy().copy() for n, p in model.named_parameters()}
                whole.update(("gradient/Net_" + n, p.grad.full_tensor().numpy().copy())
                             for n, p in model.named_parameters())
                steps.append(whole)
            optimizer.step()
    if rank == 0:
        with open(kept or file + ".counts", "wb") as f:
            pickle.dump(steps or communication.counts, f)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (os.path.abspath("rendezvous"), sys.argv[1] if len(sys.argv) > 1 else ""), 2)
"""


def train(folder, *arguments, watched=True, plan=None, source=TRAINING, launcher=()):
    """Runs the two ranks in `folder`, by themselves or under `launcher`; gloo aborts a rank now and then on a busy machine, so up to three times."""
    for attempt in range(3):
        work = folder / str(attempt)
        work.mkdir(parents=True)
        (work / "train.py").write_text(source)
        env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k not in ("RANK", "WORLD_SIZE")}
        env["TDBG_STRICT"] = "1"
        if watched:
            env.update(TDBG_RUN=str(work / "run"), TDBG_ATTEMPT="0", TDBG_HOME=str(PACKAGE.parent),
                       PYTHONPATH=str(PACKAGE / "boot"))
            if plan is not None:
                (work / "run").mkdir()
                (work / "run" / "plan.json").write_text(json.dumps(plan))
        done = subprocess.run([sys.executable, *launcher, "train.py", *arguments], cwd=work, env=env, capture_output=True, text=True,
                              timeout=180)
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert "tdbg:" not in done.stderr, done.stderr
    return work


PLAN = {"kind": "tdbg.plan", "major": 1, "minor": 0, "journal_bytes": 1 << 24, "collections": [
    {"name": name, "kinds": [kind], "keep": True, "raw": {"train": {"interval": 1}}}
    for name, kind in (("weights", "weight"), ("biases", "bias"), ("gradients", "gradient"))]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the run, the whole tensors of each step as the script itself gathered them)"""
    work = train(tmp_path_factory.mktemp("fsdp"), "kept.pickle", plan=PLAN)
    return tdbg.open(str(work / "run")), pickle.loads((work / "kept.pickle").read_bytes())


def test_merged_statistics_are_those_of_the_unsharded_tensor(trained):
    run, steps = trained
    assert len(steps) == 3 and len(steps[0]) == 14
    for n, tensors in enumerate(steps):
        for name, value in tensors.items():
            got, x = run.tensor(name).summary(n, mode="TRAIN"), value.astype(np.float64)
            assert got.count == x.size, name
            centred = x - x.mean()
            want = {"mean": x.mean(), "variance": x.var(), "l1": np.abs(x).sum(), "l2": np.sqrt((x * x).sum()),
                    "m4": (centred ** 4).mean()}
            assert (got.min, got.max, got.zero_count) == (x.min(), x.max(), (x == 0).sum()), name
            for field, expected in want.items():
                scale = max(abs(expected), 1e-6 * np.sqrt((x * x).mean()), 1e-30)
                assert abs(getattr(got, field) - expected) <= 1e-6 * scale, (name, n, field)


def test_names_and_shapes_are_the_models_own(trained):
    run, steps = trained
    tensor = run.tensor("fc1.weight")
    assert tensor.name == "Net_fc1.weight" and tensor.in_parts and tuple(tensor.shape) == (7, 12)
    assert set(steps[0]) <= set(run.tensor_names())
    assert run.workers() == ["worker_0", "worker_1"]
    assert [tensor.summary(0, worker=w).count for w in run.workers()] == [4 * 12, 3 * 12]
    assert run.tensor("last.weight").workers(0) == ["worker_0"], "its only row is on rank 0"


def test_values_are_put_together(trained):
    run, steps = trained
    for name, value in steps[2].items():
        np.testing.assert_array_equal(run.tensor(name).value(2, mode="TRAIN"), value, err_msg=name)
    histogram = run.tensor("embedding.weight").histogram(1, mode="TRAIN")
    assert histogram.count.sum() == 40 * 12


@pytest.mark.skipif("TDBG_CLI" not in os.environ, reason="the command line is not built")
def test_a_rule_judges_the_whole(trained):
    """Of the row that is on rank 0 alone, and of all others: one verdict, nothing missing."""
    done = subprocess.run([os.environ["TDBG_CLI"], "check", trained[0].path, "--rule", "exploding_tensor", "--json"],
                          capture_output=True, text=True, timeout=60)
    assert "NoIssuesFound" in done.stdout, done.stdout + done.stderr


def test_a_number_is_whole_where_every_rank_has_it():
    replicate, share = (types.SimpleNamespace(is_replicate=lambda known=known: known) for known in (True, False))
    number = torch.tensor(3.0)
    assert whole_of(number) is number
    assert whole_of(types.SimpleNamespace(placements=(replicate, replicate), _local_tensor=number)) is number
    assert whole_of(types.SimpleNamespace(placements=(replicate, share), _local_tensor=number)) is None


@pytest.mark.long
def test_nothing_is_communicated(tmp_path):
    counts = [pickle.loads((train(tmp_path / str(watched), watched=watched) / "rendezvous.counts").read_bytes())
              for watched in (False, True)]
    assert counts[0] == counts[1] and sum(counts[0].values()) > 0
