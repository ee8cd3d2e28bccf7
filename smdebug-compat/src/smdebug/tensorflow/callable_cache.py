from .._not_offered import INSIDE, not_offered

__getattr__ = not_offered(__name__, INSIDE)
