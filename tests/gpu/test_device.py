"""Streams, memory, what must never be called, and what goes wrong on a GPU: the training is as without us, and losses are counted."""

import contextlib
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from suite import Program, bits, check, compare, equal_bits, lost, settings, watched
from test_gpu_trainings import OPTIMIZERS, batch, mlp, plain
from torch import nn

import tdbg

pytestmark = pytest.mark.gpu
TRAIN = tdbg.ModeKeys.TRAIN
RAW = {"collections": {"gradients": {"save_interval": 1}}}


@pytest.mark.parametrize("config", [{}, RAW], ids=["statistics", "raw"])
def test_two_optimizers_on_two_streams(tmp_path, config):
    torch.manual_seed(0)
    both = nn.ModuleDict({"big": nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(6))), "small": nn.Linear(64, 64)}).cuda()
    streams = {name: torch.cuda.Stream() for name in both}
    optimizers = {name: torch.optim.SGD(both[name].parameters(), lr=1e-3) for name in both}
    filler = torch.randn(4096, 4096, device="cuda")

    def step(n):
        torch.cuda.synchronize()
        for p in both.parameters():
            p.grad = torch.randn_like(p)
        torch.cuda.synchronize()
        for name, optimizer in optimizers.items():
            with torch.cuda.stream(streams[name]):
                if name == "big":
                    for _ in range(6):
                        filler @ filler             # what follows on this stream comes later
                optimizer.step()

    room = {"journal": {"size": "256MiB"}}          # of raw values: 24 MiB a step
    trial, truth = watched(Program(both, list(optimizers.values()), step), tmp_path / "run", 8, {**config, **room})
    torch.cuda.synchronize()
    compare(trial, truth)


def test_a_training_on_a_stream_of_its_own(tmp_path):
    stream = torch.cuda.Stream()

    def make():
        model = mlp()
        program = plain(model, OPTIMIZERS["adamw_fused"](model.parameters()))
        step = program.step

        def on_stream(n):
            with torch.cuda.stream(stream):
                step(n)

        program.step = on_stream
        torch.cuda.synchronize()
        return program
    check(tmp_path / "run", make, steps=12)


@pytest.mark.parametrize("config", [{}, RAW, {"collections": {"outputs": {"raw": False}, "output_gradients": {"raw": False}}}],
                         ids=["statistics", "raw", "outputs"])
def test_no_call_waits_for_the_device(tmp_path, config):
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, OPTIMIZERS["adamw_fused"](model.parameters()))
    data = [batch(n) for n in range(30)]

    def step(n):
        x, y = data[n]
        program.optimizers[0].zero_grad()
        F.cross_entropy(model(x), y).backward()
        program.optimizers[0].step()

    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(**config))
    step(0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]) as profile:
            for n in range(1, 30):
                step(n)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    session.close()
    waits = [e.key for e in profile.key_averages() if "Synchronize" in e.key and "cudaDeviceSynchronize" not in e.key]
    assert not waits, waits
    assert not lost(tdbg.open(str(tmp_path / "run")))


def device_memory():
    """What is taken of the device beside torch's own pool."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def test_memory_beside_the_trainings(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(40))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(n):
        optimizer.zero_grad()
        model(torch.ones(4, 256, device="cuda")).square().mean().backward()
        optimizer.step()

    for n in range(3):
        step(n)
    before = device_memory()
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings())
    for n in range(5):
        step(n)
    after = device_memory()
    for n in range(40):
        step(n)
    assert device_memory() <= after, "it grows"
    session.close()
    # The image of the kernels and what the driver rounds up to are in it.
    assert after - before <= (16 << 20) + 160 * 9216


def test_pinned_memory_of_raw_values_stays_what_it_is(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(4096, 4096).cuda()            # 64 MiB of gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(budget="20GB", **RAW))

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 4096, device="cuda")).square().mean().backward()
        optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    port = session._session.port
    pinned = port.raw_pinned_bytes
    for _ in range(25):
        step()
        torch.cuda.synchronize()
    assert port.raw_pinned_bytes == pinned > 0
    session.close()


def filled(leave):
    """All of the device's memory but `leave` bytes, held."""
    torch.cuda.empty_cache()
    held = []
    for size in (1 << 30, 64 << 20, 2 << 20):
        while torch.cuda.mem_get_info()[0] > leave + size:
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                continue
            break
    return held


@pytest.mark.parametrize("config", [{}, RAW], ids=["statistics", "raw"])
def test_without_memory_to_spare_the_training_is_as_without_us(tmp_path, config):
    def make():
        model = mlp(width=512)
        return plain(model, OPTIMIZERS["sgd"](model.parameters()))

    torch.manual_seed(0)
    bare = make()
    for n in range(4):
        bare.step(n)
    expected = bits(bare.model)
    torch.manual_seed(0)
    program = make()
    program_state = bits(program.model)
    program.step(0)                                # torch has its own memory by now
    program.model.load_state_dict(dict(zip(program.model.state_dict(), [b.cuda() for b in program_state], strict=True)))
    held = filled(1 << 20)
    trial, _ = watched(program, tmp_path / "run", 4, config, truth=False)
    del held
    assert equal_bits(expected, bits(program.model))
    assert len(trial.steps(mode=TRAIN)) == 4
    assert all("memory" in text for text in lost(trial))


def child_that_holds(seconds, ready):
    held = filled(8 << 20)
    ready.set()
    import time
    time.sleep(seconds)
    del held


def test_a_second_process_that_holds_all_memory(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, OPTIMIZERS["sgd"](model.parameters()))
    program.step(0)
    other = context.Process(target=child_that_holds, args=(60, ready))
    other.start()
    try:
        assert ready.wait(120)
        trial, _ = watched(program, tmp_path / "run", 4, truth=False)
    finally:
        other.terminate()
        other.join()
    assert len(trial.steps(mode=TRAIN)) == 4
    assert all("memory" in text for text in lost(trial))


ORIGIN = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(24, 96), torch.nn.Linear(96, 8)
    def forward(self, x, low):
        return self.last(torch.log(self.first(x).abs() + 1 - low))
net = Net().to(device)
run.close()
run = tdbg.attach(net, dir=sys.argv[1] + "-origin", config={"record_end": False, "journal": {"size": "16MiB"}})
adam = torch.optim.AdamW(net.parameters(), fused=True)
for n in range(12):
    adam.zero_grad()
    x, y = torch.randn(16, 24, device=device), torch.randint(0, 8, (16,), device=device)
    torch.nn.functional.cross_entropy(net(x, 1.5 if n == 7 else 0), y).backward()
    adam.step()
run.close()
"""


def test_where_a_nan_was_born_is_told_where_the_device_is_waited_for(tmp_path):
    script(tmp_path, ORIGIN, TDBG_NAN_ORIGIN="wait")
    origin = tdbg.open(str(tmp_path / "run-origin")).nan_origins()[0]
    assert (origin.global_step, origin.operation, origin.after, origin.before) == (7, "log", "first", "last"), origin
    assert "negative" in origin.sentence


SCRIPT = """
import os, sys, torch, tdbg
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(24, 96), torch.nn.GELU(), torch.nn.Linear(96, 8)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = tdbg.attach(model, dir=sys.argv[1], config={"record_end": False, "rules": [], "journal": {"size": "16MiB"}})
def step(n):
    optimizer.zero_grad()
    model(torch.randn(8, 24, generator=torch.Generator().manual_seed(n)).to(device)).square().mean().backward()
    optimizer.step()
"""


def script(tmp_path, source, code=0, **environment):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT + source)
    done = subprocess.run([sys.executable, str(path), str(tmp_path / "run")], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=280)
    assert code is None or done.returncode == code, done.stderr[-3000:]
    return done


def test_a_forked_child_that_touches_cuda(tmp_path):
    script(tmp_path, """
for n in range(3): step(n)
pid = os.fork()
if pid == 0:
    try:
        step(3)                  # torch raises, as without us
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for n in range(3, 6): step(n)
run.close()
""")
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps(mode=TRAIN)) == 6 and not lost(trial)


def test_workers_of_a_data_loader(tmp_path):
    script(tmp_path, """
data = torch.utils.data.DataLoader(torch.randn(64, 24), batch_size=8, num_workers=2, pin_memory=True)
for x in data:
    optimizer.zero_grad()
    model(x.to(device, non_blocking=True)).square().mean().backward()
    optimizer.step()
run.close()
""")
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps(mode=TRAIN)) == 8 and not lost(trial)


def test_a_kernel_that_asserts_leaves_the_steps_before_it(tmp_path):
    done = script(tmp_path, """
for n in range(10): step(n)
torch.cuda.synchronize()
torch.zeros(3, device=device)[torch.tensor([7], device=device)]
for n in range(10, 14): step(n)
""", code=None)
    assert done.returncode not in (0, -11), "the script dies of its own fault, as without us"
    assert "device-side assert" in done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    steps = trial.steps(mode=TRAIN, show_incomplete_steps=True)
    assert len(steps) >= 10
    for at in steps[:8]:
        assert "Sequential_0.weight" in trial.tensor_names(step=at)


def test_a_script_that_failed_ends_although_its_device_hangs(tmp_path):
    """As one is interrupted whose collective waits for ranks that are gone. The kernel takes more than half an hour."""
    hang = "torch.cuda.synchronize()\ntorch.cuda._sleep(1 << 42)\n"
    try:
        subprocess.run([sys.executable, "-c", f"import torch\ntorch.ones(1, device='cuda')\n{hang}raise KeyboardInterrupt"],
                       capture_output=True, timeout=100)
    except subprocess.TimeoutExpired:
        pytest.skip("a process with a kernel that never ends does not end here, bare either")
    script(tmp_path, f"""
for n in range(3): step(n)
x = torch.randn(8, 24, device=device)       # a batch from the host would be waited for
{hang}
for n in range(2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
raise KeyboardInterrupt
""", code=None)          # whose own patience is the test
    steps = tdbg.open(str(tmp_path / "run")).steps(mode=TRAIN, show_incomplete_steps=True)
    assert len(steps) == 5


def test_no_device_is_visible(tmp_path):
    script(tmp_path, "for n in range(3): step(n)\nrun.close()\n", CUDA_VISIBLE_DEVICES="")
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps(mode=TRAIN)) == 3 and not lost(trial)


def test_an_exception_in_the_training_keeps_what_was_under_way(tmp_path):
    script(tmp_path, "for n in range(20): step(n)\nraise RuntimeError('mine')\n", code=1)
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.steps(mode=TRAIN)) == 20 and not lost(trial)


def test_a_scaler_that_skips_a_fused_update(tmp_path):
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")

    def step(n):
        x, y = batch(n)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss * (1e38 if n == 2 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()

    trial, _ = watched(Program(model, [optimizer], step), tmp_path / "run", 5, truth=False)
    assert not lost(trial) and len(trial.steps(mode=TRAIN)) == 5
    assert [bool(trial.step(s).skipped) for s in trial.steps(mode=TRAIN)] == [False, False, True, False, False]


def test_half_of_the_model_on_the_host(tmp_path):
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.host, self.device = nn.Linear(24, 96), nn.Linear(96, 8).cuda()

        def forward(self, x):
            return self.device(self.host(x.cpu()).cuda())

    def make():
        model = Split()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(n):
            x, y = batch(n)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    check(tmp_path / "run", make)


@pytest.mark.gpu(count=2)
def test_a_model_on_two_gpus(tmp_path):
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(24, 96).to("cuda:0"), nn.Linear(96, 8).to("cuda:1")

        def forward(self, x):
            return self.second(self.first(x.to("cuda:0")).to("cuda:1"))

    def make():
        model = Split()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(n):
            x, y = batch(n)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y.to("cuda:1")).backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    check(tmp_path / "run", make, config={"collections": {"output_gradients": {"raw": False}}})


def test_a_tensor_of_two_gigabytes(tmp_path):
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("12 GiB of free memory are wanted")

    def make():
        model = nn.Embedding(1 << 20, 1024, device="cuda", dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(n):
            optimizer.zero_grad()
            model(torch.arange(64, device="cuda")).square().mean().backward()
            optimizer.step()

        return Program(model, [optimizer], step)
    program = make()
    kept = []

    def before(optimizer, args, kwargs):
        w = program.model.weight.detach()
        kept.append((int(w.numel()), float(w.min()), float(w.max())))

    program.optimizers[0].register_step_pre_hook(before)
    trial, _ = watched(program, tmp_path / "run", 2, truth=False)
    assert not lost(trial), lost(trial)
    for at, (count, low, high) in zip(trial.steps(mode=TRAIN), kept, strict=True):
        s = trial.tensor("Embedding_weight").summary(at)
        assert (s.count, s.min, s.max) == (count, low, high)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_has_the_statistics_of_the_values_it_means(tmp_path, kind):
    dtype = getattr(torch, kind)
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    values = (torch.randn(30_001, device="cuda") * 30).to(dtype)
    session = tdbg.attach(model, dir=str(tmp_path / "run"), config=settings(collections={"own": {"include_regex": ["^eight$"], "raw": False}}))
    session.record("eight", values, "own")
    program.step(0)
    session.close()
    s = tdbg.open(str(tmp_path / "run")).tensor("eight").summary(0)
    wide = values.float()
    assert (s.count, s.max, s.zero_count) == (30_001, float(wide.max()), int((wide == 0).sum()))


def test_two_trainings_one_after_the_other(tmp_path):
    for n in range(2):
        model = mlp()
        trial, truth = watched(plain(model, torch.optim.SGD(model.parameters(), lr=0.1)), tmp_path / f"run{n}", 3)
        compare(trial, truth)


def test_values_that_are_kept_are_not_read_before_they_have_arrived(tmp_path):
    """The device is kept busy, so that steps are late; each is its own all the same."""
    torch.manual_seed(0)
    model = mlp()
    program = plain(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train, filler = program.step, torch.randn(4096, 4096, device="cuda")

    def step(n):
        for _ in range(8):
            filler @ filler
        train(n)

    program.step = step
    trial, truth = watched(program, tmp_path / "run", 20, RAW)
    compare(trial, truth)
    for n, at in enumerate(trial.steps(mode=TRAIN)):
        for name, tensor in truth.rows[n].items():
            if name.startswith("gradient/"):
                assert torch.equal(torch.from_numpy(np.array(trial.tensor(name).value(at))), tensor.cpu()), (name, at)
