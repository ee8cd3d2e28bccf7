"""tdbg mcp, asked by the client of the package mcp itself: three stories of trainings that went wrong, and who asks for more
than is offered."""

import asyncio
import os
import shutil
import sys

import pytest
from page_runs import HOSTILE_NAMES, NAN_FROM, SICK, STEPS
from program import BINARY, damage, processes_marked
from test_view import record

mcp = pytest.importorskip("mcp", reason="needs the package mcp")
if not hasattr(mcp, "Client"):
    pytest.skip("needs mcp 2", allow_module_level=True)

# Its labels have nothing to do with its inputs.
STUCK = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loss_function = torch.nn.CrossEntropyLoss()
for _ in range(300):
    optimizer.zero_grad()
    loss = loss_function(net(torch.randn(64, 8)), torch.randint(0, 10, (64,)))
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    for name in ("sick", "fine", "lagging", "hostile"):
        record(directory / name, name)
    return directory


def asked(tdbg, root, *questions, fails=False):
    """The answers to (tool, arguments) pairs, over one connection."""

    async def talk():
        server = mcp.StdioServerParameters(command=str(BINARY), args=["mcp", str(root)], cwd=str(tdbg.directory),
                                           # A proxy that the environment names gets none of it.
                                           env={**tdbg.env, "TDBG_PYTHON": sys.executable, "http_proxy": "http://127.0.0.1:9"})
        async with mcp.Client(server) as client:
            answers = []
            for tool, arguments in questions:
                result = await client.call_tool(tool, arguments)
                assert bool(result.is_error) == fails, (tool, arguments, result)
                answers.append(result.content[0].text if fails else result.structured_content)
            return answers

    answers = asyncio.run(asyncio.wait_for(talk(), 120))
    # Nothing stays behind: neither the server nor the one that it asks.
    for _ in range(100):
        if not processes_marked(tdbg.mark):
            break
        asyncio.run(asyncio.sleep(0.05))
    assert processes_marked(tdbg.mark) == []
    return answers


def test_the_story_of_a_nan(tdbg, recorded):
    tensor = f"gradient/{SICK}.weight"
    runs, how, story, layers, before, series, histogram = asked(
        tdbg, recorded, ("list_runs", {}), ("how_is", {"run": "sick"}), ("explain", {"run": "sick"}),
        ("layers", {"run": "sick", "begin": NAN_FROM - 10, "end": NAN_FROM + 10, "columns": 4}),
        ("histogram", {"run": "sick", "tensor": tensor, "step": NAN_FROM - 1}),
        ("series", {"run": "sick", "tensor": "CrossEntropyLoss_output_0"}),
        ("histogram", {"run": "sick", "tensor": tensor, "step": NAN_FROM}))
    assert {run["name"] for run in runs["runs"]} == {"sick", "fine", "lagging", "hostile"}
    assert f"NaN since step {NAN_FROM}, first in {tensor}" in how["sentence"]
    incident = next(i for i in story["incidents"]["first"] if i["detector"] == "nonfinite")
    assert incident["first_step"] == NAN_FROM and incident["advice"]
    # The layer map leads to the layers that have it, and to the step.
    worst = layers["tensors"]["first"][0]
    assert any("NaN" in cell["signs"] for cell in worst["cells"]) and layers["steps"][-1][1] >= NAN_FROM
    assert before["summary"]["nan_count"] == 0 and histogram["summary"]["nan_count"] > 0
    assert series["not_finite"]["first"][0] == [NAN_FROM, "NaN"] and series["recorded"] == STEPS
    assert series["points"][0][0] == 0


@pytest.mark.long
def test_the_story_of_a_training_that_learns_nothing(tdbg, tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK)
    done = tdbg("run", "--dir", "stuck", "--", sys.executable, "stuck.py", timeout=120)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("needs torch")
    how, story, loss = asked(tdbg, tmp_path / "stuck", ("how_is", {}), ("explain", {}),
                             ("series", {"tensor": "CrossEntropyLoss_output_0", "points": 8}))
    assert [i["id"] for i in how["incidents"]["first"]] == ["no_improvement"]
    assert "guessing" in how["sentence"]
    assert "labels" in story["incidents"]["first"][0]["advice"]
    assert all(2 < value < 3 for _, value in loss["points"])
    # And `tdbg run` offered the report of it.
    assert "tdbg report stuck" in done.stderr


def test_the_story_of_a_dead_worker(tdbg, recorded):
    how, step, workers = asked(tdbg, recorded, ("how_is", {"run": "lagging"}), ("step", {"run": "lagging", "step": 50}),
                               ("workers", {"run": "lagging", "tensor": "loss"}))
    assert how["workers_behind"] == ["worker_1"] and how["workers_that_died"] == ["worker_1"]
    assert {w["name"]: w["last_step"] for w in how["workers"]["first"]} == {"worker_0": 59, "worker_1": 39}
    assert step["workers"] == ["worker_0"]
    assert {w["worker"] for w in workers["workers"]["first"]} == {"worker_0", "worker_1"}


def test_two_runs_are_compared_and_rules_explained(tdbg, recorded):
    difference, page = asked(tdbg, recorded, ("compare", {"run": "sick", "other": "fine"}),
                             ("rule_page", {"name": "vanishing_gradient"}))
    assert difference["first"]
    lacking = difference["only_in_b"]["steps"] | difference["only_in_a"]["workers"]
    assert set(lacking) == {"first", "more"} and difference["only_in_a"]["workers"]["first"] == ["worker_1"]
    assert "VanishingGradient" in page["result"]


def test_names_are_data_and_answers_stay_short(tdbg, recorded):
    tensors, how, all_of_it = asked(tdbg, recorded, ("tensors", {"run": "hostile"}), ("how_is", {"run": "hostile"}),
                                    ("layers", {"run": "hostile", "limit": 2}))
    assert {t["name"] for t in tensors["tensors"]["first"]} == set(HOSTILE_NAMES)
    assert how["first_nonfinite"]["global_step"] == 3
    assert len(all_of_it["tensors"]["first"]) == 2 and all_of_it["tensors"]["more"] == len(HOSTILE_NAMES) - 2


def test_a_damaged_run_is_told_as_far_as_it_can_be_read(tdbg, recorded, tmp_path):
    shutil.copytree(recorded / "fine", tmp_path / "hurt")
    damage(tmp_path / "hurt", "summary/nan_count")
    story, = asked(tdbg, tmp_path / "hurt", ("explain", {}))
    assert "summary/nan_count" in story["could_not_be_read"]


def test_what_lies_outside_is_refused(tdbg, recorded, tmp_path):
    record(tmp_path / "secret", "lagging")
    outside = str(tmp_path / "secret")
    link = os.path.relpath(outside, recorded)
    refusals = asked(tdbg, recorded, *(
        (tool, {"run": name, **more}) for name in (outside, link, f"sick/../{link}", "/etc", "--json", "")
        for tool, more in (("how_is", {}), ("explain", {}), ("compare", {"other": "fine"}))),
        ("rule_page", {"name": "../../etc/passwd"}), ("rule_page", {"name": "--rule-file=x.py:X"}),
        ("series", {"run": "sick", "tensor": "no such"}), ("series", {"run": "sick", "tensor": "x" * 13_000}),
        ("layers", {"run": "sick", "columns": 10**9}), ("step", {"run": "sick", "step": 10**9}), fails=True)
    assert all(refusals) and not any("Traceback" in text for text in refusals)


def test_what_is_missing_is_said(tdbg, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    record(tmp_path / "run", "lagging")
    # A Python that lacks the package: this one, with the package hidden.
    shim = tmp_path / "python"
    shim.write_text(f"#!/bin/sh\nPYTHONPATH={bare} exec {sys.executable} \"$@\"\n")
    shim.chmod(0o755)
    assert "pip install 'tdbg[mcp]'" in tdbg.fails(1, "mcp", "run", "--python", str(shim))
    assert "nothing" in tdbg.fails(4, "mcp", "nothing")
