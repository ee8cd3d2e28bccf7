from frameworks.conformance import Conformance
from frameworks.hf.framework import HfTrainer, Lightning


class TestHfTrainer(Conformance):
    framework = HfTrainer()


class TestLightning(Conformance):
    framework = Lightning()
