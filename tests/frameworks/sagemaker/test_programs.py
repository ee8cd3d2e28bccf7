"""The programs of examples/sagemaker as they were for SageMaker, unmodified, all at once against one server. The fifth one
is in test_algorithm.py; the eight `fit()` of configurations.py wait for minutes, one after the other, and are not tried.
What they become with `tdbg run` is tests/python/test_sagemaker_notebooks.py."""

import json
import os
import subprocess
import sys
import time

import pytest

from . import service as parts
from .test_jobs import HANDLER, messages, phases, zipped

EXAMPLES = parts.ROOT / "examples" / "sagemaker"
BUCKET = "sagemaker-us-east-1-123456789012"
pytestmark = pytest.mark.timeout(900)


def named(sagemaker, prefix, seconds=300):
    """The name of the job that begins so, once there is one."""
    end = time.monotonic() + seconds
    while True:
        found = [job["TrainingJobName"] for job in sagemaker.list_training_jobs(NameContains=prefix)["TrainingJobSummaries"]]
        if found:
            assert len(found) == 1, found
            return found[0]
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.fixture(scope="module")
def programs(service):
    """All of them, running; the handler that stops the first one is registered before it begins."""
    s3 = service.client("s3")
    if BUCKET not in [b["Name"] for b in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=BUCKET)
    functions, events = service.client("lambda"), service.client("events")
    function = functions.create_function(FunctionName="stops", Runtime="python3.11", Role=parts.ROLE,
                                         Handler="handler.lambda_handler", Code={"ZipFile": zipped({"handler.py": HANDLER})})
    events.put_rule(Name="stops", EventPattern=json.dumps({
        "source": ["aws.sagemaker"], "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": [{"prefix": "vanishing-gradient-"}]}}))
    events.put_targets(Rule="stops", Targets=[{"Id": "1", "Arn": function["FunctionArn"]}])
    running = {name: subprocess.Popen(
        [parts.BINARY, "aws-env", "--state", service.state, "--", sys.executable, f"{name}.py"], cwd=EXAMPLES,
        env=service.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name in ("vanishing_gradient", "first_convolution", "spot_training")}
    yield running
    for process in running.values():
        process.kill()
        process.wait(60)
    events.remove_targets(Rule="stops", Ids=["1"])
    events.delete_rule(Name="stops")
    functions.delete_function(FunctionName="stops")


def printed(process):
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out[-4000:]
    return out


def test_a_spot_training_is_interrupted_and_goes_on(service, sagemaker, programs):
    name = named(sagemaker, "spot-training-")
    checkpoint = service.job_directory(name) / "ml/checkpoints/last.pt"
    end = time.monotonic() + 300
    while not checkpoint.exists():
        assert time.monotonic() < end and parts.wait(sagemaker, name, ("Training", *parts.ENDED))
        time.sleep(0.05)
    done = service.run("interrupt", str(service.job_directory(name) / "runs" / name))
    assert done.returncode == 0, done.stderr
    out = printed(programs["spot_training"])
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] == "Completed", job
    assert phases(job) == ["Starting", "Downloading", "Training", "Interrupted", "Starting", "Training", "Uploading", "Completed"]
    assert "goes on with epoch" in out and "Managed Spot Training savings" in out
    assert "tdbg serve: /opt/ml is as another machine would find it" in messages(service, name)
    keys = service.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="spot-training/")["Contents"]
    assert "spot-training/last.pt" in [key["Key"] for key in keys]


def test_an_event_stops_a_job_whose_gradient_vanishes(sagemaker, programs):
    out = printed(programs["vanishing_gradient"])
    assert "'RuleEvaluationStatus': 'InProgress'" in out
    name = named(sagemaker, "vanishing-gradient-")
    job = parts.wait(sagemaker, name, seconds=300)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Stopped", job
    assert phases(job) == ["Starting", "Downloading", "Training", "Stopping", "Stopped"]
    vanishing, decreasing = job["DebugRuleEvaluationStatuses"]
    assert vanishing["RuleEvaluationStatus"] == "IssuesFound" and vanishing["StatusDetails"].startswith(
        "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step "), vanishing
    assert decreasing["RuleConfigurationName"] == "LossNotDecreasing"


def test_the_first_convolution_is_in_the_bucket(service, sagemaker, programs):
    place = printed(programs["first_convolution"]).split()[-1]
    name = named(sagemaker, "first-convolution-")
    assert parts.wait(sagemaker, name, seconds=300)["TrainingJobStatus"] == "Completed"
    assert place == f"s3://{BUCKET}/first-convolution/{name}/debug-output"
    looked = subprocess.run(
        [parts.TRAINS, "-c", "import sys, json, tdbg; t = tdbg.create_trial(sys.argv[1]); print(json.dumps("
         "[t.tensor_names(collection='conv0_tensors'), t.tensor('conv0_output_0').steps(), "
         "list(t.tensor('conv0_output_0').value(0).shape)]))", place],
        env={**service.environment, **service.variables, "PYTHONPATH": os.environ["TDBG_HOME"]}, capture_output=True,
        text=True, timeout=300)
    assert looked.returncode == 0, looked.stderr
    names, steps, shape = json.loads(looked.stdout.splitlines()[-1])
    assert names == ["Net_conv0.bias", "Net_conv0.weight", "conv0_input_0", "conv0_output_0", "conv0_relu_input_0",
                     "conv0_relu_output_0", "gradient/Net_conv0.bias", "gradient/Net_conv0.weight"]
    assert steps == [0, 100, 200, 300] and shape == [256, 6, 24, 24]
