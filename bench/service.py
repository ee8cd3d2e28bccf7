#!/usr/bin/env python3
"""The service at size, and how long its users wait.

Question   with 10,000 jobs that have ended: how long until one is described, until a hundred are listed? What does a server use that
           gets no requests? How long from a rule's finding to a StopTrainingJob of the user's handler, and what does `fit()` cost beside a
           training of 7 seconds?
Workload   size: one job that has ended, with two rules, and copies of its folder; boto3 asks, in any order, all pages.
           stop: a function as EventBridge's target, new for each job, so that its process has to be started and boto3 imported.
           fit: the SageMaker SDK of .venv-sagemaker (tools/setup_framework.sh), without one boto3, which asks every second.
Bar        describe p99 10 ms, lists p99 50 ms; idle 0.1 % of a core; stop 3.5 s, fit 15 s, each the slowest.

  .venv/bin/python bench/service.py [size|stop|fit ...] [--json FILE] [--quick]     default: all
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/storage"))

import boto3  # noqa: E402
import botocore.config  # noqa: E402
import servers  # noqa: E402

HOME = os.environ.get("TDBG_HOME") or sysconfig.get_path("platlib")
TDBG = os.environ.get("TDBG_BIN") or os.path.join(HOME, "tdbg/bin/tdbg")
TRAINS = os.environ.get("TDBG_TRAINING_PYTHON", sys.executable)
SDK = ROOT / ".venv-sagemaker" / "bin" / "python"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.0-cpu-py310"
ENDED = ("Completed", "Failed", "Stopped")

#: Gradients vanish from the first step on.
VANISHES = """
import time, torch
model = torch.nn.Sequential(*[layer for _ in range(10) for layer in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())])
with torch.no_grad():
    for weight in model.parameters():
        weight.mul_(0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""

HANDLER = """
import os, time
import boto3
def handler(event, context):
    job = event["detail"]["TrainingJobName"]
    statuses = event["detail"].get("DebugRuleEvaluationStatuses", [])
    if any(s["RuleEvaluationStatus"] == "IssuesFound" for s in statuses) and not os.path.exists(os.environ["ACCEPTED"] + job):
        boto3.client("sagemaker").stop_training_job(TrainingJobName=job)
        with open(os.environ["ACCEPTED"] + job, "w") as file:
            file.write(str(time.time()))
"""

FIT = """
import pathlib, sys, tempfile, time
import sagemaker
from sagemaker.pytorch import PyTorch
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "train.py").write_text("import time; time.sleep(7)")
estimator = PyTorch(entry_point="train.py", source_dir=str(folder), role="arn:aws:iam::123456789012:role/r",
                    framework_version="2.0.0", py_version="py310", instance_count=1, instance_type="ml.m5.xlarge",
                    sagemaker_session=sagemaker.Session(default_bucket="bucket"))
begin = time.monotonic()
estimator.fit(logs=False)
print("SECONDS", time.monotonic() - begin)
"""


class Service:
    """A server with a bucket behind it."""

    def __init__(self, directory, bucket, *flags):
        self.state = pathlib.Path(directory) / "service"
        self.environment = {**servers.clean_environment(), **bucket.env(), "TDBG_HOME": HOME, "HOME": str(directory),
                            "XDG_STATE_HOME": f"{directory}/state", "TDBG_PYTHON": sys.executable}
        self.bucket, self.flags = bucket, flags

    def __enter__(self):
        self.process = subprocess.Popen([TDBG, "serve", "--state", self.state, "--json", "--image", f"pytorch-training={TRAINS}", *self.flags],
                                        env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = json.loads(self.process.stdout.readline())["address"]
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()

    def client(self, name):
        return boto3.client(name, endpoint_url=self.bucket.endpoint if name == "s3" else self.address, region_name="us-east-1",
                            aws_access_key_id=self.bucket.key, aws_secret_access_key=self.bucket.secret,
                            config=botocore.config.Config(retries={"max_attempts": 0}, read_timeout=120))

    def cpu_seconds(self):
        """Of all its threads, to the nanosecond: /proc/PID/stat counts hundredths of a second."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def archive(text):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(text.encode())
        tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


def create(service, name, image=IMAGE, rules=()):
    service.client("sagemaker").create_training_job(
        TrainingJobName=name, AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "File"},
        RoleArn="arn:aws:iam::123456789012:role/r", OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        ResourceConfig={"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30}, StoppingCondition={"MaxRuntimeInSeconds": 600},
        HyperParameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/code/sourcedir.tar.gz"},
        DebugHookConfig={"S3OutputPath": "s3://bucket/debug"},
        DebugRuleConfigurations=[{"RuleConfigurationName": rule, "RuleEvaluatorImage": "rules:latest", "RuleParameters": {"rule_to_invoke": rule}}
                                 for rule in rules])


def wait(service, name, pause):
    sagemaker, end = service.client("sagemaker"), time.monotonic() + 120
    while (job := sagemaker.describe_training_job(TrainingJobName=name))["TrainingJobStatus"] not in ENDED:
        assert time.monotonic() < end, job
        time.sleep(pause)
    return job


def copies(service, of, count):
    """Further jobs that have ended as this one has."""
    folder = service.state / "jobs"
    texts = {file: (folder / of / file).read_text() for file in ("job.json", "events.jsonl")}
    for i in range(len(list(folder.iterdir())), count):
        name = f"job-{i:05d}"
        (folder / f".{name}").mkdir()
        for file, text in texts.items():
            (folder / f".{name}" / file).write_text(text.replace(f'"{of}"', f'"{name}"').replace(f"{of}-", f"{name}-"))
        (folder / f".{name}" / "tender.lock").write_text("")
        (folder / f".{name}").rename(folder / name)


def slowest(service, ask, count):
    """Milliseconds: the median, what one in a hundred takes longer than, and what the server itself uses, whatever else is at work."""
    times, used = [], service.cpu_seconds()
    for i in range(count):
        begin = time.perf_counter()
        ask(i)
        times.append(1e3 * (time.perf_counter() - begin))
    times.sort()
    return {"median_ms": times[len(times) // 2], "p99_ms": times[max(0, -(-len(times) * 99 // 100) - 1)],
            "server_cpu_ms": 1e3 * (service.cpu_seconds() - used) / count}


def size(bucket, directory, quick):
    rounds, jobs, seconds = (100, 1000, 10) if quick else (500, 10_000, 60)
    figures, chance = {"jobs": jobs}, random.Random(0)
    with Service(directory, bucket) as service:
        create(service, "t0", image="none:1", rules=("VanishingGradient", "LossNotDecreasing"))   # fails at once
        wait(service, "t0", 0.1)
        sagemaker, logs = service.client("sagemaker"), service.client("logs")

        def idle(count):
            copies(service, "t0", count)
            sagemaker.list_training_jobs()
            time.sleep(3)          # until its directory has been at rest, and was looked at
            before = service.cpu_seconds()
            time.sleep(seconds)
            return (service.cpu_seconds() - before) / seconds

        tokens = {}

        def page(call, list_of):
            def ask(i):
                order = ("Name", "Status", "CreationTime")[i % 3]
                token = tokens.get((list_of, order))
                answer = call(MaxResults=100, SortBy=order, **({"NextToken": token} if token else {}))
                assert answer[list_of]
                tokens[list_of, order] = answer.get("NextToken")
            return ask

        figures["idle_100"], figures["idle_all"] = idle(100), idle(jobs)
        figures["describe"] = slowest(service, lambda _: sagemaker.describe_training_job(TrainingJobName=f"job-{chance.randrange(1, jobs):05d}"), rounds)
        figures["list"] = slowest(service, page(sagemaker.list_training_jobs, "TrainingJobSummaries"), rounds)
        figures["list_processing"] = slowest(service, page(sagemaker.list_processing_jobs, "ProcessingJobSummaries"), rounds)
        figures["streams"] = slowest(service, lambda _: logs.describe_log_streams(
            logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"job-{chance.randrange(1, jobs):05d}/"), rounds)
        figures["resident_mib"] = int(pathlib.Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    begin = time.monotonic()
    with Service(directory, bucket) as service:
        service.client("sagemaker").list_training_jobs()
        figures["start_seconds"] = time.monotonic() - begin
    return figures


def stop(bucket, directory, quick):
    times, accepted = [], pathlib.Path(directory) / "accepted-"
    with Service(directory, bucket) as service:
        service.client("s3").put_object(Bucket="bucket", Key="code/sourcedir.tar.gz", Body=archive(VANISHES))
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as zipped:
            zipped.writestr("handler.py", HANDLER)
        function = service.client("lambda").create_function(
            FunctionName="stopper", Runtime="python3.11", Role="arn:aws:iam::123456789012:role/r", Handler="handler.handler",
            Code={"ZipFile": code.getvalue()}, Environment={"Variables": {"ACCEPTED": str(accepted)}})
        events = service.client("events")
        events.put_rule(Name="found", EventPattern=json.dumps({"detail": {"DebugRuleEvaluationStatuses": {"RuleEvaluationStatus": ["IssuesFound"]}}}))
        events.put_targets(Rule="found", Targets=[{"Id": "1", "Arn": function["FunctionArn"]}])
        for i in range(2 if quick else 5):
            create(service, f"found-{i}", rules=("VanishingGradient",))
            job = wait(service, f"found-{i}", 0.2)
            assert job["TrainingJobStatus"] == "Stopped", job
            lines = (service.state / f"jobs/found-{i}/runs/found-{i}/events.jsonl").read_text().splitlines()
            found = [event["wall_nanos"] / 1e9 for event in map(json.loads, lines)
                     if event["kind"] == "state_change" and event["event"]["detail"]["tdbg"].get("status") == "IssuesFound"]
            times.append(float(pathlib.Path(f"{accepted}found-{i}").read_text()) - found[0])
    return {"median_s": sorted(times)[len(times) // 2], "slowest_s": max(times)}


def fit(bucket, directory, quick):
    sdk, times = SDK.exists(), []
    with Service(directory, bucket) as service:
        service.client("s3").put_object(Bucket="bucket", Key="code/sourcedir.tar.gz", Body=archive("import time; time.sleep(7)"))
        for i in range(1 if quick else 3):
            begin = time.monotonic()
            if sdk:
                done = subprocess.run([TDBG, "aws-env", "--state", service.state, "--", SDK, "-c", FIT], env=service.environment, cwd=directory,
                                      capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, done.stderr
                times.append(float(done.stdout.rpartition("SECONDS ")[2]))
            else:
                create(service, f"fit-{i}")
                assert wait(service, f"fit-{i}", 1)["TrainingJobStatus"] == "Completed"
                times.append(time.monotonic() - begin)
    return {"client": "the SDK" if sdk else "boto3", "median_s": sorted(times)[len(times) // 2], "slowest_s": max(times)}


def main():
    parts = {"size": size, "stop": stop, "fit": fit}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    figures = {}
    with servers.moto() as bucket, contextlib.ExitStack() as folders:
        for name in args.parts or parts:
            figures[name] = parts[name](bucket, folders.enter_context(tempfile.TemporaryDirectory(prefix="tdbg-service-")), args.quick)
            print(name, json.dumps(figures[name], indent=1))
    if args.json:
        args.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
