"""accelerate: a loop of one's own around a prepared model, optimizer and loader."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from kept import EVERYTHING, assert_same, series, snapshot
from torch import nn

import tdbg

accelerate = pytest.importorskip("accelerate")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def train(snapshots, losses):
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    data = torch.utils.data.TensorDataset(torch.randn(24, 5), torch.randint(3, (24,)))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    net, optimizer, loader, schedule = accelerator.prepare(
        model, optimizer, torch.utils.data.DataLoader(data, batch_size=4), schedule)
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = nn.functional.cross_entropy(net(x), y)
            losses.append(loss.item())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 0.1)
                snapshots.append(snapshot(model, "Net"))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    net.eval()
    with torch.inference_mode():
        net(torch.randn(2, 5))


def test_steps_are_those_in_which_the_optimizer_steps(watched):
    snapshots, losses = [], []
    _, run = watched(lambda: train(snapshots, losses), **EVERYTHING)
    assert_same(run, snapshots)
    assert len(snapshots) == 3 and run.steps(mode="PREDICT", kind="any") == [0]
    np.testing.assert_allclose(series(run, "CrossEntropyLoss_output_0", "TRAIN"), np.reshape(losses, (3, 2)).mean(1), rtol=1e-6)
    # accelerate divides each by the number of micro-steps before backward: their sum is the step's loss.
    np.testing.assert_allclose(series(run, "backward_loss", "TRAIN"), np.reshape(losses, (3, 2)).mean(1), rtol=1e-6)
    assert series(run, "context/lr/SGD/0", "TRAIN") == [0.1, 0.05, 0.025]
    assert series(run, "context/optimizer_step/SGD", "TRAIN") == [1, 2, 3]


TWO_RANKS = """
import accelerate, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)
    def forward(self, x):
        return self.fc(x)
torch.manual_seed(0)
accelerator = accelerate.Accelerator(cpu=True)
data = torch.utils.data.TensorDataset(torch.randn(24, 5), torch.randint(3, (24,)))
model = Net()
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=4))
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(nn.functional.cross_entropy(model(x), y))
    optimizer.step()
accelerator.wait_for_everyone()
accelerator.end_training()
"""


def test_torchrun_two_ranks_are_two_workers(tmp_path):
    (tmp_path / "train.py").write_text(TWO_RANKS)
    for attempt in range(3):
        done = subprocess.run(
            [os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / f"run{attempt}"), "--", sys.executable, "-m",
             "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(29600 + os.getpid() % 300), "train.py"],
            capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=tmp_path)
        # gloo aborts a rank now and then while it leaves a busy machine.
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    run = tdbg.open(str(tmp_path / f"run{attempt}"))
    assert run.workers() == ["worker_0", "worker_1"] and run.steps(mode="TRAIN") == [0, 1, 2]
    gradient, loss = run.tensor("gradient/Net_fc.weight"), run.tensor("CrossEntropyLoss_output_0")
    assert len({gradient.summary(2, worker=w).l2 for w in run.workers()}) == 1, "reduced before it is seen"
    assert len({loss.summary(2, worker=w).mean for w in run.workers()}) == 2, "each rank's own batch"
