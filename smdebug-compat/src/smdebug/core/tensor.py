from tdbg.modes import ModeKeys
from tdbg.steps import StepState
from tdbg.tensor import Tensor

from .._not_offered import not_offered

__getattr__ = not_offered(__name__, "a trial answers from its files", "ModeSteps", "Step")
