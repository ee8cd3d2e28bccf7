"""Jobs: what `tdbg run` writes down of them, their output, restarts, and what is said of those whose tdbg was killed."""

import contextlib
import json
import os
import pty
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from program import BINARY, ROOT

NOT_FOUND, REFUSED, STOPPED = 4, 6, 3
WAIT = "import time; open('ready', 'w').close(); time.sleep(60)"


def run(tdbg, script, *flags, **kwargs):
    return tdbg("run", "--quiet", "--dir", "r", *flags, "--", sys.executable, "-c", script, **kwargs)


def start(tdbg, script, *flags, **kwargs):
    return tdbg.start("run", "--quiet", "--dir", "r", *flags, "--", sys.executable, "-c", script, **kwargs)


def phases(tdbg, job="r"):
    return [t["phase"] for t in tdbg.json("jobs", job)["transitions"]]


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.05)


def test_a_run_is_a_job_with_its_transitions_and_its_output(tdbg):
    done = run(tdbg, "import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "to stdout\n", "to stderr\n")
    (job,) = tdbg.json("jobs")
    assert job["job"] == "r" and job["status"] == "Failed" and job["exit_code"] == 3 and job["life"] == "ended"
    assert phases(tdbg) == ["Starting", "Training", "Failed"]
    lines = [json.loads(line) for line in tdbg.ok("logs", "r", "--json").stdout.splitlines()]
    assert {(line["stream"], line["text"]) for line in lines} == {("stdout", "to stdout"), ("stderr", "to stderr")}
    assert all(line["step"] == -1 and line["wall_nanos"] > 0 for line in lines)
    assert tdbg.ok("logs", "r").stdout.splitlines() == [line["text"] for line in lines]
    assert "to stdout" in tdbg.ok("logs", "last").stdout
    tdbg.fails(NOT_FOUND, "jobs", "other")
    os.rename(tdbg.directory / "r", tdbg.directory / "moved")
    assert "has no run any more" in tdbg.fails(NOT_FOUND, "resume", "r")
    assert not (tdbg.directory / "r").exists()
    os.rename(tdbg.directory / "moved", tdbg.directory / "r")
    tdbg.fails(2, "logs", "r", "-f", "--around", "3")


def test_what_a_terminal_is_it_stays(tdbg):
    script = ("import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), *os.get_terminal_size(1)); "
              "print('a\\rb', end='', flush=True)")
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    job = start(tdbg, script, stdout=slave, stderr=slave, stdin=subprocess.DEVNULL)
    assert job.wait(20) == 0
    os.close(slave)
    seen = b""
    try:
        while chunk := os.read(master, 1000):
            seen += chunk
    except OSError:
        pass
    assert seen == b"True True 77 33\r\na\rb"
    assert tdbg.ok("logs", "r").stdout == "True True 77 33\nb\n"
    piped = run(tdbg, "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())")
    assert piped.stdout == "False False\n"


def test_a_reader_that_goes_away_ends_the_command_as_it_does_without_us(tdbg):
    job = start(tdbg, "while True: print('y' * 1000)", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    job.stdout.read(10)
    job.stdout.close()
    assert job.wait(20) in (1, 120, 128 + signal.SIGPIPE)


def test_of_many_that_start_in_one_second_each_trains_into_a_run_of_its_own(tdbg):
    started = [tdbg.start("run", "--quiet", "--", "sh", "-c", f"echo trained {n}", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for n in range(12)]
    answers = [one.communicate(timeout=60) for one in started]
    assert [one.returncode for one in started] == [0] * 12, answers
    assert sorted(out for out, _ in answers) == sorted(f"trained {n}\n" for n in range(12))
    assert len(list((tdbg.directory / "tdbg-runs").iterdir())) == 12
    tdbg.fails(127, "run", "--", "no-such-command-at-all")
    assert len(list((tdbg.directory / "tdbg-runs").iterdir())) == 12, "a run that never began leaves nothing"


def test_a_word_that_names_a_run_here_and_another_job_names_neither(tdbg):
    for project in ("one", "two"):
        (tdbg.directory / project).mkdir()
        tdbg.ok("run", "--quiet", "--dir", "a", "--", "sh", "-c", f"echo {project}; echo {project} >> trained",
                cwd=tdbg.directory / project)
    first, here = tdbg.directory / "one" / "a", tdbg.directory / "two"
    for command in ("resume", "stop", "interrupt", "jobs", "logs"):
        said = " ".join(tdbg.fails(2, command, "a", cwd=here).split())
        assert "a run here and the name of another job" in said and f"write ./a or {first}" in said, (command, said)
    assert tdbg.ok("logs", "./a", cwd=here).stdout == "two\n" and tdbg.ok("logs", str(first), cwd=here).stdout == "one\n"
    assert tdbg.json("jobs", "./a", cwd=here)["run"] == str(here / "a")
    tdbg.ok("resume", "./a", cwd=here)
    assert (here / "trained").read_text() == "two\ntwo\n" and (tdbg.directory / "one" / "trained").read_text() == "one\n"
    tdbg.ok("resume", "a", cwd=tdbg.directory)      # nothing here is called so: the job's name
    assert (tdbg.directory / "one" / "trained").read_text() == "one\none\n"


def test_a_job_whose_run_is_gone_is_told_to_be_that(tdbg):
    """And no other name is offered for it, nor its own."""
    for name in ("job-6", "job-7", "job-8"):
        tdbg.ok("run", "--quiet", "--dir", name, "--", "true")
    shutil.rmtree(tdbg.directory / "job-7")
    for word in ("job-7", tdbg.directory / "job-7"):
        said = tdbg.fails(4, "status", word)
        assert f"the run of job 'job-7' is gone: it was in {tdbg.directory}/job-7; tdbg jobs job-7 says" in said, said
    assert tdbg.json("jobs", "job-7")["status"] == "Completed"
    assert "did you mean 'job-6'?" in tdbg.fails(4, "status", "job6")
    (tdbg.directory / "job-8").rename(tdbg.directory / "kept")
    shutil.copytree(tdbg.directory / "job-6", tdbg.directory / "job-8")
    (tdbg.directory / "elsewhere").mkdir()
    assert "where another one is now" in tdbg.fails(4, "status", "job-8", cwd=tdbg.directory / "elsewhere")


def test_what_runs_without_a_launcher_is_stopped(tdbg):
    job = start(tdbg, WAIT)
    tdbg.wait_for("ready")
    pid = tdbg.json("jobs", "r")["pid"]
    job.kill()
    job.wait(20)
    assert "without a launcher" in tdbg.ok("jobs").stdout
    assert "asked" in tdbg.ok("stop", "r").stderr
    until(lambda: not os.path.exists(f"/proc/{pid}") or tdbg.json("jobs", "r")["life"] == "ended")
    tdbg.fails(REFUSED, "stop", "r")


def test_a_launcher_and_its_keeper_of_the_log_may_be_killed(tdbg):
    script = ("import itertools, os, time\nopen('ready', 'w').close()\nfor i in itertools.count():\n"
              "  print('line', i, flush=True); time.sleep(0.05)\n  if os.path.exists('go'): break\n"
              "print('the last line', flush=True)\nopen('whole', 'w').close()")
    job = start(tdbg, script, stdout=subprocess.DEVNULL)
    tdbg.wait_for("ready")
    keepers = [int(p) for p in subprocess.run(["pgrep", "-x", "tdbg-log", "-P", str(job.pid)],
                                              capture_output=True, text=True).stdout.split()]
    assert len(keepers) == 1
    os.kill(keepers[0], signal.SIGKILL)
    kept = len(tdbg.ok("logs", "r").stdout)
    until(lambda: len(tdbg.ok("logs", "r").stdout) > kept)  # another one has taken its place
    job.kill()
    job.wait(20)
    state = tdbg.json("jobs", "r")
    assert state["life"] == "unwatched" and state["phase"] == "Training"
    assert "without a launcher" in tdbg.ok("jobs").stdout
    assert "still trains" in tdbg.fails(REFUSED, "resume", "r", "--", "true")
    (tdbg.directory / "go").touch()
    tdbg.wait_for("whole")  # nothing that it printed has ended it
    until(lambda: tdbg.json("jobs", "r")["life"] == "ended")
    state = tdbg.json("jobs", "r")
    assert state["phase"] == "Failed" and "launcher was killed" in state["message"]
    assert tdbg.ok("logs", "r").stdout.endswith("the last line\n")
    (tdbg.directory / "whole").unlink()
    tdbg.ok("resume", "r", "--", sys.executable, "-c", "print('again')")
    state = tdbg.json("jobs", "r")
    assert state["phase"] == "Completed" and [a["attempt"] for a in state["attempts"]] == [0, 1]


def test_a_launcher_that_is_killed_with_its_reader_takes_no_training_with_it(tdbg):
    """A terminal that closes, an ssh that is cut, a script that is killed with all of its pipe."""
    script = ("import time\nopen('ready', 'w').close()\n"
              "for i in range(40): print('line', i, flush=True); time.sleep(0.05)\nopen('whole', 'w').close()")
    job = start(tdbg, script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    tdbg.wait_for("ready")
    job.kill()
    job.wait(20)
    job.stdout.close()
    tdbg.wait_for("whole")
    until(lambda: tdbg.json("jobs", "r")["life"] == "ended")
    assert tdbg.ok("logs", "r").stdout == "".join(f"line {i}\n" for i in range(40))


def test_a_detached_job_survives_and_is_followed_and_stopped(tdbg):
    done = run(tdbg, "print('hello', flush=True); " + WAIT, "--detach")
    assert done.returncode == 0 and "tdbg logs r -f" in done.stderr
    tdbg.wait_for("ready")
    assert tdbg.json("jobs", "--running")[0]["detached"]
    follower = tdbg.start("logs", "r", "-f", stdout=subprocess.PIPE)
    assert follower.stdout.readline() == "hello\n"
    assert "another tdbg" in run(tdbg, "pass").stderr     # two launchers for one job: the second says so
    tdbg.ok("stop", "r")
    assert follower.wait(20) == 0
    until(lambda: tdbg.json("jobs", "r")["status"] == "Stopped")
    assert phases(tdbg) == ["Starting", "Training", "Stopping", "Stopped"]
    tdbg.fails(2, "run", "--detach", "--no-log", "--", "true")
    assert run(tdbg, "pass", "--detach", "--rule", "no_such_rule").returncode == 2


def test_it_is_started_again_as_the_policy_says(tdbg):
    script = "import os, sys; print('attempt', os.environ['TDBG_ATTEMPT']); sys.exit(7 if os.environ['TDBG_ATTEMPT'] < '2' else 0)"
    assert run(tdbg, script, "--max-restarts", 5).returncode == 0
    job = tdbg.json("jobs", "r")
    assert [a["exit_code"] for a in job["attempts"]] == [7, 7, 0]
    assert phases(tdbg).count("Interrupted") == 2
    assert tdbg.ok("logs", "r").stdout == "attempt 0\nattempt 1\nattempt 2\n"
    assert tdbg.ok("logs", "r", "--attempt", 1).stdout == "attempt 1\n"
    assert run(tdbg, "import sys; sys.exit(7)", "--max-restarts", 1, "--restart-on", 8).returncode == 7
    assert run(tdbg, "import sys; sys.exit(7)", "--max-restarts", 2).returncode == 7
    kill = "import os; os.kill(os.getpid(), 15) if os.environ['TDBG_ATTEMPT'] < '8' else None"
    assert run(tdbg, kill, "--max-restarts", 3, "--restart-on", "preempted").returncode == 0
    tdbg.fails(2, "run", "--max-restarts", 1, "--restart-on", "often", "--", "true")
    tdbg.fails(2, "run", "--restart-on", "signal", "--", "true")


def test_an_interruption_is_a_restart_that_keeps_the_checkpoints(tdbg):
    script = ("import os, signal, sys, time\n"
              "d = os.environ['TDBG_CHECKPOINT_DIR']\n"
              "n = len(os.listdir(d))\n"
              "if n == 2: sys.exit(0)\n"
              "def save(*_): open(f'{d}/{n}', 'w').close(); sys.exit(0)\n"
              "signal.signal(signal.SIGTERM, save)\n"
              "open(f'ready{n}', 'w').close(); time.sleep(60)\n")
    job = start(tdbg, script, "--checkpoint-dir", "c")
    for n in range(2):
        tdbg.wait_for(f"ready{n}")
        tdbg.ok("interrupt", "r", "--notice", 20)
    assert job.wait(20) == 0
    assert sorted(os.listdir(tdbg.directory / "c")) == ["0", "1"]
    assert phases(tdbg) == ["Starting", "Training", "Interrupted", "Restarting", "Training", "Interrupted", "Restarting",
                            "Training", "Completed"]
    tdbg.fails(REFUSED, "interrupt", "r")


def test_who_asks_for_the_end_during_an_interruption_gets_no_restart(tdbg):
    script = ("import signal, time; signal.signal(15, lambda *a: open('asked', 'w').close())\n"
              "open('ready', 'w').close(); time.sleep(60)")
    for end, code, phase in ((lambda job: tdbg.ok("stop", "r"), STOPPED, "Stopped"),
                             (lambda job: job.terminate(), 128 + signal.SIGKILL, "Stopped")):
        job = start(tdbg, script)
        tdbg.wait_for("ready")
        tdbg.ok("interrupt", "r", "--notice", 4)    # who asks for the end needs a tenth of a second
        tdbg.wait_for("asked")
        end(job)
        for name in ("ready", "asked"):
            (tdbg.directory / name).unlink()
        assert job.wait(20) == code
        assert phases(tdbg)[-1] == phase and not (tdbg.directory / "ready").exists()


def test_a_command_that_fails_at_once_is_started_again_ever_later_and_may_be_stopped_meanwhile(tdbg):
    job = start(tdbg, "import sys; sys.exit(1)", "--max-restarts", 1000000)
    until(lambda: len(tdbg.json("jobs", "r")["attempts"]) >= 4 if (tdbg.directory / "r/run.json").exists() else False)
    until(lambda: phases(tdbg)[-1] == "Interrupted")
    tdbg.ok("stop", "r")
    assert job.wait(20) == STOPPED
    assert phases(tdbg)[-1] == "Stopped" and len(tdbg.json("jobs", "r")["attempts"]) < 10
    events = [json.loads(line) for line in (tdbg.directory / "r/events.jsonl").read_text().splitlines()]
    last = [event for event in events if event["kind"] == "job_ended"][-1]
    assert (last["stop"], last["stopped_by"], last["exit_code"]) == ("requested", "user", 1)


def test_a_daemon_that_holds_one_stream_keeps_nobody_waiting_at_the_other(tdbg):
    script = ("import os, time\nif os.fork() == 0:\n    os.setsid(); os.dup2(os.open('/dev/null', 1), 1)\n"
              "    while not os.path.exists('end'): time.sleep(0.05)\nelse: print('done')")
    job = start(tdbg, script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert job.communicate(timeout=6)[0] == "done\n"
    finally:
        (tdbg.directory / "end").touch()


def test_a_stream_that_nobody_reads_holds_up_only_who_writes_there(tdbg):
    """Two processes, as with torchrun: one's output is full, the other's progress goes on."""
    script = ("import os, time\nif os.fork() == 0:\n    os.close(2); os.write(1, b'x' * 1000000); os._exit(0)\n"
              "os.close(1); time.sleep(0.4)\nfor i in range(5): os.write(2, b'progress %d\\n' % i)\nos.wait()")
    job = start(tdbg, script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told = queue.SimpleQueue()
    threading.Thread(target=lambda: [told.put(line) for line in job.stderr], daemon=True).start()
    try:
        lines = [told.get(timeout=8) for _ in range(5)]
    finally:
        output = job.stdout.read()
    assert lines == [f"progress {i}\n" for i in range(5)]
    assert output == "x" * 1000000 and job.wait(8) == 0


def test_a_keeper_of_the_log_that_is_stopped_stops_no_training(tdbg):
    job = start(tdbg, "import os, time\nopen('ready', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
                      "print('x' * 1000000)", stdout=subprocess.DEVNULL)
    tdbg.wait_for("ready")
    keeper = int(subprocess.run(["pgrep", "-x", "tdbg-log", "-P", str(job.pid)], capture_output=True, text=True).stdout)
    os.kill(keeper, signal.SIGSTOP)
    (tdbg.directory / "go").touch()
    try:
        assert job.wait(8) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGCONT)


def test_a_log_that_cannot_be_kept_is_said_once_and_stops_no_training(tdbg):
    run(tdbg, "pass", "--no-log")
    (tdbg.directory / "r/logs").write_text("in the way")
    done = run(tdbg, "import os, sys; print('out'); sys.exit(os.environ['TDBG_ATTEMPT'] == '1')", "--max-restarts", 1)
    assert (done.returncode, done.stdout) == (0, "out\nout\n")
    assert done.stderr.count("output is not kept") == 1


def test_a_time_limit_stops_it(tdbg):
    assert run(tdbg, WAIT, "--max-runtime", "1s").returncode == STOPPED
    assert tdbg.json("jobs", "r")["phase"] == "MaxRuntimeExceeded"
    assert tdbg.json("status", "r")["job"]["stopped_by"] == "--max-runtime"
    tdbg.fails(2, "run", "--max-runtime", "soon", "--", "true")


def test_a_registry_that_cannot_be_used_stops_no_training(tdbg):
    state = tdbg.directory / ".state" / "tdbg"
    state.mkdir(parents=True)
    (state / "jobs.sqlite").write_bytes(b"x" * 10000)
    done = run(tdbg, "print('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert len([line for line in done.stderr.splitlines() if "tdbg jobs" in line]) == 1
    tdbg.fails(5, "jobs")
    assert tdbg.ok("logs", "r").stdout == "trained\n"


@pytest.mark.parametrize("cut", ["jobs.sqlite", "jobs.sqlite-journal", "jobs.sqlite-shm"])
def test_a_registry_that_is_cut_short_meanwhile_stops_no_job(tdbg, cut):
    path = tdbg.directory / ".state" / "tdbg" / cut
    done = run(tdbg, f"open({str(path)!r}, 'w').close(); print('trained'); raise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "trained\n")
    assert tdbg.json("status", "r")["job"]["exit_code"] == 3


def test_secrets_are_not_kept(tdbg):
    done = run(tdbg, "import os; print(os.environ['MY_TOKEN'], os.environ['PLAIN'])", "--secret", "PLAIN",
               env={"MY_TOKEN": "abcdef123456", "PLAIN": "plainvalue"})
    assert done.stdout == "abcdef123456 plainvalue\n"
    for path in [*(tdbg.directory / "r").rglob("*"), *(tdbg.directory / ".state").rglob("*")]:
        if path.is_file():
            assert b"abcdef123456" not in path.read_bytes(), path
    assert tdbg.ok("logs", "r").stdout == "[redacted] [redacted]\n"
    late = "import time; print('ab', end='', flush=True); time.sleep(0.8); print('cdef123456')"
    assert run(tdbg, late, env={"MY_TOKEN": "abcdef123456"}).stdout == "abcdef123456\n"
    assert tdbg.ok("logs", "r", "--attempt", 1).stdout == "[redacted]\n"


def test_the_commands_of_the_document_do_what_it_says(tdbg):
    (tdbg.directory / "train.py").write_text("import os, time\nopen('ready', 'w').close()\nprint('trains', flush=True)\n"
                                             "assert os.environ['TDBG_CHECKPOINT_DIR']\ntime.sleep(60)")
    block = (ROOT / "docs/jobs.md").read_text().split("```sh\n")[1].split("```")[0]
    commands = [shlex.split(line, comments=True)[1:] for line in block.strip().splitlines()]
    assert [words[0] for words in commands] == ["run", "jobs", "jobs", "logs", "logs", "stop", "resume"]
    follower = None
    for words in commands:
        if "-f" in words:
            follower = tdbg.start(*words, stdout=subprocess.PIPE)
            continue
        tdbg.ok(*[sys.executable if word == "python" else word for word in words])
        if words[0] in ("run", "resume"):
            tdbg.wait_for("ready")
            (tdbg.directory / "ready").unlink()
        if words[0] == "stop":
            assert follower.communicate(timeout=20)[0] == "trains\n"
            until(lambda: tdbg.json("jobs", "a")["status"] == "Stopped")
    assert tdbg.json("jobs", "a")["attempt"] == 1
    tdbg.ok("stop", "a")
    until(lambda: tdbg.json("jobs", "a")["status"] == "Stopped")


def test_without_a_log_the_streams_are_ours(tdbg):
    assert run(tdbg, "print(1)", "--no-log").stdout == "1\n"
    assert "no output of it was kept" in tdbg.fails(NOT_FOUND, "logs", "r")
    assert not (tdbg.directory / "r" / "logs").exists()
    assert BINARY.exists()


def test_a_variable_that_is_named_as_secret_is_no_secret_itself(tdbg):
    """Its name is what `--secret` takes, and a job that was started with it can be resumed."""
    tdbg.env.update(PLAIN="hello1234", lower="hello5678")
    for n, flags in enumerate((["--secret", "PLAIN"], ["--secret=PLAIN", "--secret", "lower"], ["--secret", "MY_TOKEN"])):
        script = "echo $PLAIN $lower; exit 3"
        assert tdbg("run", "--quiet", "--dir", f"v{n}", *flags, "--", "sh", "-c", script).returncode == 3
        done = tdbg("resume", f"v{n}")
        assert (done.returncode, done.stdout) == (3, "hello1234 hello5678\n"), done.stderr
        log = tdbg.ok("logs", f"v{n}").stdout
        assert ("hello1234" in log) == (n == 2) and ("hello5678" in log) == (n != 1)
    # The secret itself, given by mistake, and a command's own flag of that name, are kept nowhere.
    for n, words in enumerate((["--secret", "hunter2hunter2", "--", "true"], ["--", "true", "--secret", "PLAIN"])):
        tdbg.ok("run", "--quiet", "--dir", f"w{n}", *words)
        job = tdbg.json("jobs", f"w{n}")
        assert "[redacted]" in job["flags"] + job["command"]
        where = "the flags of tdbg run" if n == 0 else "its command line"
        assert f"a secret in {where} was not kept" in tdbg.fails(6, "resume", f"w{n}")


def test_a_resumed_command_is_the_same_byte_for_byte(tdbg):
    """Words, the run's path, the directory for checkpoints and the one that it was started in, in Latin-1."""
    here = os.path.join(os.fsencode(tdbg.directory), b"t\xe9l\xe9")
    os.mkdir(here)
    script = "import os, sys; sys.stdout.buffer.write(b' '.join(map(os.fsencode, sys.argv[1:] + [os.environ['TDBG_CHECKPOINT_DIR'], os.getcwd()])))"
    command = [sys.executable, "-c", script, b"m\xe4r.py", "m\u00e4r", b"\xff\xfe", ""]

    def bytes_of(*words, cwd):
        done = subprocess.run([BINARY, *words], cwd=cwd, env=tdbg.env, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    began = bytes_of("run", "--quiet", "--dir", b"r\xfcn", "--checkpoint-dir", b"c\xe9", "--", *command, cwd=here)
    expected = b" ".join([b"m\xe4r.py", "m\u00e4r".encode(), b"\xff\xfe", b"", os.path.join(here, b"c\xe9"), here])
    assert began == expected
    assert bytes_of("resume", os.path.join(here, b"r\xfcn"), cwd=tdbg.directory) == expected
    job = json.loads(bytes_of("jobs", os.path.join(here, b"r\xfcn"), "--json", cwd=tdbg.directory).decode("utf-8"))
    assert job["command"][3] == "m\ufffdr.py" and job["command"][4] == "m\u00e4r"
    assert {int(at): bytes.fromhex(word) for at, word in job["bytes"]["command"].items()} == {3: b"m\xe4r.py", 5: b"\xff\xfe"}
    assert bytes.fromhex(job["bytes"]["run"]) == os.path.join(here, b"r\xfcn")
    assert bytes.fromhex(job["bytes"]["working_directory"]) == here
    tdbg.ok("run", "--quiet", "--dir", "plain", "--", "true")
    assert "bytes" not in tdbg.json("jobs", "plain")
