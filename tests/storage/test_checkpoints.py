"""Checkpoints go into the run's bucket while a job trains, and come back to a disk that has none."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest
import servers
from program import BINARY, processes_marked, until

STORE = BINARY.parent / "tdbg-store"
REFUSED, USAGE, DAMAGED = 6, 2, 5
#: Wiped reclaims of one training, and kills of the process that sends; 20 and more where somebody waits for them.
INTERRUPTIONS = int(os.environ.get("TDBG_TEST_INTERRUPTIONS", "1"))
KILLS = int(os.environ.get("TDBG_TEST_KILLS", "3"))

#: A training whose weights are a function of their past: a checkpoint that is lost, torn or mixed shows in the last ones.
TRAIN = """
import hashlib, os, signal, sys, time
import numpy as np
from tdbg import resume_step
from tdbg._capture import Run

directory, steps, pause, every = os.environ["TDBG_CHECKPOINT_DIR"], int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
path = os.path.join(directory, "weights.npz")
weights, begin = np.arange(64, dtype=np.float64), 0
if os.path.exists(path):
    state = np.load(path)
    weights, begin = state["weights"], int(state["step"])
    # Of two files that are written one after the other.
    with open(os.path.join(directory, "shards", "of step"), "rb") as f:
        assert int(f.read()) in (begin, begin + every), begin
print("begins at", begin, flush=True)
run = Run.open(step_base=begin, step_base_from="script")
loss = run.define("Loss_output_0", "loss", "loss", "", "float32", [])
os.makedirs(os.path.join(directory, "shards"), exist_ok=True)
for step in range(begin, steps):
    run.begin_step(1)
    weights = np.cos(weights * 1.5 + step)
    run.put_array(loss, np.float32(weights.sum()))
    run.end_step()
    if step % every == every - 1:
        with open(os.path.join(directory, "shards", "of step.tmp"), "wb") as f: f.write(b"%d" % (step + 1))
        os.replace(f.name, f.name[:-4])
        with open(path + ".tmp", "wb") as f: np.savez(f, weights=weights, step=step + 1)
        os.replace(path + ".tmp", path)
    time.sleep(pause)
print("ends with", hashlib.sha256(weights.tobytes()).hexdigest(), flush=True)
run.end("completed")
"""


def place():
    return f"s3://bucket/{uuid.uuid4().hex[:8]}/a run"


def training(tdbg, steps, pause=0.0, every=5):
    (tdbg.directory / "train.py").write_text(TRAIN)
    return ["--", sys.executable, "train.py", str(steps), str(pause), str(every)]


def said(done, what):
    return words_behind(done.stdout, what)


def words_behind(text, what):
    return [line.split()[-1] for line in text.splitlines() if line.startswith(what)]


def one_line(text):
    """Notes are broken into lines."""
    return " ".join(text.split())


def store(tdbg, *words, code=0, env=None, **kwargs):
    done = subprocess.run([STORE, *map(str, words)], cwd=tdbg.directory, env={**tdbg.env, **(env or {})}, capture_output=True,
                          text=True, timeout=120, **kwargs)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def sets(tdbg, url):
    listed = subprocess.run([STORE, "ls", f"{url}/checkpoints/sets/"], env=tdbg.env, capture_output=True, text=True, timeout=60)
    return [line.split(" ", 2)[2].rpartition("/")[2] for line in listed.stdout.splitlines()]


def values(tdbg, run):
    """One series: each step and its loss."""
    script = "import json, sys, tdbg; t = tdbg.open(sys.argv[1]); print(json.dumps([[s, float(t.tensor('Loss_output_0').value(s))] for s in t.steps()]))"
    done = subprocess.run([sys.executable, "-c", script, run], cwd=tdbg.directory, env=tdbg.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verdicts(tdbg, run):
    return [(rule["rule"], rule["RuleEvaluationStatus"], [finding["global_step"] for finding in rule["findings"]])
            for rule in json.loads(tdbg("check", run, "--rule", "loss_not_decreasing", "num_steps=10", "--json").stdout)["rules"]]


def files_below(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in pathlib.Path(directory).rglob("*") if path.is_file()}


@pytest.fixture
def tdbg(tdbg):
    tdbg.env["PYTHONPATH"] = tdbg.env["TDBG_HOME"]
    return tdbg


def test_a_job_whose_disk_is_lost_goes_on_where_it_was(tdbg):
    """The disk of each attempt is lost, and the training is the one that was never interrupted."""
    steps = 20 + 30 * INTERRUPTIONS
    rules = ["--rule", "loss_not_decreasing", "num_steps=10"]
    plain = tdbg.ok("run", "--dir", "plain", "--checkpoint-dir", "plain-ckpt", *rules, *training(tdbg, steps))
    url = place()
    done = tdbg.ok("run", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt", "--interrupt-every", "20steps",
                   "--interruptions", INTERRUPTIONS, "--wipe", *rules, *training(tdbg, steps, 0.05), timeout=60 + 20 * INTERRUPTIONS)
    begins = [int(step) for step in said(done, "begins at")]
    assert len(begins) == INTERRUPTIONS + 1 and begins[0] == 0
    assert begins == sorted(set(begins)), begins
    assert said(done, "ends with") == said(plain, "ends with")
    assert values(tdbg, "r") == values(tdbg, "plain")
    assert verdicts(tdbg, "r") == verdicts(tdbg, "plain")
    assert files_below(tdbg.directory / "ckpt").keys() == files_below(tdbg.directory / "plain-ckpt").keys()
    assert one_line(done.stderr).count("the checkpoint directory is wiped; the checkpoints came back") == INTERRUPTIONS, done.stderr
    assert f"all of the run is in {url}, and its checkpoints" in done.stderr
    status = tdbg.json("status", "r")
    assert [(back["attempt"], back["wiped"], back["files"]) for back in status["checkpoints"]] == \
           [(attempt, True, 2) for attempt in range(1, INTERRUPTIONS + 1)]
    assert "restored" in tdbg.ok("status", "r").stdout
    said_of = " ".join(state["message"] for state in tdbg.json("jobs", "r")["transitions"])
    assert said_of.count("the checkpoint directory is wiped") == INTERRUPTIONS, said_of
    assert len(sets(tdbg, url)) == 2

    # Another machine, which has nothing: what was there last comes to it.
    store(tdbg, "restore-checkpoints", url, "elsewhere")
    assert files_below(tdbg.directory / "elsewhere") == files_below(tdbg.directory / "ckpt")


def test_a_job_that_lost_its_checkpoints_gets_them_before_it_trains(tdbg, bucket):
    """A directory that somebody emptied between two starts; and a store that is away then is an error before the training."""
    url = place()
    flags = ["--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt"]
    tdbg.ok("run", *flags, *training(tdbg, 10))
    held = files_below(tdbg.directory / "ckpt")
    shutil.rmtree(tdbg.directory / "ckpt")
    with servers.FaultyProxy(bucket.endpoint) as proxy:
        # The bucket answers, and the objects of checkpoints do not.
        proxy.refuses = lambda head: b"checkpoints" in head.split(b"\r\n", 1)[0]
        done = tdbg("run", *flags, *training(tdbg, 20), env={"AWS_ENDPOINT_URL": proxy.endpoint}, timeout=120)
    assert done.returncode == REFUSED and "cannot be brought back, and nothing trains from zero" in done.stderr, done.stderr
    assert not said(done, "begins at") and not files_below(tdbg.directory / "ckpt")
    done = tdbg.ok("run", *flags, *training(tdbg, 20))
    assert said(done, "begins at") == ["10"]
    assert done.stderr.count("the checkpoints came back from") == 1, done.stderr
    assert held


def interrupted_with_its_disk(tdbg, url):
    """A job that is interrupted with --wipe once it has a checkpoint, and ended in its next attempt: what it printed."""
    output = tdbg.directory / "output"
    with output.open("w") as file:
        job = tdbg.start("run", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt", *training(tdbg, 100_000, 0.02),
                         stdout=file, stderr=subprocess.PIPE)
        try:
            tdbg.wait_for("ckpt/weights.npz")
            (tdbg.directory / "ckpt/half.tmp").write_text("x")  # nobody would bring it back
            tdbg.ok("interrupt", "r", "--wipe")
            until(lambda: len(words_behind(output.read_text(), "begins at")) == 2, "the next attempt")
        finally:
            job.send_signal(signal.SIGTERM)
            err = job.communicate(timeout=120)[1]
    return output.read_text(), one_line(err)


@pytest.mark.long
def test_what_was_not_uploaded_is_not_wiped(tdbg, bucket):
    """The user's only checkpoints: the bucket takes none, so nothing is deleted, and the next attempt has them."""
    url = place()
    with servers.FaultyProxy(bucket.endpoint) as proxy:
        proxy.refuses = lambda head: head.startswith(b"PUT") and b"checkpoints" in head.split(b"\r\n", 1)[0]
        tdbg.env["AWS_ENDPOINT_URL"] = proxy.endpoint
        out, err = interrupted_with_its_disk(tdbg, url)
    assert "no checkpoint is wiped: what is in" in err and "is wiped; the checkpoints came back" not in err, err
    begins = [int(step) for step in words_behind(out, "begins at")]
    assert len(begins) == 2 and begins[1] > 0, out
    assert "the last checkpoints are not in" in err
    assert not tdbg.json("status", "r")["checkpoints"]


@pytest.mark.parametrize("flags, said_of", [
    (["--interrupt-every", "20steps", "--wipe", "--checkpoint-dir", "ckpt"], "--wipe needs --upload"),
    (["--interrupt-every", "20steps", "--wipe", "--upload", "s3://bucket/x"], "--wipe needs --checkpoint-dir"),
    (["--wipe", "--checkpoint-dir", "ckpt", "--upload", "s3://bucket/x"], "--wipe without --interrupt-every"),
    (["--interrupt-every", "20steps", "--wipe", "--checkpoint-dir", ".", "--upload", "s3://bucket/x"], "give checkpoints a directory"),
])
def test_nothing_is_wiped_that_would_not_come_back(tdbg, flags, said_of):
    (tdbg.directory / "ckpt").mkdir()
    (tdbg.directory / "ckpt" / "mine").write_text("my only one")
    assert said_of in tdbg.fails(USAGE, "run", *flags, "--", "touch", "trained")
    assert not (tdbg.directory / "trained").exists() and not (tdbg.directory / "tdbg-runs").exists()
    assert (tdbg.directory / "ckpt" / "mine").read_text() == "my only one"


def test_a_job_without_a_bucket_is_not_interrupted_with_its_disk(tdbg):
    job = tdbg.start("run", "--dir", "r", "--checkpoint-dir", "ckpt", "--quiet", *training(tdbg, 100_000, 0.02),
                     stdout=subprocess.DEVNULL)
    try:
        tdbg.wait_for("ckpt/weights.npz")
        assert "nothing would bring its checkpoints back; it needs --upload" in tdbg.fails(REFUSED, "interrupt", "r", "--wipe")
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    assert (tdbg.directory / "ckpt/weights.npz").exists()


@pytest.mark.long
def test_a_job_that_is_interrupted_with_its_disk_by_hand(tdbg):
    out, err = interrupted_with_its_disk(tdbg, place())
    assert "the checkpoint directory is wiped; the checkpoints came back" in err, err
    assert not (tdbg.directory / "ckpt/half.tmp").exists()
    begins = [int(step) for step in words_behind(out, "begins at")]
    assert len(begins) == 2 and begins[1] > 0, out
    [back] = tdbg.json("status", "r")["checkpoints"]
    assert back["wiped"] and back["of_attempt"] == 0 and back["step"] == -1 and back["seen_step"] > 0


@pytest.mark.long
def test_the_process_that_sends_may_be_killed_at_any_instant(tdbg):
    """Whatever is in the bucket at any time restores to a state that the directory had."""
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt", "--quiet", *training(tdbg, 100_000, 0.002, every=100),
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    chance = random.Random(7)

    def sender():
        found = [pid for pid, words in processes_marked(tdbg.mark) if "tdbg-store" in words and " checkpoints " in words]
        return found[0] if found else None
    try:
        until(lambda: sets(tdbg, url), "a first set")
        for kill in range(KILLS):
            os.kill(until(sender, "it is started again"), signal.SIGKILL)
            time.sleep(chance.random() * 2)
            store(tdbg, "restore-checkpoints", url, f"back-{kill}")
            back = files_below(tdbg.directory / f"back-{kill}")
            assert set(back) == {"weights.npz", "shards/of step"}
            code = "import sys, numpy as np; print(int(np.load(sys.argv[1])['step']))"
            step = int(subprocess.run([sys.executable, "-c", code, tdbg.directory / f"back-{kill}" / "weights.npz"], capture_output=True,
                                      text=True, check=True).stdout)
            assert int(back["shards/of step"]) in (step, step + 100), (back["shards/of step"], step)
    finally:
        job.send_signal(signal.SIGTERM)
        err = job.communicate(timeout=120)[1]
    assert err.count("another goes on") == 1, err
    store(tdbg, "restore-checkpoints", url, "last")
    assert files_below(tdbg.directory / "last") == files_below(tdbg.directory / "ckpt")


@pytest.mark.long
def test_a_job_that_is_looked_after_again_goes_on_sending(tdbg):
    url = place()

    def newest():
        return max(sets(tdbg, url), default="")

    def words_of(program):
        return [(pid, words) for pid, words in processes_marked(tdbg.mark) if program in words]
    tdbg.ok("run", "--detach", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt/", *training(tdbg, 100_000, 0.02))
    until(newest, "a first set")
    [(launcher, _)] = words_of("/tdbg run --detach")
    os.kill(launcher, signal.SIGKILL)
    tdbg.ok("resume", "r", "--detach")
    before = newest()
    until(lambda: words_of(" checkpoints "), "another sender")
    assert f" checkpoints {tdbg.directory / 'ckpt'} " in words_of(" checkpoints ")[-1][1], "the next attempt may begin elsewhere"
    until(lambda: newest() > before, "a newer set")
    tdbg.ok("stop", "r")
    until(lambda: not processes_marked(tdbg.mark), "the job has ended")
    store(tdbg, "restore-checkpoints", url, "back")
    assert files_below(tdbg.directory / "back") == files_below(tdbg.directory / "ckpt")


@pytest.mark.long
def test_a_damaged_set_is_named_and_the_older_one_taken(tdbg):
    url = place()
    for steps in (10, 20):
        tdbg.ok("run", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt", "--quiet", *training(tdbg, steps))
        kept = files_below(tdbg.directory / "ckpt")
        if steps == 10:
            first = kept
    newest = json.loads(store(tdbg, "cat", f"{url}/checkpoints/sets/{sets(tdbg, url)[-1]}").stdout)
    [weights] = [file for file in newest["files"] if file["name"] == "weights.npz"]
    (tdbg.directory / "damage").write_bytes(b"x" * weights["bytes"])
    store(tdbg, "put", "damage", f"{url}/checkpoints/files/{weights['sha256']}")
    done = store(tdbg, "restore-checkpoints", url, "back")
    assert "not whole (weights.npz has another sum)" in done.stderr
    assert files_below(tdbg.directory / "back") == first
    # Where none is whole no training begins.
    for name in sets(tdbg, url):
        store(tdbg, "put", "damage", f"{url}/checkpoints/sets/{name}")
    shutil.rmtree(tdbg.directory / "ckpt")
    line = store(tdbg, "restore-checkpoints", url, "none", code=DAMAGED).stderr.splitlines()[-1]
    assert "none of the 2 sets of checkpoints" in line
    assert not (tdbg.directory / "none").exists()
    done = tdbg("run", "--dir", "r", "--upload", url, "--checkpoint-dir", "ckpt", *training(tdbg, 30))
    assert done.returncode == DAMAGED and not said(done, "begins at"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("fault", ["reset", "503", "truncated", "slow", "stale"])
def test_checkpoints_go_through_and_come_back_in_spite_of(tdbg, bucket, fault):
    (tdbg.directory / "ckpt").mkdir()
    chance = random.Random(3)
    for i in range(20):
        (tdbg.directory / "ckpt" / f"shard {i}").write_bytes(chance.randbytes(1000 * i))
    (tdbg.directory / "ckpt" / "large").write_bytes(chance.randbytes(20 << 20))
    url = place()
    tdbg.ok("run", "--dir", "r", "--upload", url, "--quiet", "--", "true")
    run = json.loads((tdbg.directory / "r/run.json").read_text())["id"]
    with servers.FaultyProxy(bucket.endpoint, faults={fault: 0.2}) as proxy:
        env = {"AWS_ENDPOINT_URL": proxy.endpoint}
        store(tdbg, "checkpoints", "ckpt", url, "--run", run, env=env)
        store(tdbg, "restore-checkpoints", url, "back", env=env)
        assert proxy.counts[fault] > 0
    assert files_below(tdbg.directory / "back") == files_below(tdbg.directory / "ckpt")
