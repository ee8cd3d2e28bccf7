"""The real binary, started as a user starts it: $TDBG_BIN, or build/tdbg."""

import json
import os
import pathlib
import shutil
import subprocess
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TDBG_BIN", ROOT / "build" / "tdbg"))
GOLDEN = ROOT / "tests" / "golden" / "v1.0"
MARK = "TDBG_TEST_MARK"


def processes_marked(mark):
    """Processes, not zombies, that were started under this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                    found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue  # ended meanwhile, or not ours
    return found


def until(true, what):
    """What `true` answers, once that is true."""
    deadline = time.monotonic() + 60
    while not (found := true()):
        assert time.monotonic() < deadline, f"nothing after a minute: {what}"
        time.sleep(0.05)
    return found


def follows(pid):
    """Whether this process of ours has opened a run and waits for what is written there."""
    try:
        return any(os.readlink(entry) == "anon_inode:inotify" for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # it, or a file of its, is closed meanwhile


class Tdbg:
    """Runs the command in a directory of its own; `ok`, `fails` check what every call must keep to."""

    def __init__(self, directory):
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.env = {k: v for k, v in os.environ.items() if (not k.startswith("TDBG_") or k == "TDBG_OVERHEAD") and k != "PYTHONPATH"}
        self.env[MARK] = self.mark
        self.env["XDG_STATE_HOME"] = str(pathlib.Path(directory) / ".state")  # and not the user's own
        self.env["TDBG_HOME"] = os.environ.get("TDBG_HOME", str(ROOT / "python"))

    def __call__(self, *args, timeout=60, env=None, stdin="", cwd=None):
        return subprocess.run([str(BINARY), *map(str, args)], cwd=cwd or self.directory, env={**self.env, **(env or {})},
                              input=stdin, capture_output=True, text=True, timeout=timeout)

    def ok(self, *args, **kwargs):
        done = self(*args, **kwargs)
        assert done.returncode == 0, (args, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *args, code=0, **kwargs):
        done = self(*args, "--json", **kwargs)
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def fails(self, code, *args, **kwargs):
        """It fails with this code and exactly one line, which begins with tdbg: and names the next step."""
        done = self(*args, **kwargs)
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("tdbg: "), (args, done.stderr)
        assert done.stdout == "", (args, done.stdout)
        return lines[0]

    def start(self, *args, **kwargs):
        return subprocess.Popen([str(BINARY), *map(str, args)], cwd=self.directory, env=self.env, text=True, **kwargs)

    def wait_for(self, path, seconds=20):
        end = time.monotonic() + seconds
        while not (self.directory / path).exists():
            assert time.monotonic() < end, f"{path} did not appear"
            time.sleep(0.02)


@pytest.fixture
def tdbg(tmp_path):
    if not BINARY.exists():
        pytest.skip(f"no binary at {BINARY}; build it (make build) or set TDBG_BIN")
    runner = Tdbg(tmp_path)
    yield runner
    end = time.monotonic() + 5
    while left := processes_marked(runner.mark):
        if time.monotonic() > end:
            for pid, _ in left:
                os.kill(pid, 9)
            pytest.fail(f"left running: {left}")
        time.sleep(0.05)


def damage(run, entry):
    """Flips a bit of this entry in each of the run's segments."""
    hit = 0
    for segment in pathlib.Path(run).rglob("*.safetensors"):
        data = bytearray(segment.read_bytes())
        size = int.from_bytes(data[:8], "little")
        place = json.loads(data[8:8 + size]).get(entry)
        if place:
            begin, end = place["data_offsets"]
            data[8 + size + (begin + end) // 2] ^= 1
            segment.write_bytes(data)
            hit += 1
    assert hit, f"no segment has {entry}"


@pytest.fixture
def golden(tmp_path):
    """A recorded run of three steps, ours to damage."""
    run = tmp_path / "golden"
    shutil.copytree(GOLDEN, run)
    return run
