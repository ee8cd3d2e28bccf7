"""As it was for SageMaker: a training with a learning rate of 10, two rules, and nobody who waits. handler.py stops it."""

import sagemaker
from sagemaker.debugger import Rule, rule_configs
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    role=sagemaker.get_execution_role(),
    base_job_name="vanishing-gradient",
    entry_point="train.py",
    hyperparameters={"num_epochs": "10", "lr": "10.00"},
    framework_version="2.3",
    py_version="py311",
    instance_count=1,
    instance_type="ml.m5.xlarge",
    max_run=3600,
    rules=[Rule.sagemaker(rule_configs.vanishing_gradient()), Rule.sagemaker(rule_configs.loss_not_decreasing())],
)
estimator.fit(wait=False)
print(estimator.latest_training_job.rule_job_summary())
