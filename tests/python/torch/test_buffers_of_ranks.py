"""Running averages and frozen weights of two ranks, under DDP and FSDP2: each rank records its own, whole or in parts."""

import pickle

import numpy as np
import pytest

pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")
tdbg = pytest.importorskip("tdbg")

from test_fsdp import PLAN, train  # noqa: E402

STEPS = 3
TRAINING = """
import os, pickle, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Replicated(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.norm, self.head = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)
        self.frozen.requires_grad_(False)
        self.register_buffer("table", torch.arange(300.0))
    def forward(self, x):
        return self.head(self.norm(self.frozen(x)))

class Sharded(Replicated):
    pass

def whole(tensor):
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).numpy().copy()

def training(model, wrapped, optimizer, kept):
    for step in range(3):
        optimizer.zero_grad()
        wrapped(torch.randn(8, 6) + dist.get_rank()).square().mean().backward()
        kept.append({f"{type(model).__name__.removeprefix('FSDP')}_{name}": whole(tensor)
                     for name, tensor in model.state_dict().items() if tensor.is_floating_point()})
        optimizer.step()

dist.init_process_group("gloo")
torch.manual_seed(0)
kept = [], []
model = Replicated()
wrapped = wrapped_first = nn.parallel.DistributedDataParallel(model)
torch.manual_seed(dist.get_rank())
training(model, wrapped, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), kept[0])
torch.manual_seed(1)
model = Sharded()
mesh = init_device_mesh("cpu", (2,))
fully_shard(model.frozen, mesh=mesh)
fully_shard(model, mesh=mesh)
torch.manual_seed(dist.get_rank())
training(model, model, alive := torch.optim.AdamW(model.parameters(), lr=0.1), kept[1])     # of the frozen ones, too
x = torch.randn(8, 6)
x[0, 0] = float("nan") if dist.get_rank() else 0.0
wrapped_first(x).square().mean().backward()      # which the script does not step with
with open(f"{sys.argv[1]}.{dist.get_rank()}", "wb") as file:
    pickle.dump(kept, file)
dist.barrier()
dist.destroy_process_group()
"""
BUFFERS = {"name": "buffers", "kinds": ["buffer"], "keep": True, "raw": {"train": {"interval": 1}}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the run, [of each rank: the tensors of each step, DDP's and FSDP2's])"""
    work = train(tmp_path_factory.mktemp("ranks"), "kept", plan={**PLAN, "collections": [*PLAN["collections"], BUFFERS]},
                 source=TRAINING, launcher=("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"))
    return tdbg.open(str(work / "run")), [pickle.loads((work / f"kept.{rank}").read_bytes()) for rank in (0, 1)]


def test_each_rank_has_its_own_buffers_at_every_step(trained):
    run, ranks = trained
    assert run.dropped() == [] and len(run.steps(mode="TRAIN")) == 2 * STEPS
    for rank, kept in enumerate(ranks):
        for step, values in enumerate([*kept[0], *kept[1]]):
            for name in ("norm.running_mean", "norm.running_var", "table"):
                name = f"{'Replicated' if step < STEPS else 'Sharded'}_{name}"
                tensor = run.tensor(name)
                assert "buffers" in tensor.collections and not tensor.in_parts
                np.testing.assert_array_equal(tensor.value(step, mode="TRAIN", worker=f"worker_{rank}"), values[name], name)
                assert tensor.summary(step, mode="TRAIN", worker=f"worker_{rank}").max == values[name].max(), name
    one, other = (kept[1][-1]["Sharded_norm.running_mean"] for kept in ranks)
    assert not np.array_equal(one, other), "each rank averages its own batches"


def test_frozen_weights_are_whole_or_in_parts_as_the_others_are(trained):
    run, ranks = trained
    for step, values in enumerate([*ranks[0][0], *ranks[0][1]]):
        label = "Replicated" if step < STEPS else "Sharded"
        for name in ("frozen.weight", "frozen.bias", "head.weight"):
            tensor, value = run.tensor(f"{label}_{name}"), values[f"{label}_{name}"]
            assert tensor.in_parts == (label == "Sharded") and tuple(tensor.shape) == value.shape
            np.testing.assert_array_equal(tensor.value(step, mode="TRAIN"), value, name)
            assert tensor.summary(step, mode="TRAIN").count == value.size


def test_a_nan_of_one_rank_is_told_of_that_rank(trained):
    """That came through a frozen layer, of which there is no graph."""
    run, _ = trained
    (origin,) = run.nan_origins()
    assert (origin.worker, origin.what, origin.operation, origin.inside) == ("worker_1", "constant", "batch_norm", "norm")
    assert "in 1 of 8 samples" in origin.sentence
