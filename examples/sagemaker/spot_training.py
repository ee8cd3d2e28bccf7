"""As it was for SageMaker: a training on spot instances, which may be taken away, with its checkpoints in S3."""

import sagemaker
from sagemaker.debugger import Rule, rule_configs
from sagemaker.pytorch import PyTorch

CHECKPOINTS = "/opt/ml/checkpoints"

estimator = PyTorch(
    role=sagemaker.get_execution_role(),
    base_job_name="spot-training",
    entry_point="train.py",
    hyperparameters={"batch-size": 100, "epochs": 5, "optimizer": "adam", "lr": 0.003, "checkpoint-path": CHECKPOINTS},
    framework_version="2.3",
    py_version="py311",
    instance_count=1,
    instance_type="ml.m5.xlarge",
    use_spot_instances=True,
    max_run=3600,
    max_wait=3600,
    checkpoint_s3_uri=f"s3://{sagemaker.Session().default_bucket()}/spot-training",
    checkpoint_local_path=CHECKPOINTS,
    rules=[Rule.sagemaker(rule_configs.vanishing_gradient())],
)
estimator.fit()
