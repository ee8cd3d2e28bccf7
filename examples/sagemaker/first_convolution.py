"""As it was for SageMaker: everything of a network's first convolution is kept every 100 steps, and drawn as it comes."""

import sagemaker
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    role=sagemaker.get_execution_role(),
    base_job_name="first-convolution",
    entry_point="train.py",
    hyperparameters={"batch-size": 256, "learning_rate": 0.1, "epochs": 10},
    framework_version="2.3",
    py_version="py311",
    instance_count=1,
    instance_type="ml.m5.xlarge",
    debugger_hook_config=DebuggerHookConfig(
        s3_output_path=f"s3://{sagemaker.Session().default_bucket()}/first-convolution",
        collection_configs=[
            CollectionConfig(name="conv0_tensors", parameters={"include_regex": "conv0.*", "save_interval": "100"})
        ],
    ),
)
estimator.fit(wait=False)
print(estimator.latest_job_debugger_artifacts_path())
