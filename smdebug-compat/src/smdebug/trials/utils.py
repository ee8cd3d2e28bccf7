from .trial import create_trial
