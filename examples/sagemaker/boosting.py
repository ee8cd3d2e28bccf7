"""As it was for SageMaker: XGBoost's own image boosts trees; a rule watches the metrics, another one writes a report."""

import sagemaker
from sagemaker import image_uris
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from sagemaker.inputs import TrainingInput

bucket = f"s3://{sagemaker.Session().default_bucket()}/abalone"
every_5 = {"save_interval": "5"}

estimator = sagemaker.estimator.Estimator(
    role=sagemaker.get_execution_role(),
    base_job_name="boosting",
    image_uri=image_uris.retrieve("xgboost", "us-west-2", "1.7-1"),
    instance_count=1,
    instance_type="ml.m5.xlarge",
    hyperparameters={"max_depth": "5", "eta": "0.2", "gamma": "4", "min_child_weight": "6", "subsample": "0.7", "silent": "0",
                     "objective": "reg:squarederror", "num_round": "51"},
    debugger_hook_config=DebuggerHookConfig(
        s3_output_path=bucket,
        collection_configs=[
            CollectionConfig(name="metrics", parameters=every_5),
            CollectionConfig(name="feature_importance", parameters=every_5),
            CollectionConfig(name="average_shap", parameters=every_5),
        ],
    ),
    rules=[
        Rule.sagemaker(rule_configs.loss_not_decreasing(), rule_parameters={"collection_names": "metrics", "num_steps": "10"}),
        Rule.sagemaker(rule_configs.create_xgboost_report()),
    ],
)
estimator.fit(
    {
        "train": TrainingInput(f"{bucket}/train", content_type="csv"),
        "validation": TrainingInput(f"{bucket}/validation", content_type="csv"),
    }
)
