"""What a command prints, where something is in its way: full and stalled disks, processes that are killed, a reader that is gone."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from program import BINARY

REFUSED = 6


def command(script, *flags, place="r"):
    return [str(BINARY), "run", "--quiet", "--dir", place, *flags, "--", sys.executable, "-c", script]


def run(tdbg, script, *flags, **kwargs):
    return subprocess.run(command(script, *flags), cwd=tdbg.directory, env=tdbg.env, timeout=60, text=True,
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs})


def start(tdbg, script, place="r", **kwargs):
    return subprocess.Popen(command(script, place=place), cwd=tdbg.directory, env=tdbg.env, text=True, **kwargs)


def keepers(launcher):
    return [int(pid) for pid in subprocess.run(["pgrep", "-x", "tdbg-log", "-P", str(launcher.pid)],
                                               capture_output=True, text=True).stdout.split()]


def kill_keeper(pid):
    """Once this returns, it can no longer read."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert select.select([process], [], [], 20)[0]
    finally:
        os.close(process)


@contextlib.contextmanager
def mounted(place, *arguments):
    place.mkdir()
    if subprocess.run(["mount", *arguments, place], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("full", ["stdout", "stderr"])
def test_what_cannot_be_written_is_an_error_in_the_command_and_is_said(tdbg, full):
    script = f"import sys\nfor i in range(100000): print('row', i, file=sys.{full})"
    with open("/dev/full", "w") as disk:
        bare = subprocess.run([sys.executable, "-c", script], stdout=disk, stderr=disk)
        done = run(tdbg, script, **{full: disk})
    assert bare.returncode != 0 and done.returncode != 0
    of_it = "standard output" if full == "stdout" else "standard error"
    (transition,) = [t for t in tdbg.json("jobs", "r")["transitions"] if t["phase"] == "Failed"]
    assert f"{of_it}: No space left on device" in transition["message"]
    if full == "stdout":
        assert "cut short" in done.stderr and "No space left on device" in " ".join(done.stderr.split())


def test_a_command_that_did_not_notice_that_its_output_is_cut_short_is_no_success(tdbg):
    """What it printed was in the pipe when it ended: it could not notice."""
    with open("/dev/full", "w") as disk:
        done = run(tdbg, "import os; os.write(1, b'a small answer\\n')", stdout=disk)
        both = run(tdbg, "import os; os.write(1, b'a small answer\\n'); os._exit(7)", stdout=disk, stderr=disk)
    assert done.returncode == REFUSED and "cut short" in done.stderr
    assert both.returncode == 7, "an error of its own stays what it is"
    assert tdbg.json("jobs", "r")["status"] == "Failed"
    assert tdbg.ok("logs", "r", "--attempt", 0).stdout == "a small answer\n"


def test_a_file_that_may_not_grow_further_is_one_that_cannot_be_written(tdbg):
    rows = "for i in range(100000): print('row', i)"
    limited = f"ulimit -f 100; exec {sys.executable} -c \"{rows}\""
    with open(tdbg.directory / "bare", "w") as out:
        assert subprocess.run(["bash", "-c", limited], stdout=out, stderr=subprocess.DEVNULL).returncode != 0
    with open(tdbg.directory / "watched", "w") as out:
        done = subprocess.run(["bash", "-c", 'ulimit -f 100; exec "$@"', "-", *command(rows)], stdout=out,
                              stderr=subprocess.PIPE, text=True, cwd=tdbg.directory, env=tdbg.env, timeout=60)
    assert done.returncode != 0 and "File too large" in " ".join(done.stderr.split()), done.stderr
    assert (tdbg.directory / "watched").stat().st_size == (tdbg.directory / "bare").stat().st_size == 102400
    assert tdbg.ok("logs", "r").stdout.startswith("row 0\n")


def test_a_keeper_that_is_killed_when_the_command_has_ended_and_its_group_has_not(tdbg):
    worker = ("import os, signal, time\nsignal.signal(15, lambda *_: open('asked', 'w').close())\nopen('ready', 'w').close()\n"
              "while not os.path.exists('go'): time.sleep(0.01)\nprint('x' * 1000000, flush=True)\nopen('whole', 'w').close()")
    script = (f"import os, subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {worker!r}])\n"
              "while not os.path.exists('ready'): time.sleep(0.01)\nsys.exit(1)")
    job = start(tdbg, script, stdout=subprocess.DEVNULL)
    tdbg.wait_for("asked")              # the command has failed, its group is asked to end and has five seconds
    kill_keeper(keepers(job)[0])
    (tdbg.directory / "go").touch()
    assert job.wait(20) == 1
    assert (tdbg.directory / "whole").exists(), "it printed into a pipe that nobody read"


def test_where_no_keeper_lives_the_launcher_hands_on_itself(tdbg):
    script = ("import os, time\nopen('ready', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
              "print('x' * 1000000)\nprint('the end')")
    job = start(tdbg, script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tdbg.wait_for("ready")
    killed, end = set(), time.monotonic() + 30
    while len(killed) <= 20 and time.monotonic() < end:
        for pid in set(keepers(job)) - killed:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError):   # pgrep has seen one that I had killed
                kill_keeper(pid)
    (tdbg.directory / "go").touch()
    out, err = job.communicate(timeout=20)
    assert job.returncode == 0 and out == "x" * 1000000 + "\nthe end\n"
    assert " ".join(err.split()).count("output is not kept") == 1, err


@pytest.mark.parametrize("name", ["attempt-0.out", "attempt-0.index"])
def test_a_pipe_in_the_logs_place_stops_no_training(tdbg, name):
    tdbg.ok("plan", "--dir", "r")
    (tdbg.directory / "r/logs").mkdir(parents=True)
    os.mkfifo(tdbg.directory / "r/logs" / name)
    done = run(tdbg, "print('x' * 1000000)")
    assert (done.returncode, done.stdout) == (0, "x" * 1000000 + "\n")
    assert "not kept" in done.stderr


def test_a_pipe_in_the_place_of_a_detached_launchers_log_holds_nobody_up(tdbg):
    tdbg.ok("plan", "--dir", "r")
    (tdbg.directory / "r/logs").mkdir(parents=True)
    os.mkfifo(tdbg.directory / "r/logs/launcher.log")
    assert run(tdbg, "open('trained', 'w').close()", "--detach").returncode == 0
    tdbg.wait_for("trained")
    end = time.monotonic() + 20
    while tdbg.json("jobs", "r")["life"] != "ended":
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_reader_that_goes_away_is_noticed_on_a_terminal(tdbg):
    """There, one more process of ours listens for ctrl-C; it must not keep the pipe."""
    pid, master = pty.fork()
    if pid == 0:
        words = command("while True: print('y' * 1000)")
        os.chdir(tdbg.directory)
        os.execve("/bin/bash", ["bash", "-c", 'set -m; "$@" 2> errors | head -c 10 > /dev/null; touch ended', "-", *words], tdbg.env)
    try:
        tdbg.wait_for("ended")
    finally:
        os.close(master)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_disk_that_stalls_stops_no_training_and_the_log_says_what_is_missing(tdbg):
    image, disk = tdbg.directory / "image", tdbg.directory / "disk"
    with open(image, "w") as file:
        file.truncate(64 << 20)
    if not shutil.which("fsfreeze") or subprocess.run(["mkfs.ext4", "-qF", image], capture_output=True).returncode:
        pytest.skip("no file system to be had that stalls")
    script = ("import os, time\nprint('the beginning', flush=True); open('ready', 'w').close()\n"
              "while not os.path.exists('go'): time.sleep(0.01)\n"
              "for i in range(20000): print(i, 'x' * 1000)\nopen('printed', 'w').close()\n"
              "while not os.path.exists('end'): time.sleep(0.01)\nprint('the end')")
    with mounted(disk, "-o", "loop", image):
        with open(tdbg.directory / "out", "w") as out:
            job = start(tdbg, script, place="disk/r", stdout=out, stderr=subprocess.PIPE)
        tdbg.wait_for("ready")
        subprocess.run(["fsfreeze", "-f", disk], check=True)
        try:
            (tdbg.directory / "go").touch()
            tdbg.wait_for("printed")        # 20 MB, of which 8 MiB find room
        finally:
            subprocess.run(["fsfreeze", "-u", disk], check=True)
        (tdbg.directory / "end").touch()
        _, said = job.communicate(timeout=30)
        assert job.returncode == 0
        printed = (tdbg.directory / "out").read_text().splitlines()
        assert len(printed) == 20002 and printed[-1] == "the end"
        assert "missing in the log" in " ".join(said.split()), said
        lines = [json.loads(line) for line in tdbg.ok("logs", "disk/r", "--json").stdout.splitlines()]
        assert lines[0]["text"] == "the beginning"
        lost = sum(line["lost_bytes"] for line in lines)
        kept = sum(len(line["text"]) + 1 for line in lines)
        whole = sum(len(line) + 1 for line in printed)
        gaps = sum(line["lost_before"] for line in lines)
        assert 0 <= kept + lost - whole <= gaps * 1025 and lost > 8 << 20     # each up to a KiB, and a line end
        assert "of output were left out here]" in tdbg.ok("logs", "disk/r").stdout


def test_on_a_small_disk_a_log_leaves_room(tdbg):
    script = "import os\nfor i in range(40000): print(i, 'x' * 1000)\nopen('small/r/weights', 'wb').write(os.urandom(9 << 20))"
    with mounted(tdbg.directory / "small", "-t", "tmpfs", "-o", "size=16m", "tmpfs") as small:
        tdbg.ok("run", "--quiet", "--journal", "1MiB", "--dir", "small/r", "--", sys.executable, "-c", script)
        assert (small / "r/weights").stat().st_size == 9 << 20
        assert sum(file.stat().st_size for file in (small / "r/logs").iterdir()) <= 4 << 20
        lines = tdbg.ok("logs", "small/r").stdout.splitlines()
        assert lines[0].startswith("0 x") and lines[-1].startswith("39999 x")
        assert sum("of output were left out here]" in line for line in lines) == 1


def test_a_log_has_the_size_that_it_was_given(tdbg):
    rows = "for i in range(400000): print('row', i)"
    run(tdbg, rows, "--log-limit", "1MiB")
    assert 1 << 19 < sum(file.stat().st_size for file in (tdbg.directory / "r/logs").iterdir()) <= 1 << 20
    lines = [json.loads(line) for line in tdbg.ok("logs", "r", "--json").stdout.splitlines()]
    assert lines[0]["text"] == "row 0" and lines[-1]["text"] == "row 399999"
    assert sum(line["lost_before"] for line in lines) == 1
    assert "--log-limit" in tdbg.fails(2, "run", "--log-limit", "some", "--", "true")
