"""`tdbg prune` and `tdbg ls --size`: what goes is what was said to go, and nothing else ever does."""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

DAY = 86400
USAGE, NOT_FOUND, REFUSED = 2, 4, 6
JOB = '{"kind": "job_ended", "attempt": 0, "exit_code": %d, "stop": "none", "wall_nanos": 1}\n'


def copied(golden, path, days=0.0, exit_code=None):
    shutil.copytree(golden, path, ignore=shutil.ignore_patterns("expected.json"))  # the test suite's, and no run's
    if exit_code is not None:
        with open(path / "events.jsonl", "a") as events:
            events.write(JOB % exit_code)
    age(path, days)
    return path


def age(path, days):
    then = time.time() - days * DAY
    for entry in [*path.rglob("*"), path]:
        os.utime(entry, (then, then), follow_symlinks=False)


def names(root):
    return sorted(entry.name for entry in root.iterdir())


@pytest.fixture
def root(golden, tmp_path):
    """Old, old and failed, in a folder, young."""
    root = tmp_path / "runs"
    copied(golden, root / "old", 40, exit_code=0)
    copied(golden, root / "failed", 50, exit_code=1)
    copied(golden, root / "group" / "older", 60, exit_code=0)
    copied(golden, root / "young", 1, exit_code=0)
    return root


def test_it_only_says_what_would_go_until_it_is_told_yes(tdbg, root):
    before = names(root)
    for flags in ([], ["--dry-run"]):
        done = tdbg.ok("prune", root, "--older-than", "30d", *flags)
        assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["group/older", "failed", "old"]
        assert "nothing was removed; --yes removes 3 of 4 runs" in done.stderr
        assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert names(root) == before and names(root / "group") == ["older"]
    said = tdbg.json("prune", root, "--older-than", "30d")
    assert said["dry_run"] and said["runs"] == 4 and [pathlib.Path(r["run"]).name for r in said["old"]] == ["older", "failed", "old"]
    assert said["bytes"] == sum(r["bytes"] for r in said["old"]) > 0 and not any(r["removed"] for r in said["old"])

    kept = tdbg.json("prune", root, "--older-than", "30d", "--keep-failed", "--yes")
    assert {pathlib.Path(r["run"]).name: r["removed"] for r in kept["old"]} == {"older": True, "failed": False, "old": True}
    assert names(root) == ["failed", "group", "young"] and names(root / "group") == []
    done = tdbg.ok("prune", root, "--older-than", "30d", "--yes")
    assert names(root) == ["group", "young"] and "removed 1 of 2 runs" in done.stderr
    assert "nothing to remove" in tdbg.ok("prune", root, "--older-than", "30d", "--yes").stderr


def test_what_is_young_because_something_was_written_late_stays(tdbg, root):
    (root / "old" / "events.jsonl").touch()
    assert len(tdbg.json("prune", root, "--older-than", "30d", "--yes")["old"]) == 2
    assert (root / "old" / "run.json").exists()


def test_marks_of_tdbg_keep_are_no_reason_to_stay(tdbg, root):
    (root / "old" / "marks.jsonl").write_text('{"first": 1, "last": 2, "wall_nanos": 1}\n')
    age(root / "old", 40)
    tdbg.ok("prune", root, "--older-than", "30d", "--yes")
    assert not (root / "old").exists()


def test_documents_of_rules_are_no_reason_to_stay(tdbg, root):
    (root / "old" / "rule-output" / "CreateXgboostReport").mkdir(parents=True)
    (root / "old" / "rule-output" / "CreateXgboostReport" / "xgboost_report.html").write_text("<html>")
    age(root / "old", 40)
    tdbg.ok("prune", root, "--older-than", "30d", "--yes")
    assert not (root / "old").exists()


def test_what_is_no_run_of_ours_or_holds_something_else_stays(tdbg, root, golden):
    (root / "notes").mkdir()
    (root / "notes" / "run.md").write_text("mine")
    (root / "old" / "checkpoints").mkdir()
    (root / "old" / "checkpoints" / "last.pt").write_text("weeks of work")
    smdebug = root / "smdebug-run"
    (smdebug / "events" / "000000000").mkdir(parents=True)
    (smdebug / "claim.smd").write_text("")
    newer = copied(golden, root / "newer")
    (newer / "run.json").write_text((golden / "run.json").read_text().replace('"major": 1', '"major": 9'))
    (root / "odd").mkdir()
    (root / "odd" / "run.json").write_text("{}")
    age(root, 90)
    said = tdbg.json("prune", root, "--older-than", "30d", "--yes")
    why = {pathlib.Path(r["run"]).name: r["kept_because"] for r in said["old"]}
    assert why["old"] == "it also holds checkpoints, which tdbg did not write"
    assert why["newer"].startswith("it cannot be read: ") and why["odd"] == "its run.json is none that tdbg wrote"
    assert names(root) == ["group", "newer", "notes", "odd", "old", "smdebug-run"]
    assert (root / "old" / "checkpoints" / "last.pt").read_text() == "weeks of work"


def test_nothing_is_removed_through_a_link(tdbg, root, golden, tmp_path):
    elsewhere = copied(golden, tmp_path / "elsewhere" / "run", 90)
    (root / "link").symlink_to(elsewhere)
    (root / "linked-group").symlink_to(elsewhere.parent)
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "kept").write_text("1")
    (root / "old" / "0" / "away").symlink_to(treasure)  # inside a run a link is removed, and not what it leads to
    disguised = copied(golden, root / "disguised")
    (disguised / "run.json").unlink()
    (disguised / "run.json").symlink_to(golden / "run.json")
    age(disguised, 90)
    os.utime(root / "old" / "0" / "away", (1, 1), follow_symlinks=False)
    said = tdbg.json("prune", root, "--older-than", "30d", "--yes")
    why = {r["run"].removeprefix(f"{root}/"): r["kept_because"] for r in said["old"]}
    assert why["link"] == why["linked-group/run"] == why["disguised"] == "it lies behind a symbolic link"
    assert (elsewhere / "run.json").exists() and (treasure / "kept").exists() and (golden / "run.json").exists()
    assert (disguised / "0").exists()
    assert not (root / "old").exists()
    # Nor is a directory that is a link itself entered.
    (tmp_path / "root-link").symlink_to(root)
    assert "symbolic link" in tdbg.fails(USAGE, "prune", tmp_path / "root-link", "--older-than", "1h")


@contextlib.contextmanager
def locked(path):
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_run_that_lives_stays(tdbg, root, tmp_path):
    """By its launcher's lock, by a worker's; and a real training, however long its files were not written to."""
    for lock in ("launcher.lock", "0/worker_0/lock"):
        with locked(root / "old" / lock):
            age(root / "old", 40)
            said = tdbg.json("prune", root, "--older-than", "35d", "--yes")
            assert next(r for r in said["old"] if r["run"].endswith("/old"))["kept_because"] == "it lives"
    training = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).parent / "page_runs.py"), str(root / "live"), "live", "2000", "0.05"])
    try:
        tdbg.wait_for(root / "live" / "0" / "worker_0" / "doorbell")
        age(root / "live", 90)
        said = tdbg.json("prune", root, "--older-than", "0m", "--yes")
        # It may have been written to just now, and then is not even old.
        assert all(r["kept_because"] == "it lives" for r in said["old"] if r["run"].endswith("/live"))
        assert (root / "live" / "run.json").exists() and training.poll() is None
    finally:
        training.terminate()
        training.wait(timeout=60)
    assert names(root) == ["group", "live"]


def test_what_a_prune_that_was_killed_left_is_no_run_and_goes_with_the_next(tdbg, root):
    (root / "old").rename(root / ".tdbg-removed-old")
    (root / "group" / "older").rename(root / "group" / ".tdbg-removed-older")
    assert {pathlib.Path(r["run"]).name for r in tdbg.json("ls", root)} == {"failed", "young"}
    tdbg.ok("prune", root, "--older-than", "900d")
    assert (root / ".tdbg-removed-old").exists()
    tdbg.ok("prune", root, "--older-than", "900d", "--yes")
    assert names(root) == ["failed", "group", "young"] and names(root / "group") == []


def test_usage(tdbg, root):
    for age_text in ("30", "d", "1y", "1.5d", "99999999999999w"):
        assert "30d" in tdbg.fails(USAGE, "prune", root, "--older-than", age_text)
    tdbg.fails(USAGE, "prune", root)
    tdbg.fails(USAGE, "prune", root, "--older-than", "1d", "--yes", "--dry-run")
    assert "a run itself" in tdbg.fails(USAGE, "prune", root / "old", "--older-than", "1d")
    tdbg.fails(NOT_FOUND, "prune", root / "nowhere", "--older-than", "1d")
    tdbg.fails(NOT_FOUND, "prune", "--older-than", "1d")
    assert len(names(root)) == 4


def test_the_list_by_size(tdbg, root):
    (root / "young" / "logs").mkdir()
    (root / "young" / "logs" / "0.log").write_bytes(b"x" * 3_000_000)
    listed = tdbg.json("ls", root, "--size")
    sizes = [run["disk_bytes"] for run in listed]
    assert sizes == sorted(sizes) and pathlib.Path(listed[-1]["run"]).name == "young" and sizes[-1] >= 3_000_000
    lines = tdbg.ok("ls", root, "--size").stdout.splitlines()
    assert "ON DISK" in lines[0] and lines[-2].startswith("young") and lines[-1].startswith("4 runs")
    total = sum(int(entry.lstat().st_blocks) * 512 for run in listed for entry in pathlib.Path(run["run"]).rglob("*"))
    assert sum(sizes) == total
    assert "disk_bytes" not in tdbg.json("ls", root)[0]


def test_every_command_is_in_the_documents_list(tdbg):
    """docs/cli.md begins with all of them, as `tdbg --help` does."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    listed = [line.split()[1] for line in text.split("```")[1].splitlines() if line.startswith("tdbg ") and not line.startswith("tdbg --")]
    commands = [line[2:11].strip() for line in tdbg.ok("--help").stdout.splitlines() if re.match(r"  [a-z]", line)]
    assert len(commands) > 25 and sorted(listed) == sorted(commands)
