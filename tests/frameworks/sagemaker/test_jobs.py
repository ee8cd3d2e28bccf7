"""Plain boto3 against the service: jobs that train, fail, are stopped, and what is left of them in the bucket."""

import base64
import io
import json
import os
import signal
import subprocess
import tarfile
import time
import zipfile

import pytest

from . import service as parts


def phases(job):
    return [t["Status"] for t in job["SecondaryStatusTransitions"]]


def keys(service, bucket, prefix):
    return [o["Key"] for o in service.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]


def messages(service, job):
    """What a job has printed, a line each."""
    logs, group = service.client("logs"), "/aws/sagemaker/TrainingJobs"
    [stream] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{job}/")["logStreams"]
    return [event["message"] for event in logs.get_log_events(
        logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)["events"]]


def hook(bucket, every="2"):
    return {"DebugHookConfig": {
        "S3OutputPath": f"s3://{bucket}/debug",
        "CollectionConfigurations": [
            {"CollectionName": name, "CollectionParameters": {"save_interval": every}} for name in ("gradients", "losses")]}}


def rule(name, invoke, **parameters):
    return {"RuleConfigurationName": name, "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/"
            "sagemaker-debugger-rules:latest", "RuleParameters": {"rule_to_invoke": invoke, **parameters}}


CUSTOM = """
from smdebug.rules.rule import Rule

class CustomGradientRule(Rule):
    def __init__(self, base_trial, threshold="20.0"):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        return any(abs(self.base_trial.tensor(name).value(step)).mean() < self.threshold
                   for name in self.base_trial.tensor_names(collection="gradients"))
"""


@pytest.fixture(scope="module")
def trained(service, sagemaker, bucket):
    """A job with a hook, a rule that finds something, one that cannot be judged, one from a file, and an input channel."""
    service.client("s3").put_object(Bucket=bucket, Key="rules/custom_gradient_rule.py", Body=CUSTOM.encode())
    sagemaker.create_training_job(**parts.request(
        "trained", bucket, **hook(bucket),
        DebugRuleConfigurations=[rule("VanishingGradient", "VanishingGradient"),
                                 rule("Odd", "LossNotDecreasing", no_such_parameter="1"),
                                 rule("Custom", "CustomGradientRule", threshold="20.0",
                                      source_s3_uri=f"s3://{bucket}/rules/custom_gradient_rule.py")],
        InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/data/train"}}}]))
    first = sagemaker.describe_training_job(TrainingJobName="trained")
    assert [r["RuleEvaluationStatus"] for r in first["DebugRuleEvaluationStatuses"]][0] == "InProgress"
    return parts.wait(sagemaker, "trained")


def test_a_job_goes_through_its_states_and_leaves_its_model(service, bucket, trained):
    assert trained["TrainingJobStatus"] == "Completed", trained
    assert phases(trained) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert trained["TrainingTimeInSeconds"] >= 1 and trained["TrainingEndTime"] >= trained["TrainingStartTime"]
    key = trained["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{bucket}/")
    model = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(model)) as tar:
        assert tar.getnames() == ["model.pt"]


def test_rules_are_judged_and_told_in_sagemakers_words(service, sagemaker, trained):
    found, odd, custom = trained["DebugRuleEvaluationStatuses"]
    assert custom["RuleEvaluationStatus"] == "IssuesFound" and "CustomGradientRule" in custom["StatusDetails"], custom
    assert found["RuleEvaluationStatus"] == "IssuesFound", found
    assert found["StatusDetails"].startswith(
        "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step "), found
    assert found["StatusDetails"].endswith(" resulted in the condition being met\n")
    assert odd["RuleEvaluationStatus"] == "Error" and "no_such_parameter" in odd["StatusDetails"], odd
    job = sagemaker.describe_processing_job(ProcessingJobName=found["RuleEvaluationJobArn"].rpartition("/")[2])
    assert job["ProcessingJobStatus"] == "Completed" and job["ExitMessage"] == found["StatusDetails"]
    assert job["Environment"]["rule_to_invoke"] == "VanishingGradient"
    assert job["TrainingJobArn"] == trained["TrainingJobArn"]


def test_the_log_ends_and_says_what_the_script_printed(service, trained):
    logs = service.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="trained/")
    assert "nextToken" not in streams
    [stream] = [s["logStreamName"] for s in streams["logStreams"]]
    messages, token, pages = [], None, 0
    while True:
        page = logs.get_log_events(logGroupName=group, logStreamName=stream, startFromHead=True, limit=1,
                                   **({"nextToken": token} if token else {}))
        if not page["events"]:
            break
        messages += [e["message"] for e in page["events"]]
        token, pages = page["nextForwardToken"], pages + 1
        assert pages < 100
    assert messages[0] == "channels [\"train\"] lr 0.1" and messages[-1] == "trained 30", messages
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.get_log_events(logGroupName=group, logStreamName="trained/other", startFromHead=True)


def test_debug_output_is_smdebugs_layout_and_opens_from_the_bucket(service, bucket, trained):
    there = keys(service, bucket, "debug/trained/debug-output/")
    assert "debug/trained/debug-output/training_job_end.ts" in there, there
    assert any("/index/" in k for k in there) and any(k.endswith(".tfevents") for k in there)
    read = subprocess.run(
        [parts.TRAINS, "-c", "import sys, json, tdbg; t = tdbg.create_trial(sys.argv[1]);"
         "g = t.tensor_names(collection='gradients'); print(json.dumps([t.loaded_all_steps, t.steps(), len(g)]))",
         f"s3://{bucket}/debug/trained/debug-output"],
        env={**service.environment, **service.variables, "PYTHONPATH": os.environ["TDBG_HOME"]}, capture_output=True,
        text=True, timeout=120)
    assert read.returncode == 0, read.stderr
    complete, steps, gradients = json.loads(read.stdout.splitlines()[-1])
    assert complete is True and steps == list(range(0, 30, 2)) and gradients == 22


def test_a_script_that_fails_says_why(service, sagemaker, bucket):
    service.client("s3").put_object(Bucket=bucket, Key="code/fails.tar.gz", Body=parts.archive(
        {"train.py": "import sys\nprint('about to fail', flush=True)\nraise ValueError('no such data')\n"}))
    changed = parts.request("fails", bucket)
    changed["HyperParameters"]["sagemaker_submit_directory"] = f"s3://{bucket}/code/fails.tar.gz"
    sagemaker.create_training_job(**changed)
    job = parts.wait(sagemaker, "fails")
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError: ExecuteUserScriptError:"), job["FailureReason"]
    assert "ValueError: no such data" in job["FailureReason"]
    assert phases(job)[:3] == ["Starting", "Downloading", "Training"]


@pytest.mark.parametrize(("name", "change", "reason"), [
    ("unmapped", {"AlgorithmSpecification": {"TrainingImage": "1.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.12",
                                             "TrainingInputMode": "File"}}, "add 'tensorflow-training'"),
    ("nothing", {"HyperParameters": {}}, "sagemaker_program"),
    ("no-input", {"InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {
        "S3DataType": "S3Prefix", "S3Uri": "s3://jobs/nowhere"}}}]}, "No S3 objects found"),
    ("escapes", {"HyperParameters": {"sagemaker_program": "../../../bin/true",
                                     "sagemaker_submit_directory": "s3://jobs/code/sourcedir.tar.gz"}},
     "leads out of the code"),
])
def test_what_cannot_start_fails_and_names_it(service, sagemaker, bucket, name, change, reason):
    sagemaker.create_training_job(**{**parts.request(name, bucket), **change})
    job = parts.wait(sagemaker, name)
    assert job["TrainingJobStatus"] == "Failed" and reason in job["FailureReason"], job.get("FailureReason")
    assert job["FailureReason"].startswith("ClientError"), job["FailureReason"]


def hostile(kind):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        if kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        elif kind == "device":
            info.type = tarfile.CHRTYPE
        elif kind == "hard link":
            info.type, info.linkname = tarfile.LNKTYPE, "../../../job.json"
        else:
            info.name = {"dots": "../../../../../written", "absolute": "/tmp/tdbg-service-test-written"}[kind]
            info.size = 4
        tar.addfile(info, io.BytesIO(b"bad\n"))
    return data.getvalue()


@pytest.mark.parametrize("kind", ["link", "hard link", "device", "dots", "absolute"])
def test_hostile_archives_are_refused(service, sagemaker, bucket, kind):
    name = "hostile-" + kind.replace(" ", "-")
    service.client("s3").put_object(Bucket=bucket, Key=f"code/{name}.tar.gz", Body=hostile(kind))
    changed = parts.request(name, bucket)
    changed["HyperParameters"]["sagemaker_submit_directory"] = f"s3://{bucket}/code/{name}.tar.gz"
    sagemaker.create_training_job(**changed)
    job = parts.wait(sagemaker, name)
    assert job["TrainingJobStatus"] == "Failed" and "sagemaker_submit_directory" in job["FailureReason"]
    assert not os.path.exists("/tmp/tdbg-service-test-written")
    assert not list(service.state.rglob("written"))


def test_stop_ends_as_stopped_and_keeps_the_model_folder(service, sagemaker, bucket):
    changed = parts.request("stopped", bucket, **hook(bucket))
    changed["HyperParameters"].update(steps="100000", nap="0.05")
    sagemaker.create_training_job(**changed)
    parts.wait(sagemaker, "stopped", until=("Training", *parts.ENDED))
    sagemaker.stop_training_job(TrainingJobName="stopped")
    sagemaker.stop_training_job(TrainingJobName="stopped")
    job = parts.wait(sagemaker, "stopped")
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Stopped", job
    assert phases(job) == ["Starting", "Downloading", "Training", "Stopping", "Stopped"]
    with pytest.raises(sagemaker.exceptions.ClientError, match="is in status Stopped"):
        sagemaker.stop_training_job(TrainingJobName="stopped")
    assert "debug/stopped/debug-output/training_job_end.ts" in keys(service, bucket, "debug/stopped/")


def test_a_server_that_is_killed_takes_no_job_along(service, sagemaker, bucket):
    changed = parts.request("survives", bucket)
    changed["HyperParameters"].update(steps="100", nap="0.05")
    sagemaker.create_training_job(**changed)
    parts.wait(sagemaker, "survives", until=("Training", *parts.ENDED))
    lock = service.job_directory("survives") / "tender.lock"
    holder = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"--tend\0" + str(lock.parent).encode() in command(pid)]
    assert len(holder) == 1, holder
    os.kill(int(holder[0]), signal.SIGKILL)     # who looks after the job: the server starts another one
    job = parts.wait(sagemaker, "survives")
    assert job["TrainingJobStatus"] == "Completed", job
    assert phases(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_second_server_on_the_same_jobs_says_so(service):
    done = service.run("serve", "--state", str(service.state), "--local-aws")
    assert done.returncode != 0 and "another server" in done.stderr


def test_who_does_not_know_the_key_gets_nothing(service):
    import boto3
    stranger = boto3.client("sagemaker", endpoint_url=service.variables["AWS_ENDPOINT_URL_SAGEMAKER"],
                            region_name="us-east-1", aws_access_key_id="guess", aws_secret_access_key="guess")
    with pytest.raises(stranger.exceptions.ClientError, match="access key"):
        stranger.list_training_jobs()


HANDLER = """
import boto3, json, os

def lambda_handler(event, context):
    detail = event["detail"]
    for status in detail.get("DebugRuleEvaluationStatuses", []):
        if status["RuleEvaluationStatus"] == "IssuesFound" and detail["TrainingJobStatus"] == "InProgress":
            boto3.client("sagemaker").stop_training_job(TrainingJobName=detail["TrainingJobName"])
    return {"statusCode": 200}
"""


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as code:
        for name, text in files.items():
            code.writestr(name, text)
    return data.getvalue()


def test_an_event_calls_a_function_that_stops_the_job(service, sagemaker, bucket):
    functions, events = service.client("lambda"), service.client("events")
    function = functions.create_function(
        FunctionName="stopper", Runtime="python3.11", Role=parts.ROLE, Handler="handler.lambda_handler",
        Code={"ZipFile": zipped({"handler.py": HANDLER})}, Timeout=30)
    functions.add_permission(FunctionName="stopper", StatementId="1", Action="lambda:InvokeFunction",
                             Principal="events.amazonaws.com")
    assert [f["FunctionName"] for f in functions.list_functions()["Functions"]] == ["stopper"]
    events.put_rule(Name="issues", EventPattern=json.dumps({
        "source": ["aws.sagemaker"], "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobName": ["caught"]}}))
    events.put_targets(Rule="issues", Targets=[{"Id": "1", "Arn": function["FunctionArn"]}])
    changed = parts.request("caught", bucket, **hook(bucket),
                            DebugRuleConfigurations=[rule("VanishingGradient", "VanishingGradient")])
    changed["HyperParameters"].update(steps="100000", nap="0.05")
    sagemaker.create_training_job(**changed)
    job = parts.wait(sagemaker, "caught")
    assert job["TrainingJobStatus"] == "Stopped", job
    assert job["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "IssuesFound"
    events.remove_targets(Rule="issues", Ids=["1"])
    events.delete_rule(Name="issues")
    functions.delete_function(FunctionName="stopper")
    assert functions.list_functions()["Functions"] == []
    with pytest.raises(functions.exceptions.ResourceNotFoundException):
        functions.get_function(FunctionName="stopper")


ANSWERS = """
import boto3, os

def handler(event, context):
    print("asked for", event)
    if event == "raise":
        raise KeyError("no such thing")
    if event == "exit":
        os._exit(3)
    if event == "odd":
        return {1, 2}
    # It calls the service that waits for it.
    jobs = boto3.client("sagemaker").list_training_jobs(MaxResults=1)["TrainingJobSummaries"]
    return {"event": event, "mode": os.environ["MODE"], "name": context.function_name, "jobs": len(jobs)}

def other(event, context):
    return "other"
"""


def test_functions_are_invoked_and_reconfigured(service, trained):
    """After `trained`: there is a job to find."""
    functions = service.client("lambda")
    functions.create_function(FunctionName="answers", Runtime="python3.11", Role=parts.ROLE, Handler="f.handler",
                              Code={"ZipFile": zipped({"f.py": ANSWERS})}, Environment={"Variables": {"MODE": "one"}})

    def invoke(event, **named):
        return functions.invoke(FunctionName="answers", Payload=json.dumps(event), **named)

    answer = invoke({"a": [1, None]}, LogType="Tail")
    assert answer["StatusCode"] == 200 and "FunctionError" not in answer and answer["ExecutedVersion"] == "$LATEST"
    assert json.loads(answer["Payload"].read()) == {"event": {"a": [1, None]}, "mode": "one", "name": "answers", "jobs": 1}
    assert b"asked for {'a': [1, None]}" in base64.b64decode(answer["LogResult"])
    for event, kind, said in (("raise", "KeyError", "no such thing"), ("exit", "Runtime.ExitError", "exited with code 3"),
                              ("odd", "TypeError", "Unable to marshal response")):
        failed = invoke(event)
        error = json.loads(failed["Payload"].read())
        assert failed["FunctionError"] == "Unhandled" and error["errorType"] == kind and said in error["errorMessage"], error
    assert invoke({}, InvocationType="Event")["StatusCode"] == 202
    assert invoke({}, InvocationType="DryRun")["StatusCode"] == 204
    with pytest.raises(functions.exceptions.InvalidRequestContentException):
        functions.invoke(FunctionName="answers", Payload=b"{")

    with pytest.raises(functions.exceptions.InvalidParameterValueException, match="handler"):
        functions.update_function_configuration(FunctionName="answers", Handler="none.handler")
    changed = functions.update_function_configuration(FunctionName="answers", Handler="f.other", Timeout=90,
                                                      Environment={"Variables": {"MODE": "two"}})
    assert (changed["Handler"], changed["Timeout"], changed["Environment"]["Variables"]) == ("f.other", 90, {"MODE": "two"})
    assert json.loads(invoke({})["Payload"].read()) == "other"
    functions.update_function_code(FunctionName="answers", ZipFile=zipped({"f.py": "def other(e, c):\n    return [e]\n"}))
    assert json.loads(invoke(7)["Payload"].read()) == [7]
    with pytest.raises(functions.exceptions.ResourceNotFoundException):
        functions.invoke(FunctionName="none")
    functions.delete_function(FunctionName="answers")


def test_a_rule_is_stopped_alone_and_a_job_deleted_once_it_has_ended(service, sagemaker, bucket):
    stop = json.dumps([{"name": "stoptraining"}])
    changed = parts.request("one-rule", bucket, **hook(bucket), DebugRuleConfigurations=[
        rule("Stopped", "ExplodingTensor"), rule("Acts", "ExplodingTensor", action_json=stop)])
    changed["HyperParameters"].update(steps="100000", nap="0.05")
    sagemaker.create_training_job(**changed)
    job = parts.wait(sagemaker, "one-rule", until=("Training", *parts.ENDED))
    stopped, acts = (r["RuleEvaluationJobArn"].rpartition("/")[2] for r in job["DebugRuleEvaluationStatuses"])
    with pytest.raises(sagemaker.exceptions.ClientError, match="a rule with actions"):
        sagemaker.stop_processing_job(ProcessingJobName=acts)
    with pytest.raises(sagemaker.exceptions.ClientError, match="has not ended"):
        sagemaker.delete_training_job(TrainingJobName="one-rule")
    sagemaker.stop_processing_job(ProcessingJobName=stopped)
    end = time.monotonic() + 120
    while sagemaker.describe_processing_job(ProcessingJobName=stopped)["ProcessingJobStatus"] != "Stopped":
        assert time.monotonic() < end
        time.sleep(0.2)
    with pytest.raises(sagemaker.exceptions.ClientError, match="is in status Stopped"):
        sagemaker.stop_processing_job(ProcessingJobName=stopped)
    assert sagemaker.describe_training_job(TrainingJobName="one-rule")["TrainingJobStatus"] == "InProgress"
    sagemaker.stop_training_job(TrainingJobName="one-rule")
    ended = parts.wait(sagemaker, "one-rule")
    assert ended["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "Stopped", ended
    until = time.monotonic() + 60
    while (service.job_directory("one-rule") / "job.json").exists():
        try:
            sagemaker.delete_training_job(TrainingJobName="one-rule")
        except sagemaker.exceptions.ClientError:
            assert time.monotonic() < until         # handlers may be told yet
            time.sleep(0.2)
    with pytest.raises(sagemaker.exceptions.ClientError, match="not found"):
        sagemaker.describe_training_job(TrainingJobName="one-rule")
