from ..._not_offered import SERVICE, not_offered

__getattr__ = not_offered(__name__, SERVICE, "StopTrainingAction")
