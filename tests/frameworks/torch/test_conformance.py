from frameworks.conformance import Conformance
from frameworks.torch.framework import Torch


class TestTorch(Conformance):
    framework = Torch()
