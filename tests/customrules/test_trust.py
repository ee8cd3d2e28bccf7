"""Whom a run may command: opening somebody's run executes nothing, writes nothing outside of it, and tells no secret."""

import json
import os
import shutil
import stat
import time
import types

import pytest

from judging import Judge, write_run

SOMEBODY = 12345
RULE = """
import pathlib
import tdbg
pathlib.Path(__file__).with_name("loaded").touch()
class Grows(tdbg.Rule):
    needs = tdbg.needs("gradients")
    def judge(self, step):
        return False
"""


@pytest.fixture
def run(recorded, tmp_path, monkeypatch):
    """A run of the user's own, with a rule of a file and a command."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    judge = Judge(tmp_path, tmp_path / "run")
    judge.file("rule.py", RULE)
    lay_out(judge, "--rule-file", f"{tmp_path}/rule.py:Grows", "--rule", "exploding_tensor",
            "--rule", "exploding_tensor", "name=Second", "on_issue=stop", "--on-issue", f"exec:touch {tmp_path}/executed")
    (tmp_path / "loaded").unlink()
    return judge


def lay_out(judge, *words):
    done = judge("run", "--dir", judge.run, *words, "--quiet", "--", "true")
    assert done.returncode == 0, done.stderr
    write_run(judge.run)


def loaded(run):
    return (run.directory / "loaded").exists()


def check(run, *words):
    """(names of the rules that were judged, stderr) of `tdbg check --own`"""
    done = run("check", run.run, "--own", "--json", *words)
    assert done.returncode in (0, 1, 8), done.stderr
    assert all(len(line) <= 100 or " " not in line.strip() for line in done.stderr.splitlines()), done.stderr
    return {rule["RuleConfigurationName"] for rule in json.loads(done.stdout)["rules"]}, unbroken(done.stderr)


def unbroken(said):
    """A note is broken into lines of 100 columns."""
    return said.replace("\n      ", " ")


def is_left_out(run, why):
    names, said = check(run)
    assert not loaded(run) and names == {"ExplodingTensor", "Second"}
    line, = said.splitlines()
    assert line.startswith("tdbg: rule Grows is left out, and ") and why in line and "--trust" in line
    names, said = check(run, "--trust")
    assert loaded(run) and "Grows" in names and said == ""


def give_away(run):
    if os.geteuid() != 0:
        pytest.skip("only root can make a run of another user's")
    for path in (run.run, *run.run.rglob("*")):
        os.chown(path, SOMEBODY, SOMEBODY)


def test_ones_own_run_is_judged_by_ones_own_rules(run):
    names, said = check(run)
    assert "Grows" in names and loaded(run) and said == ""
    assert stat.S_IMODE((run.directory / "state" / "tdbg" / "key").stat().st_mode) == 0o600


def test_a_rule_file_that_changed_is_not_run(run):
    run.file("rule.py", RULE + "# another one\n")
    is_left_out(run, "has changed since the run was made")


def test_a_run_of_another_user_is_not_obeyed(run):
    give_away(run)
    is_left_out(run, "the run is another user's (uid 12345)")


@pytest.mark.parametrize("path, mode", [("run", 0o777), ("run/rules.json", 0o666), ("rule.py", 0o666)])
def test_what_others_may_write_is_not_obeyed(run, path, mode):
    (run.directory / path).chmod(mode)
    is_left_out(run, "others may write")


def test_rules_that_somebody_else_recorded_are_not_obeyed(run):
    """What an unpacked archive is: every file belongs to who unpacked it."""
    rules = run.run / "rules.json"
    rules.write_text(rules.read_text().replace('"stop"', '"checkpoint_stop"'))
    is_left_out(run, "changed since")


def test_a_seal_of_another_user_is_none(run, monkeypatch):
    (run.directory / "state" / "tdbg" / "key").write_bytes(b"k" * 32)
    is_left_out(run, "recorded elsewhere")


def test_without_a_key_opening_a_run_makes_none(run):
    key = run.directory / "state" / "tdbg" / "key"
    key.unlink()
    is_left_out(run, f"is missing: {key}")
    assert not key.exists()


def test_a_home_that_keeps_no_key_stops_no_training(recorded, tmp_path):
    judge = Judge(tmp_path, tmp_path / "run")
    judge.env["XDG_STATE_HOME"] = "/dev/null/state"
    file = judge.file("rule.py", RULE)
    lay_out(judge, "--rule", "exploding_tensor", "--rule", "exploding_tensor", "name=Second",
            "--rule-file", f"{file}:Grows")
    (tmp_path / "loaded").unlink()
    is_left_out(judge, "the run has no seal")


def test_a_rule_of_ones_own_is_laid_out_for_attach(recorded, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    judge = Judge(tmp_path, tmp_path / "run")
    judge.file("rule.py", RULE)
    config = judge.file("c.yaml", "rules:\n  - rule_file: rule.py:Grows\n")
    done = judge("plan", "--dir", judge.run, "--config", config)
    assert done.returncode == 0, done.stderr
    (tmp_path / "loaded").unlink()
    write_run(judge.run)
    names, said = check(judge)
    assert names == {"Grows"} and loaded(judge) and said == ""


def test_watching_a_run_of_another_user_performs_nothing(run, tmp_path):
    done = run("watch", run.run, "--quiet")
    assert done.returncode == 0 and done.stderr == ""
    give_away(run)
    done = run("watch", run.run, "--quiet")
    assert done.returncode == 8     # a rule was not judged
    lines = unbroken(done.stderr).splitlines()
    assert [line.split(" is left out")[0] for line in lines] == [
        f"tdbg: action exec:touch {tmp_path}/executed of rule exploding_tensor",
        "tdbg: action stop of rule Second", "tdbg: rule Grows"]
    assert all("another user's" in line for line in lines)


@pytest.mark.parametrize("mine", [True, False])
def test_an_action_is_performed_for_its_owner_only(recorded, tmp_path, mine):
    judge = Judge(tmp_path, tmp_path / "run")
    judge.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    lay_out(judge, "--rule", "all_zero", "tensor_regex=gradient/a", "--on-issue", f"exec:touch {tmp_path}/executed")
    if not mine:
        give_away(judge)
    done = judge("watch", judge.run, "--quiet")
    assert (tmp_path / "executed").exists() == (mine and done.returncode == 1), done.stderr


def test_a_secret_is_not_recorded_and_asked_for_again(recorded, tmp_path):
    judge = Judge(tmp_path, tmp_path / "run")
    judge.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    hook = "https://me:pa55word@hooks.example/x?token=t0psecret"
    file = judge.file("rule.py", RULE)
    lay_out(judge, "--rule", "exploding_tensor", "--rule-file", f"{file}:Grows", "--on-issue", "stop",
            "--on-issue", f"webhook:{hook}", "--on-issue", "exec:post --token s3cret1 x")
    text = "".join(path.read_text() for path in judge.run.glob("*.json*"))
    assert "pa55word" not in text and "t0psecret" not in text and "s3cret1" not in text
    assert "webhook:https://me:[redacted]@hooks.example/x?token=[redacted]" in text
    done = judge("watch", judge.run, "--quiet")
    assert done.returncode == 0
    assert len(unbroken(done.stderr).splitlines()) == 4
    for line in unbroken(done.stderr).splitlines():
        assert "recorded without its secret; give it again, with --on-issue" in line


def test_no_link_out_of_a_run_is_written_through(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("precious")
    (run.run / "events.jsonl").unlink(missing_ok=True)
    (run.run / "events.jsonl").symlink_to(outside / "mine")
    done = run("watch", run.run, "--quiet")
    assert "events cannot be written" in done.stderr and "symbolic link" in done.stderr
    (run.run / "control").unlink()
    (run.run / "control").symlink_to(outside / "mine")
    done = run("stop", run.run)
    assert done.returncode != 0
    (run.run / "rule-output").symlink_to(outside)
    run("check", run.run, "--rule", "create_xgboost_report")
    for to in ("tensorboard", "smdebug"):
        (run.run / to).symlink_to(outside)
        done = run("export", run.run, "--to", to, run.run / to / "x", "--follow", "--quiet")
        assert done.returncode != 0 and "symbolic link" in done.stderr, done.stderr
    assert [path.name for path in outside.iterdir()] == ["mine"]
    assert (outside / "mine").read_text() == "precious"


@pytest.mark.parametrize("name", ["open.lock", "1", "1/worker_0", "1/worker_0/segments", "1/worker_0/lock"])
def test_a_training_writes_through_no_link(recorded, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = shutil.copytree(recorded, tmp_path / "run") / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(outside / "new" if link.suffix or link.name == "lock" else outside)
    started = time.monotonic()
    with pytest.raises(Exception, match="symbolic link"):
        write_run(tmp_path / "run")
    assert not list(outside.iterdir()) and time.monotonic() - started < 10


def test_a_doorbell_that_is_a_link_is_not_rung(recorded, tmp_path):
    worker = shutil.copytree(recorded, tmp_path / "run") / "1" / "worker_0"
    worker.mkdir(parents=True)
    (worker / "doorbell").symlink_to(tmp_path / "mine")
    write_run(tmp_path / "run")
    assert not (tmp_path / "mine").exists() and list((worker / "segments").iterdir())


def test_the_word_of_a_training_that_recorded_nothing_is_its_users_alone(recorded, tmp_path, monkeypatch):
    from tdbg.adaptors.watch import Watch

    silent = types.SimpleNamespace(what_was_seen=lambda: "no loss")
    attempt = tmp_path / "run" / "0"
    attempt.mkdir(parents=True)
    attempt.parent.chmod(0o700)
    monkeypatch.setenv("TDBG_RUN", str(attempt.parent))
    monkeypatch.delenv("TDBG_ATTEMPT", raising=False)
    Watch._leave_word(silent)
    word, = attempt.iterdir()
    assert word.read_text() == "no loss\n" and stat.S_IMODE(word.stat().st_mode) == 0o600
    word.unlink()
    word.symlink_to(tmp_path / "mine")
    with pytest.raises(OSError):
        Watch._leave_word(silent)
    assert not (tmp_path / "mine").exists()


def test_names_of_a_run_send_a_terminal_nothing(run):
    bad = "a\x1b[2Jb\u009b2Jc\u202ed\nforged  line"
    events = [{"kind": "rule_status", "name": bad, "rule": bad, "status": "IssuesFound", "details": bad,
               "findings": [{"global_step": 1, "tensor": bad, "worker": bad, "measure": bad, "comparison": bad}]},
              {"kind": "action", "name": bad, "action": bad, "target": bad, "ok": False, "error": bad},
              {"kind": "job_ended", "attempt": 0, "stop": "requested", "stopped_by": bad, "exit_code": 143}]
    (run.run / "events.jsonl").write_text("".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events))
    (run.run / "0" / "worker_0").rename(run.run / "0" / "worker_\x1b[2J\u202e")
    for words in (("status", run.run), ("status", run.run, "--json"), ("ls", run.directory),
                  ("tensors", run.run), ("steps", run.run), ("dump", run.run / "events.jsonl"),
                  ("dump", run.run / "events.jsonl", "--json"), ("check", run.run, "--own"),
                  ("explain", run.run), ("explain", run.run, "--json"), ("metrics", run.run), ("jobs",)):
        done = run(*words)
        said = done.stdout + done.stderr
        assert not {c for c in said if not (c.isprintable() or c == "\n")}, (words, said)
        assert "\nforged" not in said, words
    assert json.loads(run("dump", run.run / "events.jsonl", "--json").stdout)[0]["name"] == bad


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_is_for_its_user_alone(recorded, tmp_path, shared):
    judge = Judge(tmp_path, tmp_path / "runs" / "run")
    config = judge.file("c.yaml", "shared: true\n")
    program = "import sys, pathlib; pathlib.Path('argv').write_text(' '.join(sys.argv[1:]))"
    done = judge("run", "--dir", judge.run, *(["--config", config] if shared else []), "--quiet", "--",
                 "python3", "-c", program, "--token", "t0psecret", "--lr=1")
    assert done.returncode == 0, done.stderr
    write_run(judge.run)
    assert (tmp_path / "argv").read_text() == "--token t0psecret --lr=1"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(judge.run.stat().st_mode) == (0o777 & ~umask if shared else 0o700)
    for path in judge.run.rglob("*"):
        mode = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == mode & (~umask if shared else 0o700), path
        if path.suffix in (".json", ".jsonl"):
            assert "t0psecret" not in path.read_text()
    assert json.loads((judge.run / "run.json").read_text())["command"][-3:] == ["--token", "[redacted]", "--lr=1"]
