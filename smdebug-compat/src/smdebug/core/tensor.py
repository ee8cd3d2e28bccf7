from tdbg.steps import StepState
from tdbg.tensor import Tensor
