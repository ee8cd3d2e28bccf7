"""XGBoost in algorithm mode: the program of examples/sagemaker/boosting.py, unmodified, by the SDK's own `fit()`."""

import json
import os
import subprocess
import sys
import tarfile

import pytest

from . import service as parts

EXAMPLES = parts.ROOT / "examples" / "sagemaker"
LOOK = """
import sys, json, pathlib, tarfile, tdbg, xgboost
trial = tdbg.create_trial(sys.argv[1])
rmse = trial.tensor("train-rmse")
with tarfile.open(sys.argv[2]) as model:
    booster = xgboost.Booster()
    booster.load_model(bytearray(model.extractfile("xgboost-model").read()))
print(json.dumps({"steps": rmse.steps(), "first": rmse.value(0).item(), "last": rmse.value(rmse.steps()[-1]).item(),
                  "metrics": trial.tensor_names(collection="metrics"), "trees": booster.num_boosted_rounds(),
                  "importances": len(trial.tensor_names(collection="feature_importance")),
                  "shap": trial.tensor_names(collection="average_shap")}))
"""


@pytest.fixture(scope="module")
def boosted(service, sagemaker, tmp_path_factory):
    """The job of that program: its last description, and what it printed."""
    rows = (parts.ROOT / "examples/abalone/table.csv").read_text().splitlines()[1:]
    s3, bucket = service.client("s3"), "sagemaker-us-east-1-123456789012"
    if bucket not in [b["Name"] for b in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket)
    for name, part in ("train", rows[:1600]), ("validation", rows[1600:]):
        s3.put_object(Bucket=bucket, Key=f"abalone/{name}/table.csv", Body="\n".join(part).encode())
    done = subprocess.run(
        [parts.BINARY, "aws-env", "--state", service.state, "--", sys.executable, "boosting.py"], cwd=EXAMPLES,
        env=service.environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])
    [summary] = sagemaker.list_training_jobs(NameContains="boosting-")["TrainingJobSummaries"]
    return sagemaker.describe_training_job(TrainingJobName=summary["TrainingJobName"]), done.stdout, bucket


def test_it_trains_and_a_rule_finds_that_the_metric_stands_still(service, sagemaker, boosted):
    job, printed, _ = boosted
    assert job["TrainingJobStatus"] == "Completed", job
    phases = [t["Status"] for t in job["SecondaryStatusTransitions"]]
    assert phases == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    decreasing, report = job["DebugRuleEvaluationStatuses"]
    assert decreasing["RuleConfigurationName"] == "LossNotDecreasing"
    assert decreasing["RuleEvaluationStatus"] == "IssuesFound", decreasing
    assert report["RuleEvaluationStatus"] == "NoIssuesFound", report
    assert "[50]\ttrain-rmse:" in printed and "validation-rmse:" in printed


def test_tensors_model_and_report_are_in_the_bucket(service, boosted, tmp_path):
    job, _, bucket = boosted
    s3, name = service.client("s3"), job["TrainingJobName"]
    model = tmp_path / "model.tar.gz"
    model.write_bytes(s3.get_object(Bucket=bucket, Key=job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(
        f"s3://{bucket}/"))["Body"].read())
    with tarfile.open(model) as archive:
        assert archive.getnames() == ["xgboost-model"]
    looked = subprocess.run(
        [parts.TRAINS, "-c", LOOK, f"s3://{bucket}/abalone/{name}/debug-output", model],
        env={**service.environment, **service.variables, "PYTHONPATH": os.environ["TDBG_HOME"]}, capture_output=True,
        text=True, timeout=300)
    assert looked.returncode == 0, looked.stderr
    found = json.loads(looked.stdout.splitlines()[-1])
    assert found["steps"] == list(range(0, 51, 5)) and found["last"] < found["first"]
    assert found["metrics"] == ["train-rmse", "validation-rmse"] and found["trees"] == 51
    assert found["importances"] > 5 and "average_shap/bias" in found["shap"], found
    output = job["OutputDataConfig"]["S3OutputPath"].removeprefix(f"s3://{bucket}").strip("/")
    key = "/".join(filter(None, [output, name, "rule-output/CreateXgboostReport/xgboost_report.html"]))
    report = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert "Feature importance" in report and "Residuals" in report
    [processing] = [r["RuleEvaluationJobArn"].rpartition("/")[2] for r in job["DebugRuleEvaluationStatuses"]
                    if r["RuleConfigurationName"] == "CreateXgboostReport"]
    told = service.client("sagemaker").describe_processing_job(ProcessingJobName=processing)
    assert told["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"] + "/xgboost_report.html" == f"s3://{bucket}/{key}"


def test_a_hyperparameter_that_is_none_fails_the_job_and_is_named(service, sagemaker, bucket):
    request = parts.request("misspelt", bucket, HyperParameters={"num_round": "3", "etaa": "0.1"}, InputDataConfig=[
        {"ChannelName": "train", "ContentType": "csv", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/data/train"}}}])
    request["AlgorithmSpecification"]["TrainingImage"] = "1.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
    sagemaker.create_training_job(**request)
    job = parts.wait(sagemaker, "misspelt")
    assert job["TrainingJobStatus"] == "Failed", job
    assert job["FailureReason"].startswith("ClientError: hyperparameter etaa: "), job["FailureReason"]
