from frameworks.conformance import Conformance
from frameworks.torch.framework import Torch


class TestTorch(Conformance):
    framework = Torch()
    known = {
        "test_attached_late_it_sees_the_rest": "modules get their names only after the first step",
    }
