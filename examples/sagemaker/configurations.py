"""As it was for SageMaker: one small training in every shape that the guide configures it in."""

import sagemaker
from sagemaker.debugger import (
    CollectionConfig,
    DebuggerHookConfig,
    Rule,
    TensorBoardOutputConfig,
    rule_configs,
)
from sagemaker.pytorch import PyTorch

BUCKET = "s3://our-bucket"
common = {"role": sagemaker.get_execution_role(), "entry_point": "train.py", "framework_version": "2.3",
          "py_version": "py311", "instance_count": 1, "instance_type": "ml.m5.xlarge",
          "hyperparameters": {"images": 320}}

# A hook of one's own, with parameters that stand there as placeholders.
hook = DebuggerHookConfig(
    s3_output_path=f"{BUCKET}/tensors",
    container_local_output_path="/opt/ml/output/tensors",
    hook_parameters={"save_interval": "5", "key": "value"},
    collection_configs=[
        CollectionConfig(name="gradients", parameters={"key": "value"}),
        CollectionConfig(name="weights"),
    ],
)
PyTorch(debugger_hook_config=hook, **common).fit()

# Two built-in rules, with what they save by themselves.
PyTorch(rules=[Rule.sagemaker(rule_configs.vanishing_gradient()), Rule.sagemaker(rule_configs.exploding_tensor())],
        **common).fit()

# One under another name, with other parameters and other tensors, which is to stop the job.
PyTorch(
    rules=[
        Rule.sagemaker(
            base_config=rule_configs.all_zero(),
            name="gone",
            rule_parameters={"collection_names": "relus", "threshold": "99.9"},
            collections_to_save=[
                CollectionConfig(name="relus", parameters={"include_regex": "relu_output", "save_interval": "2"})
            ],
            actions=rule_configs.ActionList(rule_configs.StopTraining()),
        )
    ],
    **common,
).fit()

# A rule of one's own.
own = Rule.custom(
    name="CustomGradientRule",
    image_uri="759209512951.dkr.ecr.us-west-2.amazonaws.com/sagemaker-debugger-rule-evaluator:latest",
    instance_type="ml.t3.medium",
    volume_size_in_gb=10,
    source="rules/custom_gradient_rule.py",
    rule_to_invoke="CustomGradientRule",
    collections_to_save=[CollectionConfig(name="gradients", parameters={"save_interval": "2"})],
    rule_parameters={"threshold": "20.0"},
)
PyTorch(rules=[own], **common).fit()

# A collection that a rule and the hook both save: whatever saves more holds.
hook = DebuggerHookConfig(
    collection_configs=[CollectionConfig(name="gradients", parameters={"train.save_interval": "4"})]
)
PyTorch(rules=[Rule.sagemaker(rule_configs.vanishing_gradient())], debugger_hook_config=hook, **common).fit()

# Files for TensorBoard.
board = TensorBoardOutputConfig(s3_output_path=f"{BUCKET}/tensorboard", container_local_output_path="/opt/ml/output/tensorboard")
PyTorch(tensorboard_output_config=board, **common).fit()

# Nothing said, and opted out.
PyTorch(**common).fit()
PyTorch(debugger_hook_config=False, **common).fit()
