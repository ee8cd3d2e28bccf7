"""An unmodified program of the SageMaker SDK: from `fit()` to `rule_job_summary()`, and who stops whom."""

import json

import pytest

from . import service as parts

PROGRAM = """
import json, pathlib, sys, tempfile
import sagemaker
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from sagemaker.estimator import Framework
from sagemaker.pytorch import PyTorch

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "train.py").write_text(sys.argv[1])
session = sagemaker.Session()
estimator = PyTorch(
    entry_point="train.py", source_dir=str(folder), role=sagemaker.get_execution_role(), sagemaker_session=session,
    framework_version="2.0.0", py_version="py310", instance_count=1, instance_type="ml.m5.xlarge",
    hyperparameters={"lr": "10.00", "steps": 30},
    debugger_hook_config=DebuggerHookConfig(
        s3_output_path=f"s3://{session.default_bucket()}/debug",
        collection_configs=[CollectionConfig("gradients", {"save_interval": "2"})]),
    rules=[Rule.sagemaker(rule_configs.vanishing_gradient()), Rule.sagemaker(rule_configs.loss_not_decreasing())])
estimator.fit(wait=True, logs="All")
description = estimator.latest_training_job.describe()
print("RESULT", json.dumps({
    "summary": estimator.latest_training_job.rule_job_summary(), "status": description["TrainingJobStatus"],
    "artifacts": estimator.latest_job_debugger_artifacts_path(), "model": estimator.model_data,
    "account": session.account_id(), "sdk": sagemaker.__version__}, default=str))
"""


@pytest.mark.smoke
def test_fit_with_a_hook_and_rules(service, bucket):
    done = service.program(PROGRAM, parts.TRAINING)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
    assert result["status"] == "Completed" and result["account"] == "123456789012"
    assert int(result["sdk"].split(".")[0]) == 2
    found, decreasing = result["summary"]
    assert found["RuleConfigurationName"] == "VanishingGradient" and found["RuleEvaluationStatus"] == "IssuesFound"
    assert decreasing["RuleEvaluationStatus"] in ("NoIssuesFound", "IssuesFound", "Error"), decreasing
    assert "trained 30" in done.stdout          # `logs="All"` printed what the script printed
    assert result["artifacts"].endswith("/debug-output")
    prefix = result["artifacts"].partition("://")[2].partition("/")
    listed = service.client("s3").list_objects_v2(Bucket=prefix[0], Prefix=prefix[2] + "/training_job_end.ts")
    assert listed["KeyCount"] == 1
