import pytest

from . import service as parts


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """One server for all tests: starting moto takes longer than most of them."""
    with parts.running(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="session")
def bucket(service):
    """A bucket with the code of a training."""
    s3 = service.client("s3")
    s3.create_bucket(Bucket="jobs")
    s3.put_object(Bucket="jobs", Key="code/sourcedir.tar.gz", Body=parts.archive({"train.py": parts.TRAINING}))
    s3.put_object(Bucket="jobs", Key="data/train/part-0.csv", Body=b"1,2\n")
    return "jobs"


@pytest.fixture(scope="session")
def sagemaker(service):
    return service.client("sagemaker")
