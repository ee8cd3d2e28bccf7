"""Which runs a bucket has, and how they are, without opening them."""

import signal
import subprocess
import sys
import uuid

import pytest
import servers
from program import BINARY
from test_uploading import TRAINING, eventually, objects

STORE = BINARY.parent / "tdbg-store"


@pytest.fixture(params=["s3", "file"])
def root(request, tdbg):
    return f"s3://bucket/{uuid.uuid4().hex}" if request.param == "s3" else f"file://{tdbg.directory}/bucket"


def test_the_runs_of_a_bucket_are_listed_with_how_they_are(tdbg, root):
    assert tdbg.json("ls", root) == []
    tdbg.ok("run", "--dir", "r", "--upload", f"{root}/team/a run@1", "--quiet", "--", sys.executable, TRAINING, "3")
    tdbg.ok("run", "--dir", "s", "--upload", f"{root}/b", "--quiet", "--format", "smdebug", "--", sys.executable, TRAINING, "3")
    job = tdbg.start("run", "--dir", "t", "--upload", f"{root}/team/c", "--quiet", "--", sys.executable, TRAINING, "100000", "0.05")
    try:
        eventually(lambda: len(tdbg.json("ls", root)) == 3)
        listed = {run["run"].removeprefix(root + "/"): run for run in tdbg.json("ls", root + "/")}
        assert {name: run["state"] for name, run in listed.items()} == {"b": "complete", "team/a run@1": "complete", "team/c": "running"}
        assert listed["team/a run@1"]["bytes"] == sum(
            f.stat().st_size for f in (tdbg.directory / "r").rglob("*") if f.is_file() and not f.name.endswith(("journal", "lock", "doorbell", "control")))
        assert all(0 <= run["age_seconds"] < 60 for run in listed.values())
        rows = tdbg.ok("ls", root).stdout.splitlines()
        assert [row.split()[0] for row in rows] == ["RUN", "b", "team/a", "team/c"] and "running" in rows[3] and "s ago" in rows[3], rows
        assert tdbg.json("ls", f"{root}/team")[0]["run"] == f"{root}/team/a run@1"
        assert [run["run"] for run in tdbg.json("ls", f"{root}/b")] == [f"{root}/b"], "a prefix that is a run itself"
        assert [run["state"] for run in tdbg.json("ls", f"{root}/b/smdebug")] == ["smdebug"], "what smdebug's readers see"
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    eventually(lambda: tdbg.json("ls", f"{root}/team/c")[0]["state"] == "complete")


def test_a_list_costs_two_requests_a_run_and_has_an_end(tdbg, bucket):
    root = f"s3://bucket/{uuid.uuid4().hex}"
    tdbg.ok("run", "--dir", "r", "--quiet", "--", sys.executable, TRAINING, "30")
    for i in range(5):
        tdbg.ok("upload", "r", f"{root}/{i}")
    assert len(objects(tdbg, f"{root}/0")) > 5
    with servers.FaultyProxy(bucket.endpoint) as proxy:
        env = {"AWS_ENDPOINT_URL": proxy.endpoint}
        assert len(tdbg.json("ls", root, env=env)) == 5
        assert proxy.requests <= 1 + 2 * 5
        some = subprocess.run([STORE, "runs", root, "--most", "3"], env={**tdbg.env, **env}, capture_output=True, text=True, timeout=60)
        assert some.stdout.count('"name"') == 3 and '"more":true' in some.stdout, some.stdout


def test_a_bucket_that_is_not_there_is_said(tdbg):
    assert "there is no bucket 'no-such-bucket'" in tdbg.fails(2, "ls", "s3://no-such-bucket/x")
