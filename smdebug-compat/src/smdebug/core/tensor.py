from tdbg.compat.trial import Tensor
from tdbg.modes import ModeKeys
from tdbg.reading.steps import StepState

from .._not_offered import not_offered

__getattr__ = not_offered(__name__, "a trial answers from its files", "ModeSteps", "Step")
