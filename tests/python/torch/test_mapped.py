"""Weights in memory that is taken away: a mapped file that another process cuts short, a page that may not be read. A
training that does not read them lives, and so it does under watch."""

import ctypes
import mmap
import os
import subprocess
import sys

import pytest

tdbg = pytest.importorskip("tdbg")

TRAIN = """\
import ctypes, mmap, os, sys, warnings
import tdbg, torch
from torch import nn
how, trains, spoil = sys.argv[1:]
warnings.simplefilter("ignore")
elements = 1 << 16
size = 4 * elements

def in_a_file(private):
    with open("weights", "wb") as file:
        file.write(bytes(size))
    with open("weights", "r+b") as file:
        return mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE if private else mmap.MAP_SHARED)

protected = how.startswith("protected")
kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if "private" in how else mmap.MAP_SHARED
memory = mmap.mmap(-1, size, flags=kind) if protected else in_a_file(how == "private")
table = torch.frombuffer(memory, dtype=torch.float32).uniform_()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        if trains == "buffer":
            self.register_buffer("table", table.view(-1, 16))
        else:
            self.table = nn.Parameter(table.view(-1, 16), requires_grad=trains == "trainable")

    def forward(self, x):
        return self.head(x + self.table[0, :4])

model = Net()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
run = tdbg.attach(model, config={"rules": [], "black_box": "64MiB"}, dir="run")
for step in range(12):
    if step == 6 and protected:
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(table.data_ptr() + 65536), ctypes.c_size_t(size - 65536), 0) == 0
    elif step == 6:
        os.truncate("weights", 65536)
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).square().sum()
    (loss * float("nan") if spoil == "nan" and step == 9 else loss).backward()
    optimizer.step()
run.close()
"""


@pytest.mark.parametrize("how, trains, spoil", [
    ("shared", "frozen", ""), ("shared", "buffer", "nan"), ("private", "trainable", ""), ("protected", "frozen", ""),
    ("protected, private", "frozen", ""), ("protected, private", "buffer", "nan"), ("protected, private", "trainable", "")])
def test_a_training_lives_whose_weights_can_no_longer_be_read(tmp_path, how, trains, spoil):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    env = {k: v for k, v in os.environ.items() if k != "TDBG_STRICT"}
    done = subprocess.run([sys.executable, str(script), how, trains, spoil], cwd=tmp_path, env=env, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Net_table: its memory cannot be read") == 1, done.stderr
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor("Net_table").steps() == list(range(6))
    assert trial.tensor("Net_head.weight").steps()[-1] >= 8
    assert ("no black box of step 9: " in done.stderr) == (spoil == "nan")


def test_of_a_view_the_memory_that_it_reaches_is_asked_for():
    """By whoever reads it: an origin's walk, a black box, the recorder of what is not trained."""
    torch = pytest.importorskip("torch")
    values = pytest.importorskip("tdbg.adaptors.torch.origin.values")
    black_box = pytest.importorskip("tdbg.adaptors.torch.black_box")
    pages, row = 4, mmap.PAGESIZE // 4
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
    table = torch.frombuffer(memory, dtype=torch.float32).view(pages, row)
    libc = ctypes.CDLL(None)
    half = ctypes.c_void_p(table.data_ptr() + 2 * mmap.PAGESIZE)
    assert libc.mprotect(half, ctypes.c_size_t(2 * mmap.PAGESIZE), 0) == 0
    try:
        for view, there in ((table, False), (table[:2], True), (table[:, :4], False), (table[:2, :4], True), (table[:2].t(), True),
                            (table.t(), False), (table[1, ::2], True), (table[3], False), (table[:2, :1].expand(2, 9), True),
                            (table[4:], True), (table[2:, :0], True)):
            assert values.is_there(view) == there, view.shape
            assert (values.readable(view) is not None) == there
            kept = black_box.Kept(1 << 20)
            assert kept.add("it", view, "the batch") == there and kept.gone == ("" if there else "it")
            assert list(kept.tensors) == ["it"] * there and bool(kept.left_out) == (not there)
    finally:
        libc.mprotect(half, ctypes.c_size_t(2 * mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)
