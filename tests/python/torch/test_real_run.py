"""The adaptor with the real extension: what a training did is what the run says."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

PACKAGE = pathlib.Path(os.environ.get("TDBG_HOME", pathlib.Path(__file__).resolve().parents[3] / "python")) / "tdbg"
pytest.importorskip("tdbg._capture", reason="the extension modules are not built (TDBG_PYTHON=ON)")
tdbg = pytest.importorskip("tdbg")
pytest.importorskip("tdbg._trial")

NET = """
import sys, torch
from torch import nn
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3)
    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))
def train(steps, model=None, each=lambda n, model, loss: None):
    torch.manual_seed(0)
    model = model or Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        loss.backward()
        each(n, model, loss)
        optimizer.step()
    return model
"""


def start(tmp_path, source, plan=None, launched=True, **environment):
    script = tmp_path / "train.py"
    script.write_text(NET + textwrap.dedent(source))
    env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k not in ("RANK", "WORLD_SIZE")}
    if launched:
        env.update(TDBG_RUN=str(tmp_path / "run"), TDBG_HOME=str(PACKAGE.parent), PYTHONPATH=str(PACKAGE / "boot"))
        if plan is not None:
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "plan.json").write_text(plan)
    else:
        env["PYTHONPATH"] = str(PACKAGE.parent)
    env.update(environment)
    return subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(process, code=0):
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out, err


def test_statistics_are_those_of_the_weights_and_gradients_of_each_step(tmp_path):
    out, err = finish(start(tmp_path, """
        kept = []
        def each(n, model, loss):
            kept.append({**{"Net_" + k: p.detach().clone() for k, p in model.named_parameters()},
                         **{"gradient/Net_" + k: p.grad.clone() for k, p in model.named_parameters()},
                         "CrossEntropyLoss_output_0": loss.detach().clone()})
        model = train(5, each=each)
        torch.save((kept, model.state_dict()), "kept.pt")
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        """))
    assert err == ""
    import torch
    kept, final = torch.load(tmp_path / "kept.pt")
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.state == "ended" and trial.dropped() == [] and trial.damage() == []
    assert len(trial.steps(mode="TRAIN")) == 5 and len(trial.steps(mode="EVAL")) == 1
    for n, tensors in enumerate(kept):
        for name, tensor in tensors.items():
            s, x = trial[name].summary(n), tensor.double().numpy()
            assert s.count == x.size
            np.testing.assert_allclose([s.mean, s.min, s.max, s.l2], [x.mean(), x.min(), x.max(), np.sqrt((x * x).sum())],
                                       rtol=1e-5, atol=1e-9, err_msg=f"{name} at {n}")
    s = trial["Net_fc1.weight"].final_summary()
    assert s.mean == pytest.approx(final["fc1.weight"].double().mean().item(), rel=1e-5)
    assert trial["context/lr/SGD/0"].scalar(3) == 0.1
    assert trial.context("optimizer/SGD", 4)["groups"][0]["parameters"][0] == "Net_fc1.weight"
    assert trial["fc1.weight"].name == "Net_fc1.weight"


def test_steps_survive_a_kill(tmp_path):
    process = start(tmp_path, """
        train(3)
        print("trained", flush=True)
        import time
        time.sleep(60)""")
    assert process.stdout.readline() == "trained\n"
    process.send_signal(signal.SIGKILL)
    finish(process, -signal.SIGKILL)
    assert len(tdbg.open(str(tmp_path / "run")).steps(mode="TRAIN")) == 3


def test_exception_is_in_the_run(tmp_path):
    finish(start(tmp_path, "train(1)\nraise ValueError('what went wrong')"), 1)
    ended = list((tmp_path / "run").rglob("ended.json"))
    assert len(ended) == 1 and "exception" in ended[0].read_text()
    assert len(tdbg.open(str(tmp_path / "run")).steps()) == 1


def test_outputs_where_the_plan_asks_for_them(tmp_path):
    plan = """{"kind": "tdbg.plan", "major": 1, "minor": 0, "collections": [
        {"name": "relu_output", "keep": true, "kinds": ["output:relu"],
         "raw": {"train": {"interval": 2}}}]}"""
    finish(start(tmp_path, """
        kept = []
        class Keep(nn.Module):
            def forward(self, x):
                kept.append(x.detach().clone())
                return x
        model = Net()
        model.fc2 = nn.Sequential(Keep(), model.fc2)
        train(3, model)
        torch.save(kept, "kept.pt")""", plan))
    import torch
    kept = torch.load(tmp_path / "kept.pt")
    trial = tdbg.open(str(tmp_path / "run"))
    assert trial.tensor_names(regex="_output_|weight") == ["relu_output_0"]
    tensor = trial["relu_output_0"]
    assert tensor.steps(kind="raw") == [0, 2] and tensor.steps(kind="summary") == [0, 1, 2]
    assert np.array_equal(tensor.value(2), kept[2].numpy())
    assert tensor.summary(1).zero_count == int((kept[1] == 0).sum())


def test_two_ranks_are_two_workers_of_one_run(tmp_path):
    finish(start(tmp_path, """
        import torch.distributed as dist, torch.multiprocessing as mp
        def worker(rank):
            dist.init_process_group("gloo", init_method="file://rendezvous", rank=rank, world_size=2)
            train(3, nn.parallel.DistributedDataParallel(Net()))
            dist.barrier()
            dist.destroy_process_group()
        if __name__ == "__main__":
            import os
            mp.spawn(worker, nprocs=2)""".replace("file://rendezvous", f"file://{tmp_path}/rendezvous"),
        TDBG_ATTEMPT="0"))
    trial = tdbg.open(str(tmp_path / "run"))
    assert len(trial.workers()) == 2 and trial.steps() == [0, 1, 2]
    a, b = (trial["gradient/Net_fc1.weight"].summary(2, worker=w).mean for w in trial.workers())
    assert a == b, "gradients are averaged before they are seen"


def test_attach_in_the_script(tmp_path):
    finish(start(tmp_path, """
        import tdbg
        with tdbg.attach(dir="mine") as run:
            print(run)
            train(2, each=lambda n, model, loss: run.scalar("twice", 2 * n))
            assert repr(run) == f"<tdbg run {run.directory}: step 1>", run
        """, launched=False, PATH="/nonexistent"))
    trial = tdbg.open(str(tmp_path / "mine"))
    assert trial.state == "ended" and trial["scalar/twice"].scalar(1) == 2


@pytest.mark.parametrize("force", [False, True])
def test_device_lane_writes_the_same_statistics(tmp_path, force):
    """Host tensors through the device's path: see adaptors/torch/other_devices.py."""
    finish(start(tmp_path, f"""
        from tdbg.adaptors.torch.session import Session
        from tdbg._capture import Run
        session = Session(Run.open, dict(directory="mine"), force_lane={force})
        session.install()
        train(3)
        session.finish("completed")""", launched=False))
    trial = tdbg.open(str(tmp_path / "mine"))
    import torch
    namespace = {}
    exec(NET, namespace)
    means = []
    namespace["train"](3, each=lambda n, model, loss: means.append(model.fc1.weight.double().mean().item()))
    assert [trial["Net_fc1.weight"].summary(n).mean for n in range(3)] == pytest.approx(means, rel=1e-6)
    assert trial["CrossEntropyLoss_output_0"].summary(1).count == 1
    assert trial["Net_fc1.weight"].final_summary().count == 240
    assert torch.get_default_dtype() == torch.float32


def test_attach_with_a_configuration(tmp_path):
    from tdbg.adaptors.plan import find_cli
    tool = find_cli()
    if tool is None:
        pytest.skip("no `tdbg` program: set TDBG_CLI")
    out, _ = finish(start(tmp_path, """
        import tdbg
        try:
            tdbg.attach(config={"colections": {}}, dir="mine")
        except ValueError as error:
            print(error)
        with tdbg.attach(config={"collections": {"relu_output": {"raw": True}}}, dir="mine") as run:
            train(2)
        """, launched=False, TDBG_CLI=tool))
    assert 'did you mean "collections"' in out
    assert "relu_output_0" in tdbg.open(str(tmp_path / "mine")).tensor_names()
