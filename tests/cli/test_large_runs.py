"""Runs that a stranger forged, or that are merely large: a command takes as long as reading what is there takes."""

import json
import os
import shutil
import struct
import subprocess
import sys

import pytest
from program import BINARY
from test_events import TRAINING

CRASHED = 137
#: 6000 times what is searched in the time that a test may take.
RING = 8 << 40


@pytest.fixture
def crashed(tdbg):
    """A run whose process was killed: everything is in segments, and its journal is still there."""
    (tdbg.directory / "train.py").write_text(TRAINING.replace('run.end("completed")', "os.kill(os.getpid(), 9)"))
    done = tdbg("run", "--quiet", "--dir", "r", "--journal", "4MiB", "--rule", "exploding_tensor", "--",
                sys.executable, "train.py", "10", env={"PYTHONPATH": tdbg.env["TDBG_HOME"]})
    assert done.returncode == CRASHED, done.stderr
    return tdbg.directory / "r"


@pytest.mark.parametrize("positions", ["possible", "impossible"])
def test_a_ring_of_terabytes_that_are_holes_is_not_searched(tdbg, crashed, positions):
    journal = crashed / "0" / "worker_0" / "journal"
    with open(journal, "r+b") as file:
        try:
            file.truncate(RING + 4096)
        except OSError:
            pytest.skip("the file system has no files of that length")
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) > 8 << 20:
            pytest.skip("the file system does not know holes")
        file.seek(0)
        header = bytearray(file.read(4096))
        assert header.startswith(b"TDBGJRNL")
        header[16:24] = struct.pack("<Q", RING)
        header[64:72] = struct.pack("<Q", RING - 64)
        header[128:136] = struct.pack("<Q", 0 if positions == "possible" else RING + 64)
        file.seek(0)
        file.write(header)
    assert "journal" in tdbg("status", "r").stdout  # it is damaged, and said to be
    for words in (["status", "r"], ["check", "r", "--rule", "exploding_tensor"], ["dump", journal], ["tensors", "r"]):
        done = tdbg(*words)
        assert done.returncode in (0, 5, 8), (words, done.stderr)
    # The next attempt of the job seals what the dead one left.
    assert tdbg("run", "--quiet", "--dir", "r", "--", "true").returncode == 0


def seconds(*words, cwd):
    """Of the processor, in the program itself: what else the machine does counts little."""
    child = subprocess.Popen([str(BINARY), *words], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_utime + usage.ru_stime


def statuses(run, count):
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    line = next(line for line in lines if line["kind"] == "rule_status")
    finding = {"global_step": 3, "tensor": "gradient/a", "measure": "nan_count", "value": 1.0, "threshold": 0.0}
    with open(run / "events.jsonl", "a") as file:
        for i in range(count):
            line.update(name=f"Rule{i}", status="IssuesFound" if i % 2 else "InProgress", findings=[finding] * (i % 2))
            file.write(json.dumps(line) + "\n")


def rules(run, count):
    document = json.loads((run / "rules.json").read_text())
    document["rules"] = [{**document["rules"][0], "name": f"Rule{i}"} for i in range(count)]
    (run / "rules.json").write_text(json.dumps(document))


@pytest.mark.parametrize("grow, count, words", [
    (statuses, 5000, ["status", "RUN"]), (statuses, 5000, ["ls", "."]), (rules, 1000, ["check", "RUN", "--own"])],
    ids=["status", "ls", "check"])
def test_the_work_grows_with_what_is_there(tdbg, crashed, grow, count, words):
    spent = []
    for times in (1, 8):
        folder = tdbg.directory / f"times{times}"
        folder.mkdir()
        shutil.copytree(crashed, folder / "r")
        grow(folder / "r", count * times)
        spent.append(seconds(*[word.replace("RUN", "r") for word in words], cwd=folder))
    # Eight times where it is linear; where each looked at all others before it, 64 times.
    assert spent[1] < 16 * spent[0], spent


@pytest.mark.parametrize("name", ["events.jsonl", "logs/attempt-0.out", "control", "0/worker_0/worker.json", "plan.json"])
def test_a_file_of_terabytes_that_are_a_hole_is_not_read_through(tdbg, crashed, name):
    with open(crashed / name, "r+b") as file:
        file.truncate(RING)
    for words in (["status", "r"], ["check", "r"], ["logs", "r"], ["watch", "r"], ["ls", "."], ["explain", "r"]):
        done = tdbg(*words)
        assert len(done.stdout) < 1 << 20 and done.returncode in range(10), (words, done.returncode, done.stderr[:500])
