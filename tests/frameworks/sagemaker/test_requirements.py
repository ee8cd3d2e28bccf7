"""requirements.txt: installed into an environment of the job's own, from a folder of wheels, and taken away with it."""

import base64
import hashlib
import subprocess
import zipfile

import pytest

from . import service as parts
from .test_jobs import messages

CODE = """
import os, subprocess, sys
import torch, tdbg_test_package
print("package", tdbg_test_package.VALUE, "torch", torch.__version__ != "")
print("python", subprocess.run(["python", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True).stdout)
"""


def wheel(folder, name, value):
    """A wheel of one module, written by hand: no build tool is asked."""
    info = f"{name}-1.0.dist-info"
    files = {f"{name}.py": f"VALUE = {value!r}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text.encode())}\n" for path, text in files.items())
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A server with a folder of wheels, in which there is one."""
    folder = tmp_path_factory.mktemp("indexed")
    wheels = folder / "wheels"
    wheels.mkdir()
    wheel(wheels, "tdbg_test_package", 42)
    with parts.running(folder, "--package-index", str(wheels)) as service:
        service.client("s3").create_bucket(Bucket="jobs")
        yield service


def train(service, name, files):
    s3, sagemaker = service.client("s3"), service.client("sagemaker")
    s3.put_object(Bucket="jobs", Key=f"code/{name}.tar.gz", Body=parts.archive(files))
    changed = parts.request(name, "jobs")
    changed["HyperParameters"]["sagemaker_submit_directory"] = f"s3://jobs/code/{name}.tar.gz"
    sagemaker.create_training_job(**changed)
    return parts.wait(sagemaker, name)


def test_what_the_code_asks_for_is_there_and_nobody_elses(indexed):
    job = train(indexed, "asks", {"train.py": CODE, "requirements.txt": "tdbg-test-package==1.0\ntorch\n"})
    assert job["TrainingJobStatus"] == "Completed", job
    said = messages(indexed, "asks")
    assert "package 42 torch True" in said, said
    folder = indexed.job_directory("asks") / "environment"
    assert f"python {folder}" in said, said
    assert not folder.exists()
    outside = subprocess.run([parts.TRAINS, "-c", "import tdbg_test_package"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in outside.stderr


def test_what_cannot_be_had_fails_the_job_and_names_it(indexed):
    job = train(indexed, "lacks", {"train.py": CODE, "requirements.txt": "tdbg-test-no-such-package\n"})
    assert job["TrainingJobStatus"] == "Failed", job
    assert job["FailureReason"].startswith("AlgorithmError: InstallRequirementsError:"), job["FailureReason"]
    assert "tdbg-test-no-such-package" in job["FailureReason"]
    assert [t["Status"] for t in job["SecondaryStatusTransitions"]] == ["Starting", "Downloading", "Failed"]


def test_without_an_index_the_log_says_that_nothing_was_installed(service, bucket):
    job = train(service, "unindexed", {"train.py": "print('trains')\n", "requirements.txt": "tdbg-test-package\n"})
    assert job["TrainingJobStatus"] == "Completed", job
    first, *_, last = messages(service, "unindexed")
    assert first.startswith("tdbg serve: requirements.txt is not installed") and "--package-index" in first
    assert str(parts.TRAINS) in first, "the path of a server that was started there is no secret"
    assert last == "trains"
