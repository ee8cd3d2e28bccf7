from frameworks.conformance import Conformance
from frameworks.lightgbm.framework import LightGBM


class TestLightGBM(Conformance):
    framework = LightGBM()
