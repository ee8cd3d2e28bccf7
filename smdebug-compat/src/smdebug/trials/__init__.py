from .trial import LocalTrial, S3Trial, Trial, create_trial
