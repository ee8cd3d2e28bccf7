"""Stops a job of which a rule has found something. A function for AWS Lambda; on_event.yaml has it called here."""

import os
import subprocess


def lambda_handler(event, context):
    detail = event["detail"]
    found = [rule["RuleConfigurationName"] for rule in detail.get("DebugRuleEvaluationStatuses", [])
             if rule["RuleEvaluationStatus"] == "IssuesFound"]
    if found and detail["TrainingJobStatus"] == "InProgress":
        print(f"{detail['TrainingJobName']}: {', '.join(found)} at step {detail['tdbg']['global_step']}, stopping it")
        # On AWS: boto3.client("sagemaker").stop_training_job(TrainingJobName=detail["TrainingJobName"])
        subprocess.run(["tdbg", "stop", os.environ["TDBG_RUN"]], check=True, capture_output=True)
    return {"found": found}
