"""Commands under `tdbg run`: their exit codes, output, signals and terminal are theirs, and nothing is left running."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from program import BINARY, Tdbg, processes_marked

STOPPED, NOT_FOUND = 3, 4


def run(tdbg, script, *flags, **kwargs):
    return tdbg("run", "--dir", "r", *flags, "--", sys.executable, "-c", script, **kwargs)


@pytest.mark.parametrize("script, code", [
    ("raise RuntimeError('boom')", 1),
    ("import sys; sys.exit(42)", 42),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
])
def test_the_exit_code_is_the_scripts(tdbg, script, code):
    done = run(tdbg, script)
    assert done.returncode == code, done.stderr
    assert json.loads(tdbg.ok("status", "r", "--json").stdout)["job"]["exit_code"] == code


def test_output_and_input_pass_untouched(tdbg):
    script = ("import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); "
              "sys.stderr.write('E' * 70000)")
    done = run(tdbg, script, "--quiet", stdin="abc\n" * 50000)
    assert done.returncode == 0
    assert done.stdout == ("abc\n" * 50000)[::-1]
    assert done.stderr == "E" * 70000


def test_the_environment_is_the_adaptors_contract(tdbg):
    script = "import json, os; print(json.dumps({k: os.environ.get(k) for k in ('TDBG_RUN', 'TDBG_ATTEMPT', 'PYTHONPATH')}))"
    done = run(tdbg, script, "--quiet", env={"PYTHONPATH": "/theirs"})
    seen = json.loads(done.stdout)
    assert seen["TDBG_RUN"] == str(tdbg.directory / "r")
    assert seen["TDBG_ATTEMPT"] == "0"
    assert seen["PYTHONPATH"].endswith("/tdbg/boot:/theirs")


def test_a_run_that_captured_nothing_says_so_and_why(tdbg):
    said = " ".join(run(tdbg, "pass").stderr.split())
    assert "nothing was captured" in said and "no framework that it knows was imported" in said
    assert "tdbg status r" in said and "without the environment" in said


def test_a_command_that_was_killed_says_by_what(tdbg):
    done = run(tdbg, "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 137
    assert "the command failed (exit code 137, SIGKILL)" in done.stderr and "out-of-memory" in done.stderr
    assert tdbg.json("status", "r")["state"] == "failed (exit code 137, SIGKILL)"
    done = run(tdbg, "import sys; sys.exit(5)")
    assert "the command failed (exit code 5)" in done.stderr and "out-of-memory" not in done.stderr


def test_rules_of_a_run_whose_tdbg_died_are_to_be_judged_again(tdbg):
    job = tdbg.start("run", "--quiet", "--dir", "r", "--", sys.executable, "-c",
                     "import os, time; open('ready', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.02)")
    tdbg.wait_for("ready")
    assert "no process has reached its first training step yet" in " ".join(tdbg.ok("status", "r").stdout.split())
    job.kill()
    job.wait(20)
    assert "tdbg check r" in tdbg.ok("status", "r").stdout
    (tdbg.directory / "go").touch()


def test_a_message_that_cannot_be_written_costs_nobody_the_exit_code(tdbg):
    with open("/dev/full", "w") as full:
        job = tdbg.start("run", "--dir", "r", "--json", "--", "sh", "-c", "exit 9", stdout=full, stderr=full)
        assert job.wait(20) == 9
    job = tdbg.start("run", "--dir", "r", "--", "sh", "-c", "echo ready >&2; read line; exit 8",
                     stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stderr.readline() == "ready\n"
    job.stderr.close()
    job.communicate("go\n", timeout=20)
    assert job.returncode == 8
    closed = tdbg.start("run", "--dir", "r", "--", "sh", "-c", "exit 7", preexec_fn=lambda: [os.close(0), os.close(1), os.close(2)])
    assert closed.wait(20) == 7
    assert [tdbg.json("status", "r")["job"]["exit_code"]] == [7]


def test_json_is_the_last_line_behind_the_scripts_output(tdbg):
    done = run(tdbg, "print('theirs')", "--json", "--quiet")
    first, last = done.stdout.splitlines()
    assert first == "theirs" and json.loads(last)["job"]["exit_code"] == 0


def test_the_next_start_in_a_run_is_its_next_attempt(tdbg):
    run(tdbg, "pass", "--quiet")
    run(tdbg, "import sys; sys.exit(9)", "--quiet")
    report = tdbg.json("status", "r")
    assert report["attempts"] == [0, 1] and report["job"] == {**report["job"], "attempt": 1, "exit_code": 9}


def test_default_directories_are_named_after_the_script_and_found_by_name(tdbg):
    (tdbg.directory / "train.py").write_text("pass\n")
    for _ in range(2):
        tdbg.ok("run", "--quiet", "--", sys.executable, "train.py")
    names = sorted(p.name for p in (tdbg.directory / "tdbg-runs").iterdir())
    assert len(names) == 2 and all(name.startswith("train-2") for name in names)
    assert tdbg.json("status", names[0])["name"] == names[0]
    assert tdbg.json("status", "last")["name"] == tdbg.json("ls")[-1]["name"] == names[1]
    elsewhere = tdbg.directory / "scratch" / "mine"
    tdbg.ok("run", "--quiet", "--dir", elsewhere, "--", sys.executable, "train.py")
    assert tdbg.json("status", "last")["run"] == str(elsewhere)
    assert [r["name"] for r in tdbg.json("ls")] == [*names, "mine"]
    other = tdbg.directory / "other"  # another project: what was started here is not its last run
    other.mkdir()
    there = Tdbg(other)
    there.env["XDG_STATE_HOME"] = tdbg.env["XDG_STATE_HOME"]
    assert str(elsewhere) in there.fails(NOT_FOUND, "status", "last")
    shutil.rmtree(elsewhere)
    assert tdbg.json("status", "last")["name"] == names[1]


def test_tdbg_stop_ends_a_job_and_its_exit_code_says_so(tdbg):
    job = tdbg.start("run", "--quiet", "--dir", "r", "--", sys.executable, "-c",
                     "import time; open('ready', 'w').close(); time.sleep(60)")
    tdbg.wait_for("ready")
    assert tdbg.json("status", "r")["alive"]
    tdbg.ok("stop", "r")
    assert job.wait(20) == STOPPED
    report = tdbg.json("status", "r")
    assert report["job"]["stopped_by"] == "user" and not report["alive"]
    tdbg.fails(6, "stop", "r")


def test_a_script_that_ignores_the_stop_is_killed_after_its_grace_with_its_children(tdbg):
    (tdbg.directory / "debug.yaml").write_text("stop_grace_seconds: 1\n")
    script = ("import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); "
              "open('ready', 'w').close(); time.sleep(60)")
    job = tdbg.start("run", "--quiet", "--dir", "r", "--config", "debug.yaml", "--", sys.executable, "-c", script)
    tdbg.wait_for("ready")
    start = time.monotonic()
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 128 + signal.SIGKILL
    assert 0.8 < time.monotonic() - start < 10


def test_a_crash_takes_the_rest_of_its_group_along(tdbg):
    done = run(tdbg, "import os, signal, time\nif os.fork() == 0: time.sleep(60)\nos.kill(os.getpid(), signal.SIGKILL)",
               "--quiet")
    assert done.returncode == 128 + signal.SIGKILL
    assert processes_marked(tdbg.mark) == []


class Terminal:
    """tdbg as the foreground job of a terminal of its own."""

    def __init__(self, tdbg, *args, term="xterm"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(tdbg.directory)
                os.execve(BINARY, [str(BINARY), *args], {**tdbg.env, "TERM": term})
            finally:
                os._exit(99)
        self.output = b""

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.fd], [], [], left)[0]:
            try:
                chunk = os.read(self.fd, 65536)
            except OSError:  # the last process has closed it
                return
            if not chunk:
                return
            self.output += chunk

    def until(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < end, self.output
            self.read(0.05)

    def press(self, keys):
        os.write(self.fd, keys)

    def wait(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read(0.2)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"tdbg did not end: {self.output}")


def test_ctrl_c_is_the_scripts_as_without_us(tdbg):
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c",
                        "import time\ntry:\n  print('ready', flush=True); time.sleep(60)\n"
                        "except KeyboardInterrupt:\n  print('saved', flush=True); raise SystemExit(5)")
    terminal.until(b"ready")
    terminal.press(b"\x03")
    assert terminal.wait() == 5
    assert b"saved" in terminal.output
    assert tdbg.json("status", "r")["state"] == "interrupted"


def group_of(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def listener_of(tdbg, command):
    """The process of ours in the group of the command. It enters the group by itself, while the command starts."""
    listeners = []
    while not listeners:    # and no short-lived process of the command's own, which may be there before
        listeners = [pid for pid, line in processes_marked(tdbg.mark) if pid != command and " run --" in line and group_of(pid) == command]
    (listener,) = listeners
    return listener


def until_heard(listener):
    """A second ctrl-C is one with the first as long as that waits to be heard."""
    def waiting():
        status = pathlib.Path(f"/proc/{listener}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        return (int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)) >> (signal.SIGINT - 1) & 1
    while waiting():
        time.sleep(0.01)


def test_ctrl_c_is_known_though_who_hears_it_is_the_last_to_run(tdbg):
    """On a busy machine: the command has heard it and ended before the process of ours that listens for it."""
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c",
                        "import os, time\ntry:\n  print(f'<{os.getpid()}> is ready', flush=True); time.sleep(60)\n"
                        "except KeyboardInterrupt: raise SystemExit(5)")
    terminal.until(b"> is ready")
    command = int(re.search(rb"<(\d+)> is ready", terminal.output)[1])
    listener = listener_of(tdbg, command)
    os.kill(listener, signal.SIGSTOP)
    terminal.press(b"\x03")
    while pathlib.Path(f"/proc/{command}").exists():
        terminal.read(0.02)
    with contextlib.suppress(ProcessLookupError):   # killed unheard
        os.kill(listener, signal.SIGCONT)
    assert terminal.wait() == 5
    assert tdbg.json("status", "r")["state"] == "interrupted"


def test_ctrl_c_twice_ends_a_script_that_ignores_it(tdbg):
    script = ("import os, signal, time; signal.signal(signal.SIGINT, lambda *a: print('no', flush=True)); "
              "print(f'<{os.getpid()}> is ready', flush=True)\nwhile True: time.sleep(0.05)")
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c", script)
    terminal.until(b"> is ready")
    listener = listener_of(tdbg, int(re.search(rb"<(\d+)> is ready", terminal.output)[1]))
    terminal.press(b"\x03")
    terminal.until(b"no")
    until_heard(listener)
    terminal.read(0.3)  # for a second "no", which nobody asked for
    assert terminal.output.count(b"no\r\n") == 1
    terminal.press(b"\x03")
    assert terminal.wait() == 128 + signal.SIGTERM


def test_ctrl_c_three_times_kills_whatever_the_script_does(tdbg):
    # The second one brings SIGINT and SIGTERM at once, and a print may not be interrupted by another.
    script = ("import os, signal, time\nfor s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, lambda *a: os.write(1, b'no'))\n"
              "print(f'<{os.getpid()}> is ready', flush=True)\nwhile True: time.sleep(0.05)")
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c", script)
    terminal.until(b"> is ready")
    listener = listener_of(tdbg, int(re.search(rb"<(\d+)> is ready", terminal.output)[1]))
    for heard in (b"no", b"asked the command to end"):   # the second one is told of by us, too
        terminal.press(b"\x03")
        terminal.until(heard)
        until_heard(listener)
    terminal.press(b"\x03")
    assert terminal.wait() == 128 + signal.SIGKILL


def test_the_script_reads_from_the_terminal(tdbg):
    terminal = Terminal(tdbg, "run", "--quiet", "--dir", "r", "--", sys.executable, "-c",
                        "print('name?', flush=True); print('hello ' + input())")
    terminal.until(b"name?")
    terminal.press(b"you\r")
    assert terminal.wait() == 0
    assert b"hello you" in terminal.output


def test_the_live_line_leaves_the_scripts_lines_alone_and_the_terminal_as_it_was(tdbg):
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c",
                        "import os, time\nfor i in range(5):\n  print(f'line {i} of theirs', flush=True)\n"
                        "  while i == 1 and not os.path.exists('go'): time.sleep(0.02)")
    terminal.until(b"waiting for the first step")
    (tdbg.directory / "go").touch()
    assert terminal.wait() == 0
    assert b"waiting for the first step" in terminal.output
    for i in range(5):
        assert b"line %d of theirs\r\n" % i in terminal.output
    assert terminal.output.rindex(b"\x1b[r") > terminal.output.rindex(b"waiting for the first step")


def test_no_escape_codes_where_nobody_can_see_them(tdbg):
    done = run(tdbg, "import time; time.sleep(0.5)")
    assert "\x1b" not in done.stderr + done.stdout
    terminal = Terminal(tdbg, "run", "--dir", "r", "--", sys.executable, "-c", "import time; time.sleep(0.5)", term="dumb")
    assert terminal.wait() == 0
    assert b"\x1b" not in terminal.output
