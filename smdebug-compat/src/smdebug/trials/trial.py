from . import LocalTrial, S3Trial, Trial
