"""What is said of a job's outputs is true: where they go is looked at before it trains, and what did not arrive is told."""

import time

import pytest

from . import service as parts
from .test_jobs import hook, keys, messages, phases


@pytest.mark.parametrize("change", [
    {"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket/out"}},
    {"DebugHookConfig": {"S3OutputPath": "s3://no-such-bucket/debug"}},
    {"TensorBoardOutputConfig": {"S3OutputPath": "s3://no-such-bucket/board"}},
    {"CheckpointConfig": {"S3Uri": "s3://no-such-bucket/checkpoints"}},
], ids=lambda change: next(iter(change)))
def test_a_bucket_that_is_none_is_told_before_it_trains(service, sagemaker, bucket, change):
    name = "lost-" + next(iter(change))
    sagemaker.create_training_job(**{**parts.request(name, bucket), **change})
    job = parts.wait(sagemaker, name)
    assert job["TrainingJobStatus"] == "Failed" and phases(job) == ["Starting", "Downloading", "Failed"], job
    assert job["FailureReason"].startswith("ClientError: " + next(iter(change))), job["FailureReason"]
    assert "no bucket 'no-such-bucket'" in job["FailureReason"]


@pytest.mark.parametrize("member", ["DebugHookConfig", "TensorBoardOutputConfig"])
def test_outputs_that_do_not_arrive_are_told_and_the_training_counts(service, sagemaker, bucket, member):
    s3 = service.client("s3")
    name, gone = "gone-" + member, "gone-" + member.lower()
    s3.create_bucket(Bucket=gone)
    config = hook(gone) if member == "DebugHookConfig" else {member: {"S3OutputPath": f"s3://{gone}/board"}}
    changed = parts.request(name, bucket, **config)
    # TensorBoard's files are the script's to write.
    changed["HyperParameters"].update(steps="100", nap="0.05")
    sagemaker.create_training_job(**changed)
    parts.wait(sagemaker, name, until=("Training", *parts.ENDED))
    if member == "TensorBoardOutputConfig":
        (service.job_directory(name) / "ml/output/tensorboard").mkdir(parents=True, exist_ok=True)
        (service.job_directory(name) / "ml/output/tensorboard/of-the-script").write_text("x")
    for key in keys(service, gone, ""):
        s3.delete_object(Bucket=gone, Key=key)
    while True:     # what is sent at this moment comes between
        try:
            s3.delete_bucket(Bucket=gone)
            break
        except s3.exceptions.ClientError:
            for key in keys(service, gone, ""):
                s3.delete_object(Bucket=gone, Key=key)
    job = parts.wait(sagemaker, name)
    assert job["TrainingJobStatus"] == "Completed", job
    said = job["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert said.startswith("Training job completed; the ") and f"could not all be uploaded to s3://{gone}/" in said, said
    assert messages(service, name)[-1].startswith("tdbg serve: the ")
    assert keys(service, bucket, f"out/{name}/output/") == [f"out/{name}/output/model.tar.gz"]


def test_a_model_that_is_not_to_be_packed_is_its_files(service, sagemaker, bucket):
    changed = parts.request("loose", bucket)
    changed["OutputDataConfig"]["CompressionType"] = "NONE"
    sagemaker.create_training_job(**changed)
    job = parts.wait(sagemaker, "loose")
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{bucket}/out/loose/output/model/"
    assert keys(service, bucket, "out/loose/output/") == ["out/loose/output/model/model.pt"]


def test_an_interruption_is_no_end_to_readers_of_the_bucket(service, sagemaker, bucket):
    """The platform's word for the end is written once: no reader may leave while the job trains on."""
    changed = parts.request("reclaimed", bucket, **hook(bucket), EnableManagedSpotTraining=True,
                            StoppingCondition={"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 600})
    changed["HyperParameters"].update(steps="100", nap="0.05")
    sagemaker.create_training_job(**changed)
    end = "debug/reclaimed/debug-output/training_job_end.ts"
    while not keys(service, bucket, "debug/reclaimed/debug-output/index/"):
        time.sleep(0.1)
    done = service.run("interrupt", str(service.job_directory("reclaimed") / "runs/reclaimed"))
    assert done.returncode == 0, done.stderr
    while (job := sagemaker.describe_training_job(TrainingJobName="reclaimed"))["SecondaryStatus"] not in ("Uploading", *parts.ENDED):
        assert end not in keys(service, bucket, end) or "Uploading" in phases(
            sagemaker.describe_training_job(TrainingJobName="reclaimed")), phases(job)
    job = parts.wait(sagemaker, "reclaimed")
    assert job["TrainingJobStatus"] == "Completed" and "Interrupted" in phases(job), job
    assert keys(service, bucket, end) == [end]


def test_a_rule_for_events_that_are_never_made_is_refused(service):
    events = service.client("events")
    with pytest.raises(events.exceptions.ClientError, match="no event of this service has that detail-type"):
        events.put_rule(Name="processing", EventPattern='{"detail-type": ["SageMaker Processing Job State Change"]}')
    for pattern in ('{"detail-type": [{"prefix": "SageMaker"}]}', '{"source": ["aws.sagemaker"]}'):
        events.put_rule(Name="others", EventPattern=pattern)
    events.delete_rule(Name="others")


def test_a_server_that_comes_back_is_where_it_was(tmp_path):
    service = parts.Service(tmp_path)
    service.flags = [flag for flag in service.flags if flag != "--local-aws"]
    service.environment.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    first = service.start()["address"]
    for end in ("kill", "terminate"):
        getattr(service.process, end)()
        service.process.wait(60)
        assert service.start()["address"] == first, end
    service.stop()
