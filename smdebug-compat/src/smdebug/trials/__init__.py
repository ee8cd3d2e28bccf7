from tdbg.trial import Trial, create_trial

LocalTrial = S3Trial = Trial
