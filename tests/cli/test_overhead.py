"""The budget of a step's time: what costs too much is looked at less often, the training is as without us, and it is said."""

import json
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch in this Python")

import tdbg  # noqa: E402

TRAIN = tdbg.ModeKeys.TRAIN
HEAD = """
import hashlib, sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
def end(model):
    h = hashlib.sha256()
    for p in model.parameters(): h.update(p.detach().numpy().tobytes())
    print("BITS", h.hexdigest())
"""
#: 50 MB of which a step touches 64 rows.
EMBEDDING = HEAD + """
e = nn.Embedding(200_000, 64, sparse=True)
o = torch.optim.SGD(e.parameters(), lr=0.1)
for step in range(200):
    o.zero_grad()
    e(torch.randint(0, 200_000, (64,))).square().mean().backward()
    if step in (3, 150):
        g = e.weight.grad.to_dense().double()
        print("GRAD", step, g.mean().item(), g.square().sum().sqrt().item(), int((g == 0).sum()), g.min().item())
    o.step()
end(e)
"""
#: A cache of 64 MB in which a step writes one row, beside small weights.
CACHE = HEAD + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 64)
        self.register_buffer("cache", torch.zeros(16 << 20))
    def forward(self, x):
        self.cache[:64] = x[0].detach()
        return self.line(x)
m = Model()
o = torch.optim.SGD(m.parameters(), lr=0.01)
for step in range(200):
    o.zero_grad()
    m(torch.randn(2, 64)).square().mean().backward()
    o.step()
end(m)
"""
TINY = HEAD + """
m = nn.Linear(4, 1)
o = torch.optim.SGD(m.parameters(), lr=0.001)
for step in range(1200):
    o.zero_grad()
    m(torch.randn(2, 4)).square().mean().backward()
    o.step()
end(m)
"""
TABLE = HEAD + """
with open("table", "wb") as file: file.truncate(80 << 20)
table = torch.from_file("table", shared=True, size=20 << 20).view(-1, 64)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 4)
        self.register_buffer("table", table)
    def forward(self, i): return self.line(self.table[i])
m = Model()
o = torch.optim.SGD(m.parameters(), lr=0.1)
for step in range(5):
    o.zero_grad()
    m(torch.randint(0, 1000, (64,))).square().mean().backward()
    o.step()
end(m)
"""


@pytest.fixture
def run(tdbg):
    def run(text, *arguments):
        (tdbg.directory / "train.py").write_text(text)
        done = tdbg.ok("run", "--dir", "r", *arguments, "--", sys.executable, "train.py", timeout=120,
                       env={"TDBG_OVERHEAD": ""})
        bits = re.search("BITS .*", done.stdout).group()
        return done, bits, tdbg.json("status", "r")

    return run


def bare(tdbg, text):
    (tdbg.directory / "bare.py").write_text(text)
    done = subprocess.run([sys.executable, "bare.py"], cwd=tdbg.directory, capture_output=True, text=True, timeout=120)
    return re.search("BITS .*", done.stdout).group()


def recorded(trial, name):
    """Steps at which it has a row."""
    return list(trial.tensor(name).steps(mode=TRAIN))


def test_of_a_sparse_embedding_the_table_is_looked_at_rarely_and_the_gradient_always(tdbg, run):
    done, bits, status = run(EMBEDDING)
    assert bits == bare(tdbg, EMBEDDING)
    trial = open_run(tdbg)
    assert len(recorded(trial, "gradient/Embedding_weight")) == 200
    looks = recorded(trial, "Embedding_weight")
    assert looks[0] == 0 and len(looks) < 40, looks
    for line in re.findall("GRAD (.*)", done.stdout):
        step, mean, norm, zeros, least = line.split()
        row = trial.tensor("gradient/Embedding_weight").summary(int(step), mode=TRAIN)
        assert (row.count, row.zero_count) == (200_000 * 64, int(zeros))
        assert row.mean == pytest.approx(float(mean), rel=1e-5, abs=1e-12)
        assert row.l2 == pytest.approx(float(norm), rel=1e-5) and row.min == pytest.approx(float(least))
    said, = status["overhead"]
    assert said["share"] == 0.05 and said["every"] == 1
    assert [t["name"] for t in said["tensors"]] == ["Embedding_weight"] and said["tensors"][0]["every"] > 4
    assert status["dropped"] == [] and status["incidents"] == []
    assert re.search(r"overhead +since step \d+ Embedding_weight at one in \d+, since a look takes", tdbg.ok("status", "r").stdout)
    assert "overhead" in done.stderr


@pytest.mark.long
def test_of_a_large_buffer_rows_are_rare_and_of_small_weights_they_are_not(tdbg, run):
    _, bits, status = run(CACHE)
    assert bits == bare(tdbg, CACHE)
    trial = open_run(tdbg)
    assert len(recorded(trial, "Model_line.weight")) == 200
    assert len(recorded(trial, "Model_cache")) < 40
    assert status["overhead"][0]["rare"] == 1 and status["incidents"] == []


@pytest.mark.long
def test_without_a_limit_everything_is_looked_at(tdbg, run):
    (tdbg.directory / "c.yaml").write_text("overhead: none\n")
    _, _, status = run(CACHE, "--config", "c.yaml")
    assert len(recorded(open_run(tdbg), "Model_cache")) == 200
    assert status["overhead"] == []


def test_of_very_short_steps_the_first_are_all_there_and_later_ones_now_and_then(tdbg, run):
    _, bits, status = run(TINY, "--rule", "exploding_tensor")
    assert bits == bare(tdbg, TINY)
    trial = open_run(tdbg)
    steps = trial.steps(mode=TRAIN)
    assert steps[:256] == list(range(256))
    every = status["overhead"][0]["every"]
    assert every > 1 and len(steps) < 800
    since = status["overhead"][0]["from_step"]
    assert all(s % every == 0 for s in steps if s >= since)
    assert status["steps"]["last_seen"] == 1199
    rule, = (r for r in status["rules"] if r["rule"] == "ExplodingTensor")
    assert rule["RuleEvaluationStatus"] == "NoIssuesFound"
    assert f"of the steps since {since} one in {every} was seen (overhead)" in rule["StatusDetails"]


@pytest.mark.long
def test_a_table_in_a_file_is_looked_at_only_where_it_is_named(tdbg, run):
    done, bits, status = run(TABLE)
    assert bits == bare(tdbg, TABLE)
    assert "Model_table" not in open_run(tdbg).tensor_names()
    assert "lies in a file that is mapped (table)" in done.stderr
    (tdbg.directory / "c.yaml").write_text(json.dumps({"dir": "named", "collections": {
        "tables": {"include_regex": ["table$"], "summaries": True}}}))
    tdbg.ok("run", "--config", "c.yaml", "--", sys.executable, "train.py")
    assert recorded(open_run(tdbg, "named"), "Model_table")[0] == 0


@pytest.mark.parametrize("text", ["5", "0%", "101%", "x%", "-1%"])
def test_what_is_no_share_is_refused_before_anything_starts(tdbg, text):
    (tdbg.directory / "c.yaml").write_text(f"overhead: '{text}'\n")
    said = tdbg.fails(2, "run", "--config", "c.yaml", "--", "touch", "started")
    assert f'overhead: found "{text}"' in said and '"5%"' in said and '"none"' in said
    assert not (tdbg.directory / "started").exists()


def open_run(tdbg_program, name="r"):
    return tdbg.open(str(tdbg_program.directory / name))
