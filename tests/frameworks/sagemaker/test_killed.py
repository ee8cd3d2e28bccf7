"""kill -9 of the server and of the training while a job runs: S3 is a moto of the test's own, which outlives the server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from . import service as parts
from .test_jobs import command, hook, phases


class Server(parts.Service):
    """Without --local-aws: what a client is told of S3 is the environment's."""

    def __init__(self, directory, s3):
        super().__init__(directory)
        self.flags = [flag for flag in self.flags if flag != "--local-aws"]
        self.environment |= {"AWS_ENDPOINT_URL_S3": s3, "AWS_ACCESS_KEY_ID": "AKIDTESTTESTTESTTEST",
                             "AWS_SECRET_ACCESS_KEY": "secret"}

    def start(self, *more):
        said = super().start(*more)
        self.variables.setdefault("AWS_SESSION_TOKEN", "none")
        return said


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    moto = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=parts.clean_environment())
    try:
        end = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                break
            assert time.monotonic() < end and moto.poll() is None
            time.sleep(0.1)
        server = Server(folder, f"http://127.0.0.1:{port}")
        server.start()
        s3 = server.client("s3")
        s3.create_bucket(Bucket="jobs")
        s3.put_object(Bucket="jobs", Key="code/sourcedir.tar.gz", Body=parts.archive({"train.py": parts.TRAINING}))
        yield server
        server.stop()
    finally:
        moto.kill()
        moto.wait(60)


def begin(server, name, steps):
    sagemaker = server.client("sagemaker")
    changed = parts.request(name, "jobs", **hook("jobs"))
    changed["HyperParameters"].update(steps=str(steps), nap="0.05")
    sagemaker.create_training_job(**changed)
    parts.wait(sagemaker, name, until=("Training", *parts.ENDED))


def test_the_server_is_killed_and_the_job_goes_on(server):
    begin(server, "goes-on", 200)
    server.process.kill()
    server.process.wait(60)
    server.start()
    sagemaker = server.client("sagemaker")
    assert sagemaker.describe_training_job(TrainingJobName="goes-on")["TrainingJobStatus"] == "InProgress"
    job = parts.wait(sagemaker, "goes-on")
    assert job["TrainingJobStatus"] == "Completed", job
    assert phases(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    s3 = server.client("s3")
    s3.head_object(Bucket="jobs", Key="out/goes-on/output/model.tar.gz")
    s3.head_object(Bucket="jobs", Key="debug/goes-on/debug-output/training_job_end.ts")
    events = [key["Key"] for key in s3.list_objects_v2(Bucket="jobs", Prefix="debug/goes-on/debug-output/events/")["Contents"]]
    assert len([key for key in events if key.endswith(".tfevents")]) == 100      # every second step of 200


def test_the_training_is_killed_and_the_job_has_failed(server):
    begin(server, "is-killed", 100_000)
    folder = str(server.job_directory("is-killed")).encode()

    def trains(pid):
        words = command(pid).split(b"\0")
        if words[1:2] != [b"train.py"]:
            return False
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            return folder in file.read()
        return False

    s3 = server.client("s3")
    end = time.monotonic() + 120          # "Training" is said when its command starts, not when a step was made.
    while not s3.list_objects_v2(Bucket="jobs", Prefix="debug/is-killed/debug-output/events/")["KeyCount"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    training = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and trains(pid)]
    assert len(training) == 1, training
    os.kill(training[0], signal.SIGKILL)
    sagemaker = server.client("sagemaker")
    job = parts.wait(sagemaker, "is-killed")
    assert job["TrainingJobStatus"] == "Failed" and job["FailureReason"].startswith("AlgorithmError"), job
    assert phases(job) == ["Starting", "Downloading", "Training", "Uploading", "Failed"], phases(job)
    s3.head_object(Bucket="jobs", Key="debug/is-killed/debug-output/training_job_end.ts")
