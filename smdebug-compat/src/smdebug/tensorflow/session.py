from . import EstimatorHook, SessionHook
