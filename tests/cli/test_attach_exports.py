"""tdbg.attach with an export in its configuration: files of other programs grow while the training runs, and are whole
when it has ended, however it ended."""

import json
import os
import signal
import subprocess
import sys

import pytest
from program import BINARY, ROOT, processes_marked, until

pytest.importorskip("torch")
accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
HOME = os.environ.get("TDBG_HOME", str(ROOT / "python"))

#: Trains until its standard input ends (or it is killed); says when ten steps are done.
PROGRAM = """
import json, os, sys, threading
import torch
import tdbg

model = torch.nn.Linear(20, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = torch.nn.MSELoss()
attached = tdbg.attach(model, config=json.loads(sys.argv[1]), dir="run")
waiting = threading.Thread(target=sys.stdin.read, daemon=True)
waiting.start()
step = 0
while waiting.is_alive() or step < 25:
    optimizer.zero_grad()
    criterion(model(torch.ones(4, 20)), torch.zeros(4, 20)).backward()
    optimizer.step()
    step += 1
    if step == 10:
        print("ten", flush=True)
    if step >= 25:
        waiting.join(0.05)
print(step, flush=True)
"""


def start(tdbg, config):
    env = {**tdbg.env, "TDBG_CLI": str(BINARY), "PYTHONPATH": HOME}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(config)], cwd=tdbg.directory, env=env, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout.readline() == "ten\n"
    return program


def scalars(directory, tag):
    if not list(directory.rglob("*tfevents*")):
        return []
    read = accumulator.EventAccumulator(str(next(directory.rglob("*tfevents*")).parent))
    read.Reload()
    return [e.step for e in read.Scalars(tag)] if tag in read.Tags()["scalars"] else []


def loss_tag(directory):
    for path in directory.rglob("*tfevents*"):
        read = accumulator.EventAccumulator(str(path.parent))
        read.Reload()
        for tag in read.Tags()["scalars"]:
            if "MSELoss_output_0" in tag:
                return tag
    return None


def exporters(tdbg):
    return [process for process in processes_marked(tdbg.mark) if " export " in process[1]]


@pytest.mark.parametrize("ending", ["orderly", "killed"])
def test_tensorboards_files_grow_while_it_trains(tdbg, ending):
    program = start(tdbg, {"tensorboard": "logs"})
    logs = tdbg.directory / "logs"
    tag = until(lambda: loss_tag(logs), "a loss in TensorBoard's files")
    until(lambda: len(scalars(logs, tag)) >= 10, "ten losses in TensorBoard's files")
    assert program.poll() is None and len(exporters(tdbg)) == 1
    if ending == "killed":
        program.send_signal(signal.SIGKILL)
        program.communicate()
    else:
        out, _ = program.communicate(timeout=60)
        steps = int(out)
    # The helper ends by itself when it has written what was left.
    until(lambda: not exporters(tdbg), "the end of the helper")
    seen = scalars(logs, tag)
    assert seen == list(range(len(seen)))
    if ending == "orderly":
        # A step closes when the next begins: the last one at the end.
        assert len(seen) == steps


def test_smdebugs_layout_grows_while_it_trains(tdbg):
    program = start(tdbg, {"format": "smdebug", "collections": {"weights": {"save_interval": 5}}})
    layout = tdbg.directory / "run" / "smdebug"
    until(lambda: len(list(layout.glob("index/*/*.json"))) >= 3, "index files")
    program.communicate(timeout=60)
    until(lambda: not exporters(tdbg), "the end of the helper")
    assert (layout / "training_job_end.ts").exists()
