"""More jobs than the service runs at a time: they wait, in the order of their creation, over a server that is killed."""

import sys
import time

import botocore.exceptions
import pytest

from . import service as parts
from .test_jobs import phases

sys.path.append(str(parts.ROOT / "tests/storage"))
import servers  # noqa: E402


@pytest.fixture
def service(tmp_path):
    with servers.moto() as bucket:     # of its own: with the server's own moto the bucket would end, too
        service = parts.Service(tmp_path, "--max-jobs", "2")
        service.flags.remove("--local-aws")
        service.environment.update(bucket.env())
        service.start()
        service.client("s3").put_object(Bucket="bucket", Key="code/sourcedir.tar.gz",
                                        Body=parts.archive({"train.py": "import time; time.sleep(2)"}))
        yield service
        service.stop()


def times(job):
    """When it began and when it ended, as its transitions say."""
    began = {t["Status"]: t["StartTime"] for t in job["SecondaryStatusTransitions"]}
    return began["Starting"], began["Completed"]


def test_jobs_wait_for_their_turn_and_a_killed_server_changes_nothing(service):
    sagemaker = service.client("sagemaker")
    names = [f"turn-{9 - i}" for i in range(6)]           # not the order of their names
    for name in names:
        sagemaker.create_training_job(**parts.request(name, "bucket"))
    waits = sagemaker.describe_training_job(TrainingJobName=names[-1])
    assert (waits["TrainingJobStatus"], waits["SecondaryStatus"]) == ("InProgress", "Pending")
    assert "2 jobs at a time" in waits["SecondaryStatusTransitions"][-1]["StatusMessage"]
    with pytest.raises(botocore.exceptions.ClientError, match="has not ended"):
        sagemaker.delete_training_job(TrainingJobName=names[3])
    sagemaker.stop_training_job(TrainingJobName=names[3])
    stopped = parts.wait(sagemaker, names[3])
    assert phases(stopped) == ["Pending", "Stopped"], stopped
    sagemaker.delete_training_job(TrainingJobName=names[3])
    with pytest.raises(botocore.exceptions.ClientError, match="not found"):
        sagemaker.describe_training_job(TrainingJobName=names.pop(3))

    for name in names[:-1]:                               # again and again, while some train and others wait
        parts.wait(sagemaker, name, until=("Starting", "Downloading", "Training", *parts.ENDED))
        service.process.kill()
        service.process.wait(20)
        service.process.stdout.close()
        service.start()
        sagemaker = service.client("sagemaker")
    jobs = [parts.wait(sagemaker, name) for name in names]
    assert {job["TrainingJobStatus"] for job in jobs} == {"Completed"}, jobs
    assert phases(jobs[-1]) == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]
    spans = [times(job) for job in jobs]
    assert [began for began, _ in spans] == sorted(began for began, _ in spans)
    for began, _ in spans:
        assert sum(a <= began < b for a, b in spans) <= 2, spans


def test_two_servers_do_not_start_a_job_twice(service):
    """A second one on the same jobs ends; of two processes that look after a job at the same moment, one goes on."""
    other = service.run("serve", "--state", service.state)
    assert other.returncode != 0 and "another server has these jobs" in other.stderr
    sagemaker = service.client("sagemaker")
    sagemaker.create_training_job(**parts.request("once", "bucket"))
    end = time.monotonic() + 60
    while service.run("serve", "--tend", service.job_directory("once")).returncode == 0:    # as an impatient server would
        if sagemaker.describe_training_job(TrainingJobName="once")["TrainingJobStatus"] in parts.ENDED:
            break
        assert time.monotonic() < end
    job = parts.wait(sagemaker, "once")
    assert phases(job) == ["Starting", "Downloading", "Training", "Uploading", "Completed"], job
