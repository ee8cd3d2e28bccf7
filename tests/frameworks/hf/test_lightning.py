"""Lightning: forward and backward run inside the optimizer's step(closure)."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from kept import EVERYTHING, assert_same, series, snapshot
from torch import nn

import tdbg

lightning = pytest.importorskip("lightning")
ROOT = pathlib.Path(__file__).resolve().parents[3]


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, 3)
        self.snapshots, self.losses, self.rates = [], [], []

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))

    def loss(self, batch):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("validation", self.loss(batch))

    def test_step(self, batch, index):
        self.log("test", self.loss(batch))

    def predict_step(self, batch, index):
        return self(batch[0])

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        # The last thing that happens to the gradients.
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
        self.snapshots.append(snapshot(self, type(self).__name__))
        self.rates.append(optimizer.param_groups[0]["lr"])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), "interval": "step"}]


def batches(count, size=4, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count * size, 5, generator=random)
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, torch.randint(3, (count * size,), generator=random)), batch_size=size)


def trainer(**options):
    torch.manual_seed(0)
    return lightning.Trainer(**{
        "accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False, "gradient_clip_val": 0.2,
        "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 1, **options})


def fit(make=Net, **options):
    job = trainer(**options)
    net = make()
    job.fit(net, batches(6), batches(2, seed=1))
    return net


def test_gradients_are_the_steps_own_and_weights_those_before_the_update(watched):
    net, run = watched(fit, **EVERYTHING)
    assert len(net.snapshots) == 12
    assert_same(run, net.snapshots)
    assert series(run, "CrossEntropyLoss_output_0", "TRAIN") == net.losses
    assert series(run, "context/lr/Adam/0", "TRAIN") == net.rates
    # One batch of the sanity check first, then two after each epoch.
    assert [run.mode(step).name[0] for step in range(17)] == list("E" + "TTTTTTEE" * 2)


def test_the_sanity_check_is_recorded_where_steps_call_what_is_in_the_module(watched):
    class Inside(Net):
        def __init__(self):
            super().__init__()
            self.net, self.checked = nn.Sequential(self.fc1, nn.Tanh(), self.fc2), []
            del self.fc1, self.fc2

        def loss(self, batch):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.checked.append(self.loss(batch).item())

    net, run = watched(lambda: fit(Inside, max_epochs=1), **EVERYTHING)
    assert [run.mode(step).name[0] for step in run.steps(kind="any")] == list("E" + "TTTTTTEE")
    assert series(run, "CrossEntropyLoss_output_0", "EVAL") == net.checked
    assert series(run, "CrossEntropyLoss_output_0", "TRAIN") == net.losses


def test_accumulation(watched):
    net, run = watched(lambda: fit(accumulate_grad_batches=3), **EVERYTHING)
    assert len(net.snapshots) == 4
    assert_same(run, net.snapshots)
    assert series(run, "context/micro_steps", "TRAIN") == [3] * 4
    means = np.reshape(net.losses, (4, 3)).mean(1)
    np.testing.assert_allclose(series(run, "CrossEntropyLoss_output_0", "TRAIN"), means, rtol=1e-6)
    np.testing.assert_allclose(series(run, "backward_loss", "TRAIN"), means, rtol=1e-6)


def test_modes_of_the_loops(watched):
    def loops():
        net = fit(max_epochs=1, num_sanity_val_steps=0)
        job = trainer()
        job.validate(net, batches(1), verbose=False)
        job.test(net, batches(2), verbose=False)
        job.predict(net, batches(3))
        return net

    _, run = watched(loops)
    assert "".join(run.mode(step).name[0] for step in run.steps(kind="any")) == "TTTTTTEE" + "E" + "EE" + "PPP"


class Lbfgs(Net):
    def configure_gradient_clipping(self, *arguments, **options):
        super().configure_gradient_clipping(*arguments, **options)
        self.snapshots[-1] = self.global_step, self.snapshots[-1]

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.5, max_iter=3, history_size=4)


def test_a_step_of_lbfgs_is_its_first_evaluation(watched):
    net, run = watched(lambda: fit(Lbfgs, max_epochs=1, num_sanity_val_steps=0), **EVERYTHING)
    steps = [step for step, _ in net.snapshots]
    firsts = [steps.index(step) for step in range(6)]
    assert len(steps) > 12, "several evaluations a step"
    assert_same(run, [net.snapshots[n][1] for n in firsts])
    assert series(run, "CrossEntropyLoss_output_0", "TRAIN") == [net.losses[n] for n in firsts]


class Adversaries(lightning.LightningModule):
    """Two optimizers, stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(3, 5), nn.Linear(5, 1)
        self.snapshots = []

    def training_step(self, batch, index):
        for optimizer, part in zip(self.optimizers(), (self.generator, self.critic)):
            optimizer.zero_grad()
            loss = self.critic(self.generator(torch.ones(2, 3)) + batch[0][:2]).pow(2).mean()
            self.manual_backward(loss)
            self.snapshots.append({f"Adversaries_{name}.{own}": p.detach().numpy().copy()
                                   for name, child in (("generator", self.generator), ("critic", self.critic))
                                   if child is part for own, p in child.named_parameters()})
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.generator, self.critic)]


def test_two_optimizers_are_one_step(watched):
    def train():
        net = Adversaries()
        trainer(max_epochs=1, gradient_clip_val=None).fit(net, batches(3))
        return net

    net, run = watched(train, **EVERYTHING)
    assert len(run.steps(mode="TRAIN")) == 3 and len(net.snapshots) == 6
    for n, values in enumerate(net.snapshots):
        for name, value in values.items():
            np.testing.assert_array_equal(run.tensor(name).value(n // 2, mode="TRAIN"), value, err_msg=name)


def test_watched_or_not_the_result_is_the_same(watched):
    def train():
        return fit(accumulate_grad_batches=2).state_dict()

    bare = train()
    seen, _ = watched(train, **EVERYTHING)
    assert all(torch.equal(bare[name], seen[name]) for name in bare)


def test_an_exception_in_a_training_step_is_the_scripts(watched):
    class Broken(Net):
        def training_step(self, batch, index):
            if index == 2:
                raise ValueError("a bug of the script")
            return super().training_step(batch, index)

    def train():
        with pytest.raises(ValueError, match="a bug of the script"):
            fit(Broken, num_sanity_val_steps=0)

    _, run = watched(train)
    assert len(run.tensor("CrossEntropyLoss_output_0").steps(mode="TRAIN", kind="any")) == 2


def test_example_under_tdbg_run(tmp_path):
    done = subprocess.run(
        [os.environ["TDBG_CLI"], "run", "--dir", str(tmp_path / "run"), "--", sys.executable,
         str(ROOT / "examples" / "lightning_trainer.py"), "--rows", "128"],
        capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tdbg.open(str(tmp_path / "run"))
    assert run.dropped() == [] and len(run.steps(mode="TRAIN")) == 4 and len(run.steps(mode="EVAL")) == 9
    assert {"Sorter_encoder.layers.1.self_attn.in_proj_weight", "gradient/Sorter_position", "Sorter_head.bias",
            "CrossEntropyLoss_output_0"} <= set(run.tensor_names())
