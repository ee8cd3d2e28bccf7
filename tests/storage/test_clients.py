"""Programs that nobody here wrote read what an upload has put into a bucket."""

import signal
import subprocess
import sys
import uuid

import pytest
from program import ROOT
from test_uploading import TRAINING, eventually, objects

REAL_SMDEBUG = ROOT / ".venv-smdebug/bin/python"


def place():
    return f"s3://bucket/{uuid.uuid4().hex[:8]}/a"


def test_boto3_and_safetensors_read_a_run(tdbg):
    """Lists and gets it: the copy is a run, and a segment is a file that safetensors' own package reads."""
    boto3, safetensors = pytest.importorskip("boto3"), pytest.importorskip("safetensors.numpy")
    url = place()
    tdbg.ok("run", "--dir", "r", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "30")
    prefix = url.removeprefix("s3://bucket/") + "/"
    client = boto3.client("s3", endpoint_url=tdbg.env["AWS_ENDPOINT_URL"], region_name="us-east-1",
                          aws_access_key_id=tdbg.env["AWS_ACCESS_KEY_ID"], aws_secret_access_key=tdbg.env["AWS_SECRET_ACCESS_KEY"])
    keys = [one["Key"] for page in client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix) for one in page["Contents"]]
    for key in keys:
        target = tdbg.directory / "copy" / key.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(client.get_object(Bucket="bucket", Key=key)["Body"].read())
    assert tdbg.json("steps", "copy")["steps"] == tdbg.json("steps", "r")["steps"]
    segments = [key for key in keys if key.endswith(".safetensors")]
    assert segments
    for key in segments:
        tensors = safetensors.load(client.get_object(Bucket="bucket", Key=key)["Body"].read())
        assert len(tensors) > 5 and all(value.nbytes >= 0 for value in tensors.values())


LIVE = """
import sys, time
from smdebug.trials import create_trial
trial = create_trial(sys.argv[1])
while not trial.loaded_all_steps:
    print(len(trial.steps()), flush=True)
    time.sleep(0.5)
print(len(trial.steps()), len(trial.tensor_names()))
"""


@pytest.mark.long
@pytest.mark.skipif(not REAL_SMDEBUG.exists(), reason="the real smdebug is not installed (tools/setup.sh)")
def test_the_real_smdebug_follows_a_training_in_its_bucket_to_its_end(tdbg):
    url = place()
    job = tdbg.start("run", "--dir", "r", "--format", "smdebug", "--upload", url, "--quiet", "--", sys.executable, TRAINING, "100000", "0.05")
    eventually(lambda: any(name.startswith("smdebug/index/") for name in objects(tdbg, url)))
    reader = subprocess.Popen([REAL_SMDEBUG, "-c", LIVE, url + "/smdebug"], env=tdbg.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    seen = []
    while len(set(seen)) < 4:
        line = reader.stdout.readline()
        assert line, f"it ended while the training went on: {seen}"
        if line.strip().isdigit():
            seen.append(int(line))
    assert seen == sorted(seen)
    job.send_signal(signal.SIGTERM)
    job.wait(60)
    steps, names = map(int, reader.communicate(timeout=120)[0].splitlines()[-1].split())
    assert steps == len(tdbg.json("steps", "r")["steps"]) > seen[-1] and names == 4
