"""Trainings as people write them: bare and watched end with the same bits, and each step's weights and gradients are in the run.

Where there is no GPU they run on the CPU, which tests the suite."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from suite import DEVICE, GPU, Program, check, lost, numbers, same, settings, watched
from torch import nn
from torch.utils.checkpoint import checkpoint

import tdbg

TRAIN, EVAL = tdbg.ModeKeys.TRAIN, tdbg.ModeKeys.EVAL


def mlp(dtype=torch.float32, width=96):
    return nn.Sequential(nn.Linear(24, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8)).to(DEVICE, dtype)


def batch(n, dtype=torch.float32, rows=16):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(rows, 24, generator=generator).to(DEVICE, dtype), torch.randint(0, 8, (rows,), generator=generator).to(DEVICE)


def plain(model, optimizer, call=None, amp=None, micro=1, before=lambda n: None):
    call = call or model

    def step(n):
        optimizer.zero_grad()
        for k in range(micro):
            x, y = batch(10 * n + k, next(model.parameters()).dtype)
            with torch.autocast(DEVICE, dtype=amp, enabled=amp is not None):
                loss = F.cross_entropy(call(x).float(), y)
            loss.backward()
        before(n)
        optimizer.step()

    return Program(model, [optimizer], step)


def made(build, dtype=torch.float32, **options):
    def make():
        model = mlp(dtype)
        return plain(model, build(model.parameters()), **options)
    return make


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw_one_by_one": lambda p: torch.optim.AdamW(p, foreach=False, fused=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_eager_float32(tmp_path, name):
    check(tmp_path / "run", made(OPTIMIZERS[name]))


def test_autocast_to_bfloat16(tmp_path):
    check(tmp_path / "run", made(OPTIMIZERS["adamw_fused"], amp=torch.bfloat16))


def test_all_of_it_in_bfloat16(tmp_path):
    check(tmp_path / "run", made(OPTIMIZERS["adamw_one_by_one"], torch.bfloat16))


def test_all_of_it_in_float64(tmp_path):
    check(tmp_path / "run", made(OPTIMIZERS["sgd"], torch.float64))


def test_accumulated_gradients(tmp_path):
    check(tmp_path / "run", made(OPTIMIZERS["sgd"], micro=3))


def test_clipped_gradients(tmp_path):
    def make():
        model = mlp()
        return plain(model, OPTIMIZERS["sgd"](model.parameters()), before=lambda n: nn.utils.clip_grad_norm_(model.parameters(), 0.1))
    check(tmp_path / "run", make)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite(tmp_path, value):
    def make():
        model = mlp()

        def poison(n):
            if n == 2:
                model[2].weight.grad[3, 4] = value

        return plain(model, OPTIMIZERS["sgd"](model.parameters()), before=poison)
    check(tmp_path / "run", make)


def test_activation_checkpointing(tmp_path):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp()

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=False)

    def make():
        model = Checkpointed()
        return plain(model, OPTIMIZERS["sgd"](model.parameters()))
    check(tmp_path / "run", make)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.Linear(12, 8)

    def forward(self, x):
        return self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_channels_last_and_buffers(tmp_path):
    def make():
        model = Convolutions().to(DEVICE).to(memory_format=torch.channels_last)
        optimizer = OPTIMIZERS["sgd"](model.parameters())

        def step(n):
            optimizer.zero_grad()
            x = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(n)).to(DEVICE).to(memory_format=torch.channels_last)
            F.cross_entropy(model(x), torch.arange(4, device=DEVICE)).backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    trial, _ = check(tmp_path / "run", make)
    assert any("running_mean" in name for name in trial.tensor_names())


def test_a_sparse_gradient_and_a_frozen_weight(tmp_path):
    def make():
        model = nn.Sequential(nn.Embedding(50, 16, sparse=True), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 8)).to(DEVICE)
        model[3].requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

        def step(n):
            optimizer.zero_grad()
            model(torch.tensor([[n, n + 1], [n, n]], device=DEVICE)).square().mean().backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    trial, _ = check(tmp_path / "run", make)
    assert "Sequential_3.weight" in trial.tensor_names()


def test_twelve_hundred_small_tensors(tmp_path):
    layers = 600 if GPU else 60

    def make():
        model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(layers))).to(DEVICE)
        optimizer = OPTIMIZERS["sgd_momentum_foreach"](model.parameters())

        def step(n):
            optimizer.zero_grad()
            model(torch.ones(2, 5, device=DEVICE)).square().mean().backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    trial, truth = check(tmp_path / "run", make, steps=2)
    assert len(truth.rows[0]) == 4 * layers


def test_two_models_with_an_optimizer_each(tmp_path):
    def make():
        both = nn.ModuleDict({"generator": mlp(), "critic": mlp()})
        optimizers = [OPTIMIZERS["adam_foreach"](both[k].parameters()) for k in ("generator", "critic")]

        def step(n):
            for model, optimizer in zip(both.values(), optimizers, strict=True):
                x, y = batch(n)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

        return Program(both, optimizers, step)
    check(tmp_path / "run", make)


def test_an_evaluation_first_and_one_in_between_have_their_losses(tmp_path):
    losses = []

    def make():
        model = mlp()
        program = plain(model, OPTIMIZERS["sgd"](model.parameters()))
        train = program.step

        def step(n):
            if n % 2 == 0:
                model.eval()
                with torch.no_grad():
                    x, y = batch(100 + n)
                    losses.append(F.cross_entropy(model(x), y).detach())
                model.train()
            train(n)

        program.step = step
        return program
    trial, _ = check(tmp_path / "run", make)
    steps = trial.steps(mode=EVAL)
    assert len(steps) == 2
    for step, loss in zip(steps, losses[2:], strict=True):
        assert trial.tensor("CrossEntropyLoss_output_0").summary(step, mode=EVAL).mean == pytest.approx(float(loss), rel=1e-6)


def test_losses_of_every_step(tmp_path):
    said = []
    torch.manual_seed(0)
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model.parameters())

    def step(n):
        x, y = batch(n)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        said.append(loss.detach())

    trial, _ = watched(Program(model, [optimizer], step), tmp_path / "run", 6, truth=False)
    got = [trial.tensor("CrossEntropyLoss_output_0").summary(s, mode=TRAIN).mean for s in trial.steps(mode=TRAIN)]
    assert got == pytest.approx([float(loss) for loss in said], rel=1e-6)


def outputs_and_their_gradients(model, x):
    """name -> (output, its gradient) of a model of layers in a row"""
    values = [x]
    for layer in model:
        values.append(layer(values[-1]))
    gradients = torch.autograd.grad(values[-1].square().sum(), values[1:])
    return [(v.detach(), g) for v, g in zip(values[1:], gradients, strict=True)]


def test_outputs_and_their_gradients_are_what_autograd_says(tmp_path):
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    expected = []

    def step(n):
        x, _ = batch(n)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(collections={
        "outputs": {"raw": False}, "output_gradients": {"raw": False}}))
    for n in range(3):
        step(n)
    session.close()
    torch.manual_seed(0)
    twin = mlp()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
    for n in range(3):
        x, _ = batch(n)
        expected.append(outputs_and_their_gradients(twin, x))
        optimizer.zero_grad()
        twin(x).square().sum().backward()
        optimizer.step()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial)
    for at, of_step in zip(trial.steps(mode=TRAIN), expected, strict=True):
        for n, (value, gradient) in enumerate(of_step):
            for name, tensor in ((f"{n}_output_0", value), (f"output_gradient/{n}_output_0", gradient)):
                summary = trial.tensor(name).summary(at, mode=TRAIN)
                counts, moments = numbers(tensor)
                assert summary.count == counts[0]
                assert summary.l2 == pytest.approx(moments[3], rel=1e-4), name


def test_an_update_in_place_of_an_output_comes_after_it_was_seen(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(inplace=True), nn.Linear(64, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    with torch.no_grad():
        before = F.linear(x, model[0].weight, model[0].bias)

    def step(n):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    trial, _ = watched(Program(model, [optimizer], step), tmp_path / "run", 1, {"collections": {"outputs": {"raw": False}}})
    summary = trial.tensor("0_output_0").summary(0)
    assert summary.min < 0 and summary.l2 == pytest.approx(float(before.double().norm()), rel=1e-5)


TYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
         torch.float64, torch.complex64]


def test_every_type_that_a_script_records(tmp_path):
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    generator = torch.Generator().manual_seed(1)
    values = {str(t)[6:]: (torch.randn(70_001, generator=generator) * 20).to(t).to(DEVICE) for t in TYPES}
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(collections={"own": {"include_regex": ["^own/"], "raw": False}}))
    for name, tensor in values.items():
        session.record(f"own/{name}", tensor, "own")
        session.record(f"own/{name}/with_gaps", tensor[:7000].reshape(70, 100)[:, ::3], "own")
    program.step(0)
    session.close()
    trial = tdbg.open(str(tmp_path / "run"))
    assert not lost(trial)
    for name, tensor in values.items():
        same(trial.tensor(f"own/{name}").summary(0), tensor, name)
        same(trial.tensor(f"own/{name}/with_gaps").summary(0), tensor[:7000].reshape(70, 100)[:, ::3], name)


def test_histograms_are_numpys(tmp_path):
    trial, truth = check(tmp_path / "run", made(OPTIMIZERS["sgd"]), steps=2)
    name, tensor = next((n, t) for n, t in truth.rows[1].items() if t.numel() > 2000)
    histogram = trial.tensor(name).histogram(trial.steps(mode=TRAIN)[1], mode=TRAIN)
    values = tensor.double().cpu().numpy().reshape(-1)
    assert histogram.count.sum() == np.count_nonzero(values)
    for lower, upper, count in zip(histogram.lower, histogram.upper, histogram.count, strict=True):
        if lower > 0:
            assert count == np.count_nonzero((values >= lower) & (values < upper))


def test_raw_values_are_the_tensors_bytes(tmp_path):
    trial, truth = check(tmp_path / "run", made(OPTIMIZERS["adamw_fused"]), steps=6,
                         config={"collections": {"gradients": {"save_interval": 2}}})
    for n, at in enumerate(trial.steps(mode=TRAIN)):
        for name, tensor in truth.rows[n].items():
            if name.startswith("gradient/") and n % 2 == 0:
                assert torch.equal(torch.from_numpy(np.array(trial.tensor(name).value(at))), tensor.cpu()), name


def test_a_rule_stops_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"""
import torch, time
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).to({DEVICE!r})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device={DEVICE!r})).square().mean().backward()
    if n == 20:
        model.weight.grad.fill_(float("nan"))
    optimizer.step()
    time.sleep(0.002)
print("never stopped")
""")
    done = subprocess.run([sys.executable, "-m", "tdbg", "run", "--dir", str(tmp_path / "run"), "--rule", "exploding_tensor", "--on-issue", "stop", "--",
                           sys.executable, str(script)], capture_output=True, text=True, timeout=250, cwd=tmp_path)
    assert "never stopped" not in done.stdout, done.stderr[-2000:]
    assert done.returncode == 3, done.stderr[-2000:]

