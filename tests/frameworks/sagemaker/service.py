"""The service as a user starts it, moto's server behind it, and what a job of a test is made of."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import time

BINARY = pathlib.Path(os.environ["TDBG_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[3]
#: What jobs train with; the environment of these tests has the SDK and no framework.
TRAINS = pathlib.Path(os.environ.get("TDBG_TRAINING_PYTHON", ROOT / ".venv" / "bin" / "python"))
ROLE = "arn:aws:iam::123456789012:role/tdbg-service-role"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.0-cpu-py310"
ENDED = ("Completed", "Failed", "Stopped")

#: Ten layers of sigmoids with small weights: the gradients of the first ones are nothing. Writes a model.
TRAINING = """
import argparse, json, os, pathlib, sys, time
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--nap", type=float, default=0.0)
args = parser.parse_args()
torch.manual_seed(0)
layers = []
for _ in range(10):
    layers += [torch.nn.Linear(8, 8), torch.nn.Sigmoid()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))
with torch.no_grad():
    for weight in model.parameters():
        weight.mul_(0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
loss_of = torch.nn.MSELoss()
print("channels", os.environ["SM_CHANNELS"], "lr", repr(args.lr), flush=True)
for step in range(args.steps):
    optimizer.zero_grad()
    loss = loss_of(model(torch.randn(4, 8)), torch.zeros(4, 1))
    loss.backward()
    optimizer.step()
    time.sleep(args.nap)
torch.save(model.state_dict(), pathlib.Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
print("trained", args.steps, flush=True)
"""


def clean_environment():
    """Without anything that leads to somebody's account, or to another run."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "TDBG_")) and k != "PYTHONPATH"}


class Service:
    """A running `tdbg serve --local-aws`, and programs beside it."""

    def __init__(self, directory, *flags):
        self.state = pathlib.Path(directory) / "service"
        self.environment = {**clean_environment(), "XDG_STATE_HOME": str(directory), "TDBG_PYTHON": sys.executable,
                            "HOME": str(directory), "TDBG_HOME": os.environ["TDBG_HOME"]}
        self.flags = ["--local-aws", "--image", f"pytorch-training={TRAINS}", "--image", f"sagemaker-xgboost={TRAINS}",
                      *flags]
        if "--max-jobs" not in flags:      # else as many as this machine has processors
            self.flags += ["--max-jobs", "8"]
        self.log = pathlib.Path(directory) / "server.log"
        self.process = None

    def start(self, *more):
        """Start it, or start it again: the jobs are the state directory's."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--state", self.state, "--json", *self.flags, *more], env=self.environment,
                stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        said = json.loads(line)
        done = self.run("aws-env", "--state", self.state, "--json")
        assert done.returncode == 0, done.stderr
        self.variables = json.loads(done.stdout)["environment"]
        return said

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def run(self, *words, timeout=60):
        return subprocess.run([BINARY, *words], env=self.environment, capture_output=True, text=True, timeout=timeout)

    def program(self, text, *words, timeout=240):
        """A Python program of these tests' environment, under `tdbg aws-env`."""
        return subprocess.run(
            [BINARY, "aws-env", "--state", self.state, "--", sys.executable, "-c", text, *words],
            env=self.environment, capture_output=True, text=True, timeout=timeout)

    def client(self, name):
        import boto3
        import botocore.config

        endpoint = self.variables.get("AWS_ENDPOINT_URL_" + {"logs": "CLOUDWATCH_LOGS", "events": "EVENTBRIDGE"}.get(name, name.upper()))
        return boto3.client(
            name, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=self.variables.get("AWS_SESSION_TOKEN"),
            config=botocore.config.Config(retries={"max_attempts": 0}))

    def job_directory(self, name):
        return self.state / "jobs" / name


@contextlib.contextmanager
def running(directory, *flags):
    service = Service(directory, *flags)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def archive(files):
    """A .tar.gz of names and texts."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def request(name, bucket, **changed):
    """A CreateTrainingJob in script mode, as plain boto3 sends it."""
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "HyperParameters": {"sagemaker_program": "train.py",
                            "sagemaker_submit_directory": f"s3://{bucket}/code/sourcedir.tar.gz", "lr": "0.1"},
        **changed,
    }


def wait(sagemaker, name, until=ENDED, seconds=180):
    """Describe it until its status is one of these; the last answer."""
    end = time.monotonic() + seconds
    while True:
        job = sagemaker.describe_training_job(TrainingJobName=name)
        if job["TrainingJobStatus"] in until or job["SecondaryStatus"] in until:
            return job
        assert time.monotonic() < end, job
        time.sleep(0.2)
