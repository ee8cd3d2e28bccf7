from frameworks.conformance import Conformance
from frameworks.torch.framework import Torch


class TestTorch(Conformance):
    framework = Torch()
    known = {
        "test_a_second_training_in_the_same_process": "an optimizer that is gone is still waited for",
        "test_attached_late_it_sees_the_rest": "modules get their names only after the first step",
    }
