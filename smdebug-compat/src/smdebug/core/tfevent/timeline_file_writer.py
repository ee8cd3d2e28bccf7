from ..._not_offered import PROFILER, not_offered

__getattr__ = not_offered(__name__, PROFILER)
