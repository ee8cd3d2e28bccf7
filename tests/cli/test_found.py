"""What is found is said when it is found: while the training goes on, once, by the script's own count of steps."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from program import BINARY
from test_view import Server, serving

SCRIPT = """
import os, sys, time, torch
from torch import nn

go, faults = sys.argv[1], [int(s) for s in sys.argv[2:]]
torch.manual_seed(3)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(30):
    x = torch.randn(16, 8)
    loss = net(x).square().mean()
    if step in faults:
        loss = torch.log(net(x) - 9).mean()
    optimizer.zero_grad(); loss.backward()
    if not torch.isfinite(loss):
        optimizer.zero_grad()
    optimizer.step()
    if step % 5 == 4:
        net.eval()
        with torch.no_grad():
            nn.functional.mse_loss(net(x), torch.zeros(16, 1))
        net.train()
    if step == 25:
        print("held", flush=True)
        while not os.path.exists(go):
            time.sleep(0.01)
print("over", flush=True)
"""
ISSUE = "tdbg: ISSUE  "
# Of 12 steps of the training two evaluations have been made.
WHERE = "TRAIN step 12 (global 14): the loss became NaN in log"


class Job:
    """A training that goes on when told."""

    def __init__(self, tdbg, *flags, directory="r", go="go", faults=(12,)):
        (tdbg.directory / "train.py").write_text(SCRIPT)
        self.tdbg, self.go = tdbg, tdbg.directory / go
        command = [str(BINARY), "run", "--dir", directory, *flags, "--", sys.executable, "train.py", go, *map(str, faults)]
        self.process = subprocess.Popen(command, cwd=tdbg.directory, env=tdbg.env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines, self._news = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def wait_for(self, start):
        """Until a line begins so; the training is held meanwhile."""
        with self._news:
            assert self._news.wait_for(lambda: any(line.startswith(start) for line in self.lines), 120), self.lines

    def end(self):
        self.go.touch()
        out = self.process.stdout.read()
        assert self.process.wait(120) == 0, self.lines
        self._reader.join()
        return out

    def said(self):
        return [line.removeprefix(ISSUE) for line in self.lines if line.startswith(ISSUE)]


def found(tdbg, run="r"):
    lines = (tdbg.directory / run / "events.jsonl").read_text().splitlines(keepends=True)
    events = (json.loads(line) for line in lines if line.endswith("\n"))     # the last one may still be being written
    return [event for event in events if event["kind"] == "found"]


@pytest.mark.parametrize("flags", [(), ("--rule", "exploding_tensor")], ids=["profile", "rule"])
def test_a_finding_is_said_while_the_training_goes_on_and_once(tdbg, flags):
    job = Job(tdbg, *flags)
    job.wait_for(ISSUE)
    assert job.process.poll() is None           # it is held
    assert job.end() == "held\nover\n"
    assert len(job.said()) == 1 and job.said()[0].startswith(WHERE), job.lines
    (event,) = found(tdbg)
    assert (event["attempt"], event["global_step"]) == (0, 14) and event["text"] == job.said()[0]
    # The summary and the page name the step in the same words.
    assert any("became NaN in log" in line and "at TRAIN step 12 (global 14)" in line for line in job.lines), job.lines
    with serving(tdbg, "r") as address:
        told = Server(address).json("run", run="r")
    assert "NaN at TRAIN step 12 (global 14), first in " in told["sentence"]["text"]
    ats = {one["at"] for one in (*told["incidents"], *told["origins"], told["verdicts"][0]["findings"][0])}
    assert ats == {"TRAIN step 12 (global 14)"}


def test_the_log_has_it_where_a_person_would_have_read_it(tdbg):
    job = Job(tdbg)
    job.wait_for(ISSUE)
    job.end()
    lines = tdbg.ok("logs", "r").stdout.splitlines()
    assert len(lines) == 3 and lines[-1] == "over" and sum(line.startswith(ISSUE) for line in lines) == 1, lines
    (ours,) = [entry for entry in map(json.loads, tdbg.ok("logs", "r", "--json").stdout.splitlines())
               if entry["stream"] == "tdbg"]
    assert ours["text"] == job.said()[0] and ours["step"] == 14
    around = tdbg.ok("logs", "r", "--around", "14").stdout
    assert ISSUE + WHERE in around


def test_what_an_earlier_job_found_is_not_said_again(tdbg):
    first = Job(tdbg)
    first.wait_for(ISSUE)
    first.end()
    second = Job(tdbg, go="go2", faults=())
    second.end()
    assert second.said() == []
    assert len(found(tdbg)) == 1


RULE = """
import tdbg

class Late(tdbg.Rule):
    '''A step has come.'''

    needs = tdbg.needs("losses")
    at: int = tdbg.parameter(6, help="a step")

    def judge(self, step):
        return "it is late" if step.global_step >= self.at else None
"""


def test_what_came_first_is_the_headline_whatever_was_named_first(tdbg):
    (tdbg.directory / "mine.py").write_text(RULE)
    rules = ("--rule-file", "mine.py:Late", "name=late", "at=20", "--rule-file", "mine.py:Late", "name=early", "at=8")
    job = Job(tdbg, *rules, faults=())
    job.end()
    assert "tdbg: early found an issue at TRAIN step 7 (global 8)" in "\n".join(job.lines), job.lines
    job = Job(tdbg, *rules[:4], directory="nan", go="go2")
    job.end()
    assert any(re.match("tdbg: the loss became NaN in log.*, at TRAIN step 12", line) for line in job.lines), job.lines


def test_a_rule_beside_its_own_copy_is_said_by_its_name(tdbg):
    (tdbg.directory / "mine.py").write_text(RULE)
    job = Job(tdbg, "--rule-file", "mine.py:Late", "name=one", "--rule-file", "mine.py:Late", "name=two", "at=8", faults=())
    job.wait_for(ISSUE + "TRAIN step 5 (global 6): one: it is late")
    job.wait_for(ISSUE + "TRAIN step 7 (global 8): two: it is late")
    job.end()
    assert len(job.said()) == 2 and {event["name"] for event in found(tdbg)} == {"one", "two"}


def test_status_of_a_job_that_goes_on_counts_no_steps_that_it_does_not_know(tdbg):
    job = Job(tdbg, "--rule", "exploding_tensor", faults=())
    assert job.process.stdout.readline() == "held\n"
    shown = tdbg.ok("status", "r").stdout
    assert re.search(r"^ExplodingTensor +InProgress +no finding so far$", shown, re.M), shown
    job.end()
    assert "ExplodingTensor  NoIssuesFound  36 steps judged" in tdbg.ok("status", "r").stdout


def test_quiet_says_nothing(tdbg):
    job = Job(tdbg, "--quiet")
    while not (tdbg.directory / "r" / "events.jsonl").exists() or not found(tdbg):
        assert job.process.poll() is None
    job.end()
    assert not any(line.startswith("tdbg") for line in job.lines), job.lines


def test_a_second_watcher_says_it_too_and_the_log_has_it_once(tdbg):
    job = Job(tdbg)
    job.wait_for(ISSUE)
    other = subprocess.Popen([str(BINARY), "watch", "r"], cwd=tdbg.directory, env=tdbg.env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in other.stderr:
        if line.startswith(ISSUE):
            break
    else:
        pytest.fail("the second watcher ended without a word")
    assert WHERE in line
    job.end()
    _, rest = other.communicate(timeout=120)
    assert ISSUE not in rest and len(job.said()) == 1
    assert tdbg.ok("logs", "r").stdout.count(ISSUE) == 1


def test_steps_of_a_run_with_one_mode_have_one_number(tdbg):
    (tdbg.directory / "train.py").write_text(SCRIPT.replace("step % 5 == 4", "False").replace("step == 25", "False"))
    done = tdbg("run", "--dir", "r", "--", sys.executable, "train.py", "-", "12", timeout=120)
    assert re.search(r"became NaN in log.*, at step 12 \(completed\)", done.stderr), done.stderr
    shown = tdbg.ok("show", "r", "backward_loss", "--steps", "12:14").stdout
    assert re.search(r"^12 +TRAIN +nan$", shown, re.M), shown


def test_show_and_status_give_both_numbers(tdbg):
    job = Job(tdbg)
    job.end()
    shown = tdbg.ok("show", "r", "backward_loss", "--steps", "13:16").stdout
    assert re.search(r"^14 +TRAIN 12 +nan$", shown, re.M), shown
    assert WHERE in " ".join(tdbg.ok("status", "r").stdout.split())
    (incident,) = json.loads(tdbg.ok("status", "r", "--json").stdout)["incidents"]
    assert (incident["first_step"], incident["mode"], incident["mode_step"]) == (14, "TRAIN", 12)
    assert {(e["global_step"], e["mode"], e["mode_step"]) for e in incident["evidence"]} == {(14, "TRAIN", 12)}
    judged = json.loads(tdbg("check", "r", "--json").stdout)
    assert judged["incidents"][0]["mode_step"] == 12 and judged["nan_origins"][0]["mode_step"] == 12


UNFINISHED = """
import os, sys, time, torch
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
print("epoch 1:", end="", flush=True)
for step in range(30):
    x = torch.randn(16, 8)
    loss = torch.log(net(x) - 9).mean() if step == 12 else net(x).square().mean()
    optimizer.zero_grad(); loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
while not os.path.exists("go"):
    time.sleep(0.01)
print(" over", flush=True)
"""


def on_terminal(tdbg, columns, *command):
    """The lines that stand there, as far as they are not drawn at a place of their own. The training goes on once a finding is said."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(tdbg.directory)
        os.execve(command[0], command, {**tdbg.env, "TERM": "xterm", "NO_COLOR": "1"})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    written = b""
    with contextlib.suppress(OSError):          # EIO: all have closed it
        while chunk := os.read(master, 65536):
            written += chunk
            if ISSUE.encode() in written:
                (tdbg.directory / "go").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, written
    lines, column = [""], 0
    for character in re.sub("\x1b7.*?\x1b8|\x1b\\[[0-9;]*[A-Za-z]", "", written.decode(), flags=re.DOTALL):
        if character == "\r":
            column = 0
        elif character == "\n":
            lines.append("")
        else:
            if column == columns:
                lines, column = [*lines, ""], 0
            lines[-1] = lines[-1][:column].ljust(column) + character + lines[-1][column + 1:]
            column += 1
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("columns", [72, pytest.param(160, marks=pytest.mark.long)])
def test_on_a_terminal_a_finding_fits_and_stands_on_lines_of_its_own(tdbg, columns):
    (tdbg.directory / "train.py").write_text(UNFINISHED)
    lines = on_terminal(tdbg, columns, str(BINARY), "run", "--dir", "r", "--", sys.executable, "-u", "train.py")
    (first,) = [n for n, line in enumerate(lines) if line.startswith(ISSUE)]
    assert lines[first - 1] == "epoch 1:", lines
    said = [lines[first], *itertools.takewhile(lambda line: line.startswith(" " * 13), lines[first + 1:])]
    assert len(said) > 1 and all(len(line) <= min(columns, 100) for line in said), said
    assert " ".join(line.strip() for line in said).startswith(ISSUE + found(tdbg)[0]["text"])
    assert lines[first + len(said)] == " over", lines


def test_in_a_file_a_finding_is_one_line_also_behind_one_that_is_unfinished(tdbg):
    (tdbg.directory / "train.py").write_text(UNFINISHED)
    with open(tdbg.directory / "out", "wb") as out:
        job = subprocess.Popen([str(BINARY), "run", "--dir", "r", "--", sys.executable, "-u", "train.py"], cwd=tdbg.directory,
                               env=tdbg.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    while ISSUE not in (tdbg.directory / "out").read_text():
        assert job.poll() is None
        time.sleep(0.02)
    (tdbg.directory / "go").touch()
    assert job.wait(120) == 0
    lines = (tdbg.directory / "out").read_text().splitlines()
    at = lines.index("epoch 1:")
    assert lines[at + 1] == ISSUE + found(tdbg)[0]["text"] and lines[at + 2] == " over", lines
