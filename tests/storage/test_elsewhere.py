"""A run that lives in a bucket goes on on another machine: another home, an empty disk."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest
import ship_run
from program import Tdbg, processes_marked, until
from test_uploading import objects, python

ISSUES, USAGE, NOT_FOUND, DATA_LOSS, REFUSED, UNSUPPORTED = 1, 2, 4, 5, 6, 7

#: Trains from its checkpoint on, which is beside it, to the given step; a NaN from step 6 on (ship_run).
TRAINING = f"""
import os, pathlib, sys, time
sys.path[:0] = [{str(pathlib.Path(ship_run.__file__).parent)!r}]
import ship_run
from tdbg._capture import Run
checkpoint, last, pause = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
first = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("begins at", first, flush=True)
run = Run.open(directory="", step_base=first, step_base_from="script")
ids = [run.define("Net_fc.weight", "fc.weight", "weight", "linear", "float32", [40, 50]), run.define_scalar("lr/0")]
for step in range(first, last):
    run.begin_step(ship_run.mode_of(step))
    run.put_array(ids[0], ship_run.weight(step))
    run.put_scalars([ids[1]], [ship_run.rate(step)])
    run.end_step()
    if step % 5 == 4:
        pathlib.Path(f"{{checkpoint}}.new").write_text(str(step + 1))
        os.replace(f"{{checkpoint}}.new", checkpoint)
    time.sleep(pause)
run.end("completed")
"""


class Machines:
    """Machines that share a bucket and the disk that the script keeps its checkpoint on, and nothing else."""

    def __init__(self, first, directory):
        self.first, self.directory, self.count = first, directory, 0
        (directory / "train.py").write_text(TRAINING)
        self.checkpoint = directory / "checkpoint"

    def next(self):
        self.count += 1
        home = self.directory / f"machine-{self.count}"
        home.mkdir()
        machine = Tdbg(home)
        machine.env = {**self.first.env, **{k: machine.env[k] for k in ("XDG_STATE_HOME", "TDBG_TEST_MARK")},
                       "HOME": str(home), "TDBG_CACHE": str(home / ".cache")}
        return machine

    def training(self, last, pause=0.0):
        return [sys.executable, self.directory / "train.py", self.checkpoint, last, pause]


@pytest.fixture
def machines(tdbg, tmp_path):
    return Machines(tdbg, tmp_path)


def new_url(name="the run"):
    return f"s3://bucket/{uuid.uuid4().hex[:8]}/{name}"


def reclaim(machine, job):
    """The machine is taken away at once, and its disk with it."""
    for pid, _ in processes_marked(machine.mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.wait()
    until(lambda: not processes_marked(machine.mark), "its processes are gone")
    shutil.rmtree(machine.directory)


def steps(tdbg, where):
    return [step["global_step"] for step in tdbg.json("steps", where)["steps"]]


LISTS = """
import boto3, json, sys
bucket, _, prefix = sys.argv[1].removeprefix("s3://").partition("/")
pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
print(json.dumps([one["Key"].removeprefix(prefix + "/") for page in pages for one in page.get("Contents", [])]))
"""


def test_a_run_whose_machine_is_taken_away_goes_on_on_another_one_with_the_same_line(machines, tdbg):
    url, line = new_url(), ["--rule", "exploding_tensor", "--format", "smdebug", "--dir"]
    first = machines.next()
    job = first.start("run", *line, url, "--", *machines.training(100_000, 0.05), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # Past the checkpoint of step 10, and what the rule said of step 6 is there.
    until(lambda: machines.checkpoint.exists() and int(machines.checkpoint.read_text()) >= 10, "it trains")
    until(lambda: "run.json" in objects(tdbg, url) and steps(tdbg, url)[-1:] > [10], "that is in the bucket")
    reclaim(first, job)
    assert tdbg.json("status", url)["rules"][0]["RuleEvaluationStatus"] == "IssuesFound"
    begins = steps(tdbg, url)[-1] // 5 * 5
    machines.checkpoint.write_text(str(begins))  # of later ones the bucket has nothing

    second = machines.next()
    done = second.ok("run", *line, url, "--", *machines.training(begins + 20))
    assert f"the run in {url} is back" in done.stderr and f"begins at {begins}" in done.stdout, done
    assert ".state" not in done.stderr and f"all of the run is in {url}" in done.stderr, done.stderr
    shutil.rmtree(second.directory)

    status = tdbg.json("status", url)
    assert status["attempts"] == [0, 1] and status["hosts"] == [socket.gethostname()] * 2 and status["name"] == "the run" and status["run"] == url
    assert [(start["attempt"], start["step"]) for start in status["step_bases"]] == [(1, begins)]
    assert steps(tdbg, url) == list(range(begins + 20)) and status["damage"] == []
    rule = status["rules"][0]
    assert rule["RuleEvaluationStatus"] == "IssuesFound" and [f["global_step"] for f in rule["findings"]][:1] == [6]
    over, exported = python(tdbg, "t = tdbg.create_trial(sys.argv[1] + '/smdebug'); print(json.dumps([t.loaded_all_steps, t.steps()]))", url)
    assert over and exported[:7] == list(range(7)) and exported[-20:] == list(range(begins, begins + 20))
    listed = json.loads(subprocess.run([sys.executable, "-c", LISTS, url], env=tdbg.env, capture_output=True, text=True, check=True).stdout)
    assert {"run.json", "0/attempt.json", "1/attempt.json", "logs/attempt-1.out", "tdbg-upload.json"} <= set(listed)
    logs = [json.loads(text) for text in tdbg.ok("logs", url, "--json").stdout.splitlines()]
    assert [(one["attempt"], one["text"]) for one in logs if one["stream"] != "tdbg"] == [(0, "begins at 0"), (1, f"begins at {begins}")]


def trained(machine, machines, url, last, *flags):
    return machine.ok("run", "--quiet", *flags, "--dir", url, "--", *machines.training(last))


@pytest.mark.long
def test_a_job_of_a_bucket_has_the_name_of_its_prefix_and_is_read_from_there_afterwards(machines):
    url, here = new_url("my-run"), machines.next()
    (here.directory / "h.json").write_text(json.dumps([{"log": str(here.directory / "events")}]))
    done = here.ok("run", "--rule", "exploding_tensor", "--on-event", "h.json", "--dir", url + "/", "--", *machines.training(9))
    assert f"tdbg explain {url}" in done.stderr and ".state" not in done.stderr and "spool" not in done.stderr, done.stderr
    events = [json.loads(text) for text in (here.directory / "events").read_text().splitlines()]
    assert {event["detail"]["tdbg"]["run"] for event in events} == {url}, events
    (job,) = here.json("jobs")
    assert (job["job"], job["run"], job["url"]) == ("my-run", url, url)
    assert url in here.ok("jobs").stdout and url in here.ok("jobs", "my-run").stdout and url in here.ok("jobs", url).stdout
    assert not list((here.directory / ".state/tdbg").rglob("spool/*"))
    for name in ("my-run", "last", url):
        assert here.json("status", name)["run"] == url
        assert len(here.json("steps", name)["steps"]) == 9
        assert here.json("explain", name, code=ISSUES)["run"] == url
        assert here.ok("logs", name).stdout.splitlines()[0] == "begins at 0"
        assert "begins at 0" in here.ok("logs", name, "--around", "0").stdout
        here.ok("show", name, "weight")
        here.ok("metrics", name)
    assert "my-run" in here.ok("metrics", "my-run").stdout
    assert here.json("ls", "--where", "last")["run"] == url
    assert "tdbg resume my-run goes on" in here.fails(UNSUPPORTED, "stop", "my-run")
    assert here.json("jobs", "--prune")["forgotten"] == []


@pytest.mark.long
def test_a_job_whose_directory_is_gone_is_read_from_where_it_was_uploaded_and_comes_back(machines):
    url, here = new_url(), machines.next()
    here.ok("run", "--quiet", "--rule", "exploding_tensor", "--dir", "runs/a", "--upload", url, "--", *machines.training(9))
    shutil.rmtree(here.directory / "runs")
    for name in ("a", "runs/a", "last"):
        assert here.json("status", name)["run"] == url, name
        assert here.ok("logs", name).stdout.splitlines()[0] == "begins at 0"
    assert "comes back" not in here.ok("resume", "a", "--", *machines.training(20)).stderr
    assert steps(here, "runs/a") == list(range(20)), "in the directory that it had"
    assert here.json("status", "a")["attempts"] == [0, 1]
    assert steps(here, url) == list(range(20)), "and the flags were kept: it is uploaded"
    shutil.rmtree(here.directory / "runs")
    here.ok("resume", url, "--dir", "other")  # with the command of its last attempt
    assert here.json("status", "other")["attempts"] == [0, 1, 2] and not (here.directory / "runs").exists()
    assert "goes on there" in here.fails(USAGE, "resume", "a", "--dir", "third")


@pytest.mark.long
def test_what_a_bucket_says_is_shown_and_not_executed(machines):
    url, here, there = new_url(), machines.next(), machines.next()
    command = [*machines.training(6)]
    here.ok("run", "--quiet", "--dir", url, "--", *command)
    line = there.fails(REFUSED, "resume", url)
    assert f"tdbg resume '{url}' -- {sys.executable} {command[1]}" in line and not (there.directory / ".state").exists()
    assert "no run in" in there.fails(NOT_FOUND, "resume", new_url(), "--", "touch", "executed")
    assert not (there.directory / "executed").exists()
    done = there.ok("resume", url, "--", *machines.training(12))
    assert "begins at 5" in done.stdout and steps(there, url) == list(range(12))
    there.ok("resume", url)  # this machine knows it now
    assert there.json("status", url)["attempts"] == [0, 1, 2]
    for flags in (["--upload", url], ["--dir", "new", "--upload", url]):
        assert f"tdbg resume '{url}' goes on with that one" in there.fails(REFUSED, "run", *flags, "--", "touch", "executed")
    assert not (there.directory / "new").exists() and not (there.directory / "executed").exists()


@pytest.mark.long
def test_an_uploader_that_lives_elsewhere_keeps_its_prefix(machines, tdbg):
    url, here, there = new_url(), machines.next(), machines.next()
    job = here.start("run", "--quiet", "--dir", url, "--", *machines.training(100_000, 0.05), stdout=subprocess.DEVNULL)
    try:
        until(lambda: "run.json" in objects(tdbg, url), "it is in the bucket")
        done = there("run", "--dir", url, "--", "touch", "executed")
        assert done.returncode == REFUSED and f"is being filled by another process, on {socket.gethostname()}" in done.stderr, done.stderr
        assert not (there.directory / "executed").exists() and not list(there.directory.rglob("run.json"))
        assert here.json("status", url)["alive"]
        here.ok("stop", url)  # where it runs, its URL names it
        job.wait(60)
    finally:
        job.kill()
    assert here.json("status", url)["state"] == "stopped by user"


@pytest.mark.long
def test_of_two_machines_that_begin_at_once_one_goes_on(machines):
    url, here = new_url(), machines.next()
    trained(here, machines, url, 6)
    both = [machines.next() for _ in range(2)]
    jobs = [one.start("run", "--dir", url, "--", *machines.training(9, 0.2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for one in both]
    said = [job.communicate(timeout=90)[1] for job in jobs]
    assert sorted(job.returncode for job in jobs) == [0, REFUSED], said
    assert here.json("status", url)["attempts"] == [0, 1] and here.json("status", url)["damage"] == []
    lost = both[[job.returncode for job in jobs].index(REFUSED)]
    assert not list(lost.directory.rglob("run.json")), "nothing of an attempt that did not begin"
    trained(lost, machines, url, 12)
    assert here.json("status", url)["attempts"] == [0, 1, 2]


@pytest.mark.long
def test_steps_that_were_not_uploaded_are_missing_and_said(machines):
    url, here = new_url(), machines.next()
    trained(here, machines, url, 10)
    machines.checkpoint.write_text("15")  # its own disk took it further
    there = machines.next()
    trained(there, machines, url, 20)
    assert steps(there, url) == [*range(10), *range(15, 20)]
    assert there.json("status", url)["step_bases"] == [{"attempt": 1, "step": 15, "from": "script", "replaced": 0, "missing": 5}]


@pytest.mark.long
def test_actions_are_not_repeated_and_rules_go_on(machines):
    url, here, there = new_url(), machines.next(), machines.next()
    flags = ["--rule", "exploding_tensor", "--on-issue", f"exec:echo found >> '{machines.directory}/actions'"]
    trained(here, machines, url, 9, *flags)
    trained(there, machines, url, 20, *flags)
    assert (machines.directory / "actions").read_text() == "found\n"
    status = there.json("status", url)
    assert status["rules"][0]["RuleEvaluationStatus"] == "IssuesFound" and len(status["incidents"]) == 1, status


@pytest.mark.long
def test_what_is_here_and_behind_is_set_aside(machines):
    """Its upload failed, another machine went on, and then this one is started again."""
    url, here, there = new_url(), machines.next(), machines.next()
    job = here.start("run", "--quiet", "--dir", url, "--", *machines.training(100_000, 0.02), stdout=subprocess.DEVNULL)
    until(lambda: "run.json" in objects(here, url), "it is in the bucket")
    for pid, _ in processes_marked(here.mark):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    machines.checkpoint.write_text("0")
    trained(there, machines, url, 30)
    done = here.ok("run", "--dir", url, "--", *machines.training(40))
    assert "went on elsewhere; what was here of it is in" in " ".join(done.stderr.split()), done.stderr
    assert here.json("status", url)["attempts"] == [0, 1, 2] and steps(here, url)[-1] >= 39
    (kept,) = (here.directory / ".state/tdbg/spool").rglob("run.json")
    assert "-behind-1" in str(kept)

    here.ok("run", "--quiet", "--dir", "r", "--upload", (other := new_url()), "--", *machines.training(45))
    shutil.copytree(here.directory / "r", there.directory / "r")
    here.ok("run", "--quiet", "--dir", "r", "--upload", other, "--", *machines.training(50))
    line = there.fails(REFUSED, "run", "--dir", "r", "--upload", other, "--", *machines.training(55))
    assert "has an earlier state of it; tdbg resume" in line
    assert there.json("status", "r")["attempts"] == [0]


@pytest.mark.long
def test_killed_while_it_comes_back_the_next_start_has_all_of_it(machines, tdbg):
    url, here, there = new_url(), machines.next(), machines.next()
    trained(here, machines, url, 60)
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3):
        job = there.start("run", "--quiet", "--dir", url, "--", "touch", "executed", stderr=subprocess.DEVNULL)
        until(lambda: [1 for _, line in processes_marked(there.mark) if "bring-back" in line] or job.poll() is not None, "it comes back")
        time.sleep(pause)
        job.kill()
        job.wait()
        until(lambda: not processes_marked(there.mark), "its processes are gone")
        if (there.directory / "executed").exists():
            break
    trained(there, machines, url, 70)
    status = tdbg.json("status", url)
    assert steps(tdbg, url) == list(range(70)) and status["damage"] == []


@pytest.mark.long
def test_a_machine_that_is_taken_away_again_and_again_leaves_one_series(machines, tdbg):
    """Without notice, at any instant, also while it comes back; the script's checkpoint is never ahead of the bucket."""
    url, last = new_url(), 400
    rng = random.Random(7)
    for _ in range(int(os.environ.get("TDBG_TEST_INTERRUPTIONS", "5"))):
        machine = machines.next()
        job = machine.start("run", "--quiet", "--rule", "exploding_tensor", "--dir", url, "--", *machines.training(last, 0.05),
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(1, 9))
        reclaim(machine, job)
        there = steps(tdbg, url) if "run.json" in objects(tdbg, url) else []
        machines.checkpoint.write_text(str(len(there) // 5 * 5))
    machine = machines.next()
    trained(machine, machines, url, last, "--rule", "exploding_tensor")
    status = tdbg.json("status", url)
    assert steps(tdbg, url) == list(range(last)) and status["damage"] == []
    (rule,) = status["rules"]
    assert rule["RuleEvaluationStatus"] == "IssuesFound" and rule["findings"][0]["global_step"] == 6


@pytest.mark.long
def test_attempts_on_several_hosts_name_them(machines):
    here = machines.next()
    here.ok("run", "--quiet", "--dir", "r", "--", *machines.training(3))
    here.ok("resume", "r")
    assert "hosts" not in here.ok("status", "r").stdout
    worker = here.directory / "r/0/worker_0/worker.json"
    worker.write_text(json.dumps({**json.loads(worker.read_text()), "host": "another"}))
    assert here.json("status", "r")["hosts"] == ["another", socket.gethostname()]
    assert f"attempt 0 on another, attempt 1 on {socket.gethostname()}" in here.ok("status", "r").stdout
