"""Programs of their time: `fit()` with a hook and rules, by SDKs in environments of their own (tools/frameworks/sagemaker-*.in)."""

import json
import subprocess
import sys

import pytest

from . import service as parts

PROGRAM = """
import json, pathlib, sys, tempfile
import sagemaker
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from sagemaker.pytorch import PyTorch

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "train.py").write_text(sys.argv[1])
session = sagemaker.Session()
prefix = sys.argv[2]                    # of members that the first SDK calls by other names
machine = {prefix + "instance_count": 1, prefix + "instance_type": "ml.m5.xlarge"}
estimator = PyTorch(
    entry_point="train.py", source_dir=str(folder), role=sagemaker.get_execution_role(), sagemaker_session=session,
    framework_version="1.5.0", py_version="py3", hyperparameters={"lr": "10.00", "steps": 30},
    debugger_hook_config=DebuggerHookConfig(
        s3_output_path="s3://%s/debug" % session.default_bucket(),
        collection_configs=[CollectionConfig("gradients", {"save_interval": "2"})]),
    rules=[Rule.sagemaker(rule_configs.vanishing_gradient())], **machine)
estimator.fit(wait=True, logs=True)
print("RESULT", json.dumps({"summary": estimator.latest_training_job.rule_job_summary(), "model": estimator.model_data}, default=str))
"""


@pytest.mark.long
@pytest.mark.parametrize(("version", "prefix"), [("1.72.1", "train_"), ("2.15.0", "")])
def test_fit_with_a_hook_and_a_rule(service, version, prefix):
    python = parts.ROOT / f".venv-sagemaker-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"tools/setup_framework.sh sagemaker-{version} makes the environment of this SDK")
    done = subprocess.run(
        [parts.BINARY, "aws-env", "--state", service.state, "--", python, "-c", PROGRAM, parts.TRAINING, prefix],
        env=service.environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-3000:])
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])
    assert [rule["RuleEvaluationStatus"] for rule in result["summary"]] == ["IssuesFound"], result
    assert "trained 30" in done.stdout          # what the script printed
    bucket, _, key = result["model"].partition("://")[2].partition("/")
    service.client("s3").head_object(Bucket=bucket, Key=key)


SCHEMA = """
SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA = {"type": "object", "properties": {"SageMaker": {"type": "object", "properties": {
    "PythonSDK": {"type": "object", "properties": {"Modules": {"type": "object", "additionalProperties": False}}}}}}}
"""
VALIDATES = """
import os, jsonschema, yaml
from sagemaker.config.config_schema import SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA
with open(os.environ["SAGEMAKER_USER_CONFIG_OVERRIDE"]) as file:
    jsonschema.validate(yaml.safe_load(file), SAGEMAKER_PYTHON_SDK_CONFIG_SCHEMA)
"""


def test_a_configuration_that_is_newer_than_the_sdk_is_passed_over(service, tmp_path):
    """2.145.0's schema knows no member of `Modules`, and its Session ends where there is one."""
    folder = tmp_path / "sagemaker" / "config"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "config_schema.py").write_text(SCHEMA)
    done = subprocess.run([parts.BINARY, "aws-env", "--state", service.state, "--", sys.executable, "-c", VALIDATES],
                          env=service.environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
