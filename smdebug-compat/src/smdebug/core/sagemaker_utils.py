import os


def is_sagemaker_job():
    return "TRAINING_JOB_NAME" in os.environ
