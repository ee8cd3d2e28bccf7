"""A collection that a user asked for and that matched nothing in the whole run is told, with names that are there."""

import json
import os
import subprocess
import sys

import pytest
from program import BINARY, ROOT

pytest.importorskip("torch")
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))
PROGRAM = """
import json, sys
import torch
import tdbg

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        return self.head(torch.nn.functional.relu(self.embed(x)))

net = Net()
if sys.argv[1] == "hook":
    from tdbg.hook.torch import Hook
    hook = Hook(out_dir="run", include_regex=["decoder.*weight"], include_collections=["weights"])
    hook.register_module(net)
elif sys.argv[1] != "launched":
    tdbg.attach(net, config=json.loads(sys.argv[1]), dir="run")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(3, 8)).sum().backward()
    optimizer.step()
"""


def python(tdbg, what):
    env = {**tdbg.env, "TDBG_CLI": str(BINARY), "PYTHONPATH": HOME}
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], cwd=tdbg.directory, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def flat(text):
    return " ".join(text.split())


def test_what_matched_nothing_is_told_with_names_that_are_there(tdbg):
    python(tdbg, json.dumps({"rules": [], "collections": {"mine": {"include_regex": "embed.kernel"}, "biases": {"save_interval": 2}, "relu_output": {}}}))
    lines = flat(tdbg.ok("status", "run").stdout)
    assert "collection mine (embed.kernel) matched nothing; names that are recorded: Net_embed.bias, Net_embed.weight" in lines
    assert "collection relu_output matched nothing: it holds tensors of modules of that kind" in lines
    assert "biases" not in lines
    found = {c["name"]: c for c in tdbg.json("status", "run")["empty_collections"]}
    assert set(found) == {"mine", "relu_output"} and found["mine"]["patterns"] == ["embed.kernel"]


def test_at_the_end_of_a_job_too(tdbg):
    (tdbg.directory / "c.yaml").write_text("collections: {mine: {include_regex: ['head.kernel', 'x+']}}\n")
    done = tdbg("run", "--dir", "run", "--config", "c.yaml", "--", sys.executable, "-c", PROGRAM, "launched")
    assert done.returncode == 0, done.stderr
    assert "collection mine (head.kernel, x+) matched nothing; names that are recorded: Net_head.bias, Net_head.weight" in flat(done.stderr + done.stdout)


def test_a_hooks_expression_that_matched_nothing(tdbg):
    python(tdbg, "hook")
    assert "collection default (decoder.*weight) matched nothing; names that are recorded: Net_embed.weight, Net_head.weight" in flat(
        tdbg.ok("status", "run").stdout)


def test_a_run_that_kept_what_was_asked_for_says_nothing(tdbg):
    python(tdbg, json.dumps({"collections": {"weights": {"save_interval": 1}, "heads": {"include_regex": "head"}}}))
    assert tdbg.json("status", "run")["empty_collections"] == []
