"""A run that goes into a bucket while it trains, and is read from there by whoever never had its disk."""

import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest
import ship_run
from program import BINARY, ROOT, processes_marked

TRAINING = str(pathlib.Path(ship_run.__file__))
STORE = BINARY.parent / "tdbg-store"
ISSUES, USAGE, REFUSED, UNSUPPORTED = 1, 2, 6, 7


def place():
    return f"s3://bucket/{uuid.uuid4().hex[:8]}/a run@1"


def objects(tdbg, url):
    done = subprocess.run([STORE, "ls", url + "/"], env=tdbg.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    prefix = url.removeprefix("s3://bucket/") + "/"
    return [line.split(" ", 2)[2].removeprefix(prefix) for line in done.stdout.splitlines()]


def python(tdbg, script, *arguments):
    done = subprocess.run([sys.executable, "-c", "import sys, json, tdbg\n" + script, *arguments], timeout=120,
                          env={**tdbg.env, "PYTHONPATH": tdbg.env["TDBG_HOME"]}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def eventually(question, seconds=30):
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < end, answer
        time.sleep(0.1)


def test_a_run_whose_disk_is_gone_is_opened_from_the_bucket(tdbg):
    url = place()
    done = tdbg.ok("run", "--dir", "r", "--upload", url, "--rule", "exploding_tensor", "--", sys.executable, TRAINING, "30")
    of_the_run = [name for name in objects(tdbg, url) if "journal.parts" not in name and name != "tdbg-upload.json"]
    assert f"all of the run is in {url}: {len(of_the_run)} files, " in done.stderr
    here = {command: tdbg.json(command, "r", *more, code=code) for command, more, code in QUESTIONS}
    names = objects(tdbg, url)
    assert {"run.json", "plan.json", "events.jsonl", "tdbg-upload.json", "0/worker_0/worker.json"} <= set(names)
    assert any(name.endswith(".safetensors") for name in names)
    assert not any(name.endswith(("/journal", "lock", ".tmp", "control")) for name in names)

    shutil.rmtree(tdbg.directory / "r")
    for command, more, code in QUESTIONS:
        there = tdbg.json(command, url, *more, code=code)
        assert without_places(there) == without_places(here[command]), command
    assert python(tdbg, "t = tdbg.open(sys.argv[1]); print(json.dumps([t.steps(), t.state, t.tensor_names(), t.damage()]))",
                  url) == [list(range(30)), "ended", ["Loss_output_0", "Net_fc.bias", "Net_fc.weight", "lr/0"], []]
    assert python(tdbg, "t = tdbg.create_trial(sys.argv[1]); print(json.dumps([t.loaded_all_steps, t.name]))",
                  url) == [True, "a run@1"]
    assert "s3://" in tdbg.fails(UNSUPPORTED, "stop", url)


QUESTIONS = [("status", [], 0), ("tensors", [], 0), ("steps", [], 0), ("show", ["Net_fc.weight"], 0), ("check", [], ISSUES)]


def without_places(answer):
    """Without paths and times of judging, which differ."""
    if isinstance(answer, dict):
        return {k: without_places(v) for k, v in answer.items() if k not in ("run", "path", "next", "LastModifiedTime")}
    return [without_places(one) for one in answer] if isinstance(answer, list) else answer


def test_a_run_is_followed_while_it_is_uploaded_and_a_job_that_is_asked_to_end_leaves_all_of_it(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "100000", "0.05")
    try:
        eventually(lambda: "run.json" in objects(tdbg, url))
        seen = python(tdbg, """
import time
t = tdbg.open(sys.argv[1], wait=60)
first = len(t.steps())
end = time.monotonic() + 60
while len(t.steps()) < first + 20 and time.monotonic() < end:
    t.refresh()
    time.sleep(0.2)
print(json.dumps([first, len(t.steps()), t.state, t.damage()]))
""", url)
        assert seen[1] >= seen[0] + 20 and seen[2:] == ["running", []], seen
        assert any("/journal.parts/" in name for name in objects(tdbg, url)), "nothing is sealed yet"
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    # The rest comes, and it is the run that is here.
    assert tdbg.json("status", url)["state"] == tdbg.json("status", "r")["state"]
    assert len(tdbg.json("steps", url)["steps"]) == len(tdbg.json("steps", "r")["steps"]) >= seen[1]


def test_a_run_is_judged_from_its_bucket_while_it_trains(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "200", "0.05")
    eventually(lambda: "run.json" in objects(tdbg, url))
    for action in ("stop", "capture:losses", "pause"):
        assert "acts on the job, which runs elsewhere" in tdbg.fails(USAGE, "watch", url, "--rule", "exploding_tensor", "--on-issue", action)
    watch = tdbg.start("watch", url, "--rule", "exploding_tensor", "--on-issue", f"exec:touch '{tdbg.directory}/found'", "--json",
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tdbg.wait_for("found", 60)
    assert job.poll() is None, "it was found while it trained"
    assert job.wait(60) == 0, "nobody stopped it"
    verdicts, said = watch.communicate(timeout=60)
    assert watch.returncode == ISSUES, said
    there = tdbg.json("check", url, "--rule", "exploding_tensor", code=ISSUES)
    assert [(rule["RuleConfigurationName"], rule["RuleEvaluationStatus"]) for rule in json.loads(verdicts)["rules"]] == [
        (rule["RuleConfigurationName"], rule["RuleEvaluationStatus"]) for rule in there["rules"]]
    copies = list((tdbg.directory / ".cache").rglob("events.jsonl"))
    assert copies and all(copy.read_bytes() == (tdbg.directory / "r/events.jsonl").read_bytes() for copy in copies), "nothing of it is written into a copy"


def test_a_directory_in_a_bucket_leaves_nothing_here(tdbg):
    url = place()
    tdbg.ok("run", "--dir", url, "--", sys.executable, TRAINING, "3")
    assert not list((tdbg.directory / ".state").rglob("run.json")) and not (tdbg.directory / "tdbg-runs").exists()
    assert len(tdbg.json("steps", url)["steps"]) == 3


def test_a_configuration_says_where_a_run_goes_and_the_flag_knows_better(tdbg):
    url, other = place(), place()
    (tdbg.directory / "c.yaml").write_text(f"upload: {url}\n")
    train = ("--", sys.executable, TRAINING, "3")
    done = tdbg.ok("run", "--config", "c.yaml", "--dir", "r", *train)
    assert f"all of the run is in {url}" in done.stderr and len(tdbg.json("steps", url)["steps"]) == 3
    assert f"all of the run is in {other}" in tdbg.ok("run", "--config", "c.yaml", "--dir", "s", "--upload", other, *train).stderr
    assert len(tdbg.json("ls", url)) == 1
    assert "holds another run" in tdbg.fails(REFUSED, "run", "--config", "c.yaml", "--dir", "t", *train)
    (tdbg.directory / "c.yaml").write_text("dir: r\nupload: gs://bucket/x\n")
    line = tdbg.fails(USAGE, "run", "--config", "c.yaml", *train)
    assert "c.yaml:2" in line and "upload" in line and "accepted: s3://BUCKET/PREFIX" in line, line


def test_what_cannot_work_is_one_line_before_the_training(tdbg, bucket):
    taken = place()
    tdbg.ok("run", "--dir", "first", "--upload", taken, "--quiet", "--", sys.executable, TRAINING, "3")
    (tdbg.directory / "other").write_text("not a run")
    put = subprocess.run([STORE, "put", "other", "s3://bucket/others/file"], cwd=tdbg.directory, env=tdbg.env, timeout=60)
    assert put.returncode == 0
    no_keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    for code, where, env, said in [
            (USAGE, "s3://no-such-bucket/x", {}, "there is no bucket 'no-such-bucket'"),
            (USAGE, "s3://", {}, "no bucket"),
            (USAGE, "gs://bucket/x", {}, "accepted: s3://BUCKET/PREFIX"),
            (USAGE, "s3://bucket/x", {"AWS_PROFILE": "nobody"}, "found 'nobody'"),
            (USAGE, "s3://bucket/x", {"AWS_ENDPOINT_URL": "localhost:1"}, "accepted: http://HOST:PORT"),
            (REFUSED, taken, {}, "holds another run"),
            (REFUSED, "s3://bucket/others", {}, "is not empty"),
            (REFUSED, "s3://bucket/x", no_keys, "no AWS credentials"),
            (REFUSED, "s3://bucket/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
            (REFUSED, "s3://bucket/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached")]:
        script = "open('it trained', 'w')"
        line = tdbg.fails(code, "run", "--upload", where, "--", sys.executable, "-c", script, env=env)
        assert said in line, (where, line)
        assert not (tdbg.directory / "it trained").exists() and not (tdbg.directory / "tdbg-runs").exists(), where


def test_of_two_that_upload_at_once_one_gets_the_prefix(tdbg):
    for name in ("a", "b"):
        tdbg.ok("run", "--dir", name, "--quiet", "--", sys.executable, TRAINING, "3")
    for _ in range(5):
        url = place()
        both = [subprocess.Popen([STORE, "upload", name, url], cwd=tdbg.directory, env=tdbg.env, stderr=subprocess.PIPE,
                                 stdout=subprocess.DEVNULL, text=True) for name in ("a", "b")]
        codes = sorted(process.wait(60) for process in both)
        assert codes == [0, REFUSED], [process.stderr.read() for process in both]
        assert len(tdbg.json("steps", url)["steps"]) == 3


def test_a_copy_of_a_prefix_is_a_run(tdbg):
    url = f"file://{tdbg.directory}/bucket/x"
    tdbg.ok("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "3")
    shutil.move(tdbg.directory / "bucket/x", tdbg.directory / "copy")
    shutil.rmtree(tdbg.directory / "r")
    for where in ("copy", f"file://{tdbg.directory}/copy"):
        assert len(tdbg.json("steps", where)["steps"]) == 3


@pytest.mark.skipif(not (ROOT / ".venv-smdebug/bin/python").exists(), reason="the real smdebug is not installed (tools/setup.sh)")
@pytest.mark.long
def test_the_real_smdebug_reads_the_exported_layout_from_a_copy_of_the_bucket(tdbg):
    url = place()
    (tdbg.directory / "c.yaml").write_text("format: smdebug\n")
    tdbg.ok("run", "--config", "c.yaml", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "12")
    expected = sorted(str(p.relative_to(tdbg.directory / "r")) for p in (tdbg.directory / "r/smdebug").rglob("*") if p.is_file())
    shutil.rmtree(tdbg.directory / "r")
    there = [name for name in objects(tdbg, url) if name.startswith("smdebug/")]
    assert there == expected and there
    for name in there:
        target = tdbg.directory / "fetched" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            assert subprocess.run([STORE, "cat", f"{url}/{name}"], env=tdbg.env, stdout=file, timeout=60).returncode == 0
    script = ("import sys, json; from smdebug.trials import create_trial; t = create_trial(sys.argv[1]); "
              "print(json.dumps([len(t.steps()), sorted(t.tensor_names())]))")
    done = subprocess.run([ROOT / ".venv-smdebug/bin/python", "-c", script, tdbg.directory / "fetched/smdebug"],
                          env=tdbg.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    steps, names = json.loads(done.stdout.splitlines()[-1])
    assert steps == 12 and names
    assert python(tdbg, "t = tdbg.create_trial(sys.argv[1]); print(json.dumps([len(t.steps()), sorted(t.tensor_names())]))",
                  url + "/smdebug") == [steps, names]


def test_a_file_that_cannot_go_keeps_nothing_else_back(tdbg):
    """Somebody put a file into the run's directory whose name no store takes: the training ends as ever, the run arrives."""
    url = f"file://{tdbg.directory}/bucket/x"
    script = tdbg.directory / "t.py"
    script.write_text(f"""
import os, sys
sys.argv = [sys.argv[0], "30", "0.02"]
os.chdir(os.environ["TDBG_RUN"])
for _ in range(5):
    os.mkdir("d" * 240); os.chdir("d" * 240)
open("file", "w").close()
sys.path.insert(0, {str(pathlib.Path(TRAINING).parent)!r})
exec(compile(open({TRAINING!r}).read(), {TRAINING!r}, "exec"))
""")
    began = time.monotonic()
    done = tdbg("run", "--dir", "r", "--upload", url, "--", sys.executable, script)
    assert done.returncode == 0 and "all of the run is in" not in done.stderr, done.stderr
    assert done.stderr.count("1 file (") == 1 and f"tdbg upload {tdbg.directory}/r {url}" in done.stderr, done.stderr
    assert time.monotonic() - began < 45, "it is tried once, not for ten minutes"
    assert len(tdbg.json("steps", url)["steps"]) == 30
    state = json.loads((tdbg.directory / "bucket/x/tdbg-upload.json").read_text())
    assert not state["complete"] and not state["following"]
    assert "1 file (" in tdbg.fails(REFUSED, "upload", "r", url)
    shutil.rmtree(tdbg.directory / "r" / ("d" * 240))
    assert tdbg.json("upload", "r", url)["url"] == url
    assert json.loads((tdbg.directory / "bucket/x/tdbg-upload.json").read_text())["complete"]


def uploader(tdbg):
    return next((pid for pid, line in processes_marked(tdbg.mark) if "tdbg-store upload" in line), None)


def test_an_uploader_that_was_killed_is_started_again_and_loses_nothing(tdbg):
    """As by a machine without memory, more than once; the successor has the prefix at once, and not after half a minute."""
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "60", "0.1", stderr=subprocess.PIPE)
    tdbg.wait_for("r/0/worker_0/worker.json")
    first = eventually(lambda: uploader(tdbg))
    os.kill(first, signal.SIGKILL)
    second = eventually(lambda: (pid := uploader(tdbg)) != first and pid)
    os.kill(second, signal.SIGKILL)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 0 and said.count("ended by signal 9, and is started again") == 1, said
    assert f"all of the run is in {url}" in said and said.count("signal 9") == 1, said
    assert len(tdbg.json("steps", url)["steps"]) == 60


def test_an_uploader_that_is_killed_whenever_it_is_started_is_said_with_the_command_that_sends_the_rest(tdbg, monkeypatch):
    """Its successors are a script that stands in its place and ends as they would."""
    url = place()
    stand_in = tdbg.directory / "home/tdbg-store"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\ncase "$*" in *--uploader*) kill -9 $$ ;; esac\nexec "{STORE}" "$@"\n')
    stand_in.chmod(0o755)
    (stand_in.parent / "tdbg").symlink_to(pathlib.Path(tdbg.env["TDBG_HOME"]) / "tdbg")
    with monkeypatch.context() as changed:
        changed.setitem(tdbg.env, "TDBG_HOME", str(stand_in.parent))
        job = tdbg.start("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "40", "0.1", stderr=subprocess.PIPE)
    tdbg.wait_for("r/0/worker_0/worker.json")
    os.kill(eventually(lambda: uploader(tdbg)), signal.SIGKILL)
    said = " ".join(job.communicate(timeout=60)[1].split())  # whatever width a line has
    assert job.returncode == 0 and said.count("ended by signal 9, and is started again") == 1, said
    assert said.count("whenever it was started") == 1 and f"'{url}' sends the rest" in " ".join(said.split()), said
    assert len(tdbg.json("steps", "r")["steps"]) == 40
    tdbg.ok("upload", "r", url)  # and waits for no sign of life of a process of this machine that is gone
    assert len(tdbg.json("steps", url)["steps"]) == 40


def test_a_batch_system_that_signals_every_process_of_a_job_loses_nothing(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "100000", "0.02", stderr=subprocess.PIPE)
    tdbg.wait_for("r/0/worker_0/worker.json")
    eventually(lambda: "run.json" in objects(tdbg, url))
    eventually(lambda: tdbg.json("steps", "r")["steps"])    # on a busy machine the first one comes long after its worker
    for pid, _ in sorted(processes_marked(tdbg.mark), reverse=True):
        with contextlib.suppress(ProcessLookupError):       # a helper that has just ended
            os.kill(pid, signal.SIGTERM)
    said = job.communicate(timeout=60)[1]
    assert f"all of the run is in {url}" in said, said
    assert len(tdbg.json("steps", url)["steps"]) == len(tdbg.json("steps", "r")["steps"]) > 0


@pytest.mark.long
def test_who_looks_after_a_job_again_uploads_it_too(tdbg):
    """At once, while the dead launcher's uploader may still have the prefix."""
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "200", "0.05",
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tdbg.wait_for("r/0/worker_0/worker.json")
    eventually(lambda: "run.json" in objects(tdbg, url))
    job.kill()
    job.wait()
    resumed = tdbg("resume", "r", timeout=120)
    assert resumed.returncode == 0 and f"all of the run is in {url}" in resumed.stderr, resumed.stderr
    assert len(tdbg.json("steps", url)["steps"]) == 200


def test_a_run_that_is_sent_by_hand_while_it_trains_goes_on_for_its_readers_and_can_be_sent_again(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--quiet", "--", sys.executable, TRAINING, "100000", "0.05")
    try:
        tdbg.wait_for("r/0/worker_0/worker.json")
        sent = tdbg.ok("upload", "r", url)
        assert "the run goes on; tdbg upload" in sent.stderr, sent.stderr
        there = tdbg("status", url, "--json")
        assert json.loads(there.stdout)["state"] == "running" and "s ago" in there.stderr and "while it trained" in there.stderr
        assert tdbg.json("upload", "r", url)["complete"] is False
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    assert tdbg.json("upload", "r", url)["complete"] is True
    there = tdbg("status", url, "--json")
    assert json.loads(there.stdout)["state"] == tdbg.json("status", "r")["state"] and not there.stderr


def test_what_is_there_is_not_sent_again(tdbg):
    url = place()
    tdbg.ok("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "30")
    again = tdbg.json("upload", "r", url)
    assert again["files"] <= 1 and again["there"]["files"] > 5, again  # where the journal ends
    (tdbg.directory / "r/plan.json").write_text((tdbg.directory / "r/plan.json").read_text() + " ")
    assert tdbg.json("upload", "r", url)["files"] == again["files"] + 1


def test_a_training_whose_launcher_was_killed_is_uploaded_to_its_end(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--upload", url, "--", sys.executable, TRAINING, "100", "0.1",
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tdbg.wait_for("r/0/worker_0/worker.json")
    eventually(lambda: "run.json" in objects(tdbg, url))
    job.kill()
    job.wait()
    before = len(tdbg.json("steps", url)["steps"])
    eventually(lambda: len(tdbg.json("steps", url)["steps"]) > before + 10)
    assert tdbg.json("status", url)["state"] == "running"
    eventually(lambda: not uploader(tdbg))
    assert len(tdbg.json("steps", url)["steps"]) == 100 and tdbg.json("status", url)["state"] == tdbg.json("status", "r")["state"]


def test_readers_of_the_bucket_are_not_told_that_a_training_which_goes_on_is_over(tdbg):
    """smdebug's word for that is a file: there once the job is over, and gone before it trains again."""
    end = tdbg.directory / "bucket/x/smdebug/training_job_end.ts"
    (tdbg.directory / "t.py").write_text(f"""
import os, runpy, sys
print("over" if os.path.exists({str(end)!r}) else "goes on", file=open("told", "a"))
sys.argv = ["ship_run.py", "8"]
runpy.run_path({TRAINING!r}, run_name="__main__")
""")
    tdbg.ok("run", "--dir", "r", "--format", "smdebug", "--upload", f"file://{tdbg.directory}/bucket/x", "--", sys.executable, "t.py")
    assert end.exists()
    tdbg.ok("resume", "r")
    assert (tdbg.directory / "told").read_text() == "goes on\n" * 2 and end.exists()


DENIES = """
import boto3, json, sys
iam = boto3.client("iam", region_name="us-east-1")
iam.create_user(UserName="reader")
key = iam.create_access_key(UserName="reader")["AccessKey"]
iam.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"}]}))
print(json.dumps({"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}))
"""


def test_who_may_not_write_hears_it_once_and_before_anything_is_made(tdbg):
    reader = json.loads(subprocess.run([sys.executable, "-c", DENIES], env=tdbg.env, capture_output=True, text=True, check=True).stdout)
    before = sorted(tdbg.directory.iterdir())
    url = place()
    done = tdbg("run", "--upload", url, "--", "touch", "trained", env=reader, timeout=60)
    assert done.returncode == REFUSED and done.stderr.count("\n") == 1, done.stderr
    assert "s3:PutObject" in done.stderr
    assert sorted(tdbg.directory.iterdir()) == before
    assert objects(tdbg, url) == []     # nor is anything left by who may
    tdbg.ok("run", "--quiet", "--dir", "r", "--upload", url, "--", "true")
    assert not [name for name in objects(tdbg, url) if "probe" in name]


def test_what_a_rehearsed_attempt_keeps_for_itself_stays_here(tdbg):
    """$TMPDIR of a rehearsal lies in the run, and holds whatever the script puts there."""
    url = f"file://{tdbg.directory}/bucket/x"
    tdbg.ok("run", "--dir", "r", "--quiet", "--", sys.executable, TRAINING, "3")
    (tdbg.directory / "r/0/tmp/below").mkdir(parents=True)
    (tdbg.directory / "r/0/tmp/below/secret").write_text("x")
    tdbg.ok("upload", "r", url)
    assert not list((tdbg.directory / "bucket").rglob("secret"))
    assert len(tdbg.json("steps", url)["steps"]) == 3


def test_a_run_of_more_segments_than_a_process_may_have_files(tdbg):
    url = f"file://{tdbg.directory}/bucket/x"
    (tdbg.directory / "t.py").write_text("""
import numpy as np
from tdbg._capture import Run
run = Run.open()
weight = run.define("w", "w", "weight", "linear", "float32", [64, 1024])
for step in range(160):
    run.begin_step(1)
    run.put_array(weight, np.full((64, 1024), step, np.float32))
    run.end_step()
run.end("completed")
""")
    (tdbg.directory / "c.yaml").write_text(
        "journal: {size: 1MiB}\nwhen_full: block\ncollections:\n  w: {include_regex: [w], raw: true, save_interval: 1}\n")
    tdbg.ok("run", "--config", "c.yaml", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, "t.py",
            env={"PYTHONPATH": tdbg.env["TDBG_HOME"]})
    few = 40
    assert len(list((tdbg.directory / "bucket").rglob("*.safetensors"))) > few
    read = subprocess.run([BINARY, "show", url, "w", "--json"], env=tdbg.env, cwd=tdbg.directory, capture_output=True, text=True,
                          timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)))
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout) == tdbg.json("show", "r", "w")
