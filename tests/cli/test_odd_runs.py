"""Runs whose files are not what they should be: each command still answers, and says what it could not read."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import pytest
from program import BINARY, ROOT

DAMAGED, NOT_JUDGED = 5, 8
RULE = ["--rule", "exploding_tensor"]


def add_line(run, line):
    with open(run / "events.jsonl", "a") as events:
        events.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


JOB_ENDED = {"kind": "job_ended", "attempt": 0, "exit_code": 0, "stop": "none", "wall_nanos": 1}


@pytest.mark.parametrize("field, odd", [("attempt", "0"), ("exit_code", "x"), ("stop", 1), ("stopped_by", []),
                                        ("wall_nanos", 1.5), ("kind", 7)])
def test_an_event_of_another_shape_costs_only_itself(tdbg, golden, field, odd):
    add_line(golden, {**JOB_ENDED, "exit_code": 3})
    add_line(golden, {**JOB_ENDED, field: odd})
    add_line(golden, {"kind": "export_ended", "attempt": 0, "to": 1, "path": None, "ok": "yes", "text": 2})
    report = tdbg.json("status", golden)
    assert report["job"]["exit_code"] == 3 and report["exports"] == []
    assert report["state"] == "failed (exit code 3)"
    assert "golden" in tdbg.ok("ls", golden.parent).stdout


def test_a_word_at_a_workers_end_of_another_shape_is_none(tdbg, golden):
    (golden / "0" / "worker_0" / "ended.json").write_text('{"reason": 5}')
    done = subprocess.run([sys.executable, ROOT / "tests" / "cli" / "ship_run.py", "2", "0", golden], capture_output=True,
                          text=True, timeout=60, env=tdbg.env, cwd=tdbg.directory)
    assert done.returncode == 0, done.stderr
    assert (golden / "1" / "worker_0" / "worker.json").exists()


@contextlib.contextmanager
def training(run):
    """Its worker lives, as far as a reader can tell."""
    with open(run / "0" / "worker_0" / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_run_that_is_out_of_reach_for_a_moment_is_waited_for(tdbg, golden):
    away = golden.with_name("away")
    with training(golden):
        watching = tdbg.start("watch", golden, *RULE, "--quiet", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        tdbg.wait_for(golden / "events.jsonl")
        golden.rename(away)
        time.sleep(2.5)
        assert watching.poll() is None
        away.rename(golden)
        time.sleep(1.5)
        assert watching.poll() is None
    out, err = watching.communicate(timeout=20)
    assert watching.returncode == 0 and "NoIssuesFound, 2 steps judged" in out
    assert err.count("cannot list") == 1, err


@pytest.mark.parametrize("command, code", [(["watch", *RULE], NOT_JUDGED),
                                           (["export", "--follow", "--to", "tensorboard", "out"], 0)])
def test_a_job_that_ended_without_a_worker_is_over(tdbg, command, code):
    tdbg.ok("run", "--quiet", "--dir", "r", "--", "true")
    done = tdbg(command[0], "r", *command[1:], timeout=20)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)


def test_the_next_attempt_of_a_job_that_ended_without_a_worker_is_waited_for(tdbg):
    tdbg.ok("run", "--quiet", "--dir", "r", "--", "true")
    again = tdbg.start("run", "--quiet", "--dir", "r", "--", "sleep", "60")
    tdbg.wait_for("r/1/attempt.json")
    watching = tdbg.start("watch", "r", *RULE, "--quiet", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    assert watching.poll() is None
    again.terminate()
    again.wait(timeout=20)
    watching.communicate(timeout=20)


def test_a_run_whose_worker_cannot_be_read_is_over_when_its_job_is(tdbg, golden):
    (golden / "0" / "worker_0" / "worker.json").write_text("{")
    add_line(golden, JOB_ENDED)
    done = tdbg("watch", golden, *RULE, "--quiet", timeout=20)
    assert done.returncode == NOT_JUDGED, (done.stdout, done.stderr)


def test_an_action_in_the_future_does_not_hold_back_todays(tdbg, golden):
    hit = ["--rule", "vanishing_gradient", "threshold=1e30", "on_issue=exec:touch done"]
    name = json.loads(tdbg("check", golden, *hit, "--json").stdout)["rules"][0]["RuleConfigurationName"]
    for ahead, acts in ((-60, False), (3600, True)):
        add_line(golden, {"kind": "action", "wall_nanos": int((time.time() + ahead) * 1e9), "name": name, "action": "exec",
                          "target": "touch done", "global_step": 12345, "attempt": 0, "ok": True, "millis": 1})
        tdbg("watch", golden, *hit, "--quiet")
        assert (tdbg.directory / "done").exists() == acts, ahead
        (golden / "events.jsonl").unlink()


@pytest.mark.parametrize("seconds", [9223372036854775807, 9223372036854775, 9223372036])
def test_a_grace_of_ages_lets_the_command_end_by_itself(tdbg, seconds):
    (tdbg.directory / "c.yaml").write_text(f"stop_grace_seconds: {seconds}\n")
    running = tdbg.start("run", "--quiet", "--dir", "r", "--config", "c.yaml", "--", "sh", "-c",
                         "trap 'sleep 0.3; touch saved; exit 0' TERM; touch ready; while :; do sleep 0.05; done")
    tdbg.wait_for("ready")
    tdbg("stop", "r")
    running.wait(timeout=20)
    assert (tdbg.directory / "saved").exists()


def without_steps(run):
    segment = next((run / "0" / "worker_0" / "segments").iterdir())
    data = bytearray(segment.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8:8 + length])["step/global"]["data_offsets"]
    for i in range(8 + length + begin, 8 + length + end):
        data[i] ^= 0x5A
    segment.write_bytes(data)
    (run / "0" / "worker_0" / "journal").unlink()


def test_what_cannot_be_read_is_not_called_absent(tdbg, golden):
    without_steps(golden)
    report = tdbg.json("status", golden, code=DAMAGED)
    assert report["damage"] and report["steps"]["all"] == 0
    assert "dropped   nothing" not in tdbg("status", golden).stdout
    assert "damaged" in tdbg.fails(DAMAGED, "show", golden, "gradient/Net_conv1.weight")
    assert "damaged" in tdbg.fails(DAMAGED, "export", golden, "--to", "npz", "out.npz")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may become somebody else")
def test_a_worker_of_another_user_is_said_to_be_unreadable(tdbg, golden):
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        pathlib.Path(place).chmod(0o755)
        run = pathlib.Path(place) / "run"
        shutil.copytree(golden, run)
        add_line(run, JOB_ENDED)
        (run / "0" / "worker_0").chmod(0o700)

        def as_nobody(*arguments):
            return subprocess.run([BINARY, *arguments], cwd=place, env=tdbg.env, capture_output=True, text=True, timeout=20,
                                  user=65534, group=65534, extra_groups=[])

        try:
            done = as_nobody("status", run)
        except OSError as error:
            pytest.skip(f"nobody may not run {BINARY}: {error}")
        assert done.returncode == DAMAGED and "Permission denied" in done.stdout, done
        assert "no process reached a training step" not in done.stdout
        assert as_nobody("show", run, "gradient/Net_conv1.weight").returncode == DAMAGED


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_without_a_step_is_not_one_without_issues(tdbg, ended):
    if ended:
        subprocess.run([sys.executable, ROOT / "tests" / "cli" / "ship_run.py", "0", "0", "p"], check=True, env=tdbg.env,
                       cwd=tdbg.directory)
    else:
        tdbg.ok("plan", "--dir", "p", *RULE)
    for rule in ([], RULE):
        done = tdbg("check", "p", *rule)
        assert done.returncode == NOT_JUDGED, (done.stdout, done.stderr)
        assert "Not judged" in done.stdout or "holds no step" in done.stderr, (done.stdout, done.stderr)


def test_a_default_rule_whose_input_was_lost_is_not_one_without_issues(tdbg):
    tdbg.ok("plan", "--dir", "p", "--budget", "1")
    subprocess.run([sys.executable, ROOT / "tests" / "cli" / "ship_run.py", "3", "0", "p"], check=True, env=tdbg.env,
                   cwd=tdbg.directory)
    for own in ([], ["--own"]):
        done = tdbg("check", "p", *own)
        assert done.returncode == NOT_JUDGED, (done.stdout, done.stderr)
        assert "Profile" in done.stdout and "incomplete" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("file", ["run.json", "events.jsonl", "plan.json", "rules.json", "control", "0/attempt.json",
                                  "0/worker_0/worker.json", "0/worker_0/lock", "0/worker_0/journal", "launcher.lock"])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(tdbg, golden, file):
    (golden / file).unlink(missing_ok=True)
    os.mkfifo(golden / file)
    for command in (["status", golden], ["ls", golden.parent], ["check", golden, *RULE], ["tensors", golden],
                    ["show", golden, "gradient/Net_conv1.weight"], ["dump", golden / file]):
        assert tdbg(*command, timeout=10).returncode in range(9), command


def test_a_configuration_may_come_through_a_pipe(tdbg):
    tdbg.ok("plan", "--dir", "p", "--config", "/dev/stdin", stdin="when_full: block\n")
    assert "block" in (tdbg.directory / "p" / "plan.json").read_text()
