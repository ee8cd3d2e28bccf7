"""Stops a job of which a rule has found something. A function for AWS Lambda, as it was; on_event.yaml has it called here."""

import boto3


def lambda_handler(event, context):
    detail = event["detail"]
    found = [rule["RuleConfigurationName"] for rule in detail.get("DebugRuleEvaluationStatuses", [])
             if rule["RuleEvaluationStatus"] == "IssuesFound"]
    if found and detail["TrainingJobStatus"] == "InProgress":
        print(f"{detail['TrainingJobName']}: {', '.join(found)}, stopping it")
        boto3.client("sagemaker").stop_training_job(TrainingJobName=detail["TrainingJobName"])
    return {"found": found}
