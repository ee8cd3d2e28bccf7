from tdbg.trial import create_trial
