from frameworks.conformance import Conformance
from frameworks.xgboost.framework import XGBoost


class TestXGBoost(Conformance):
    framework = XGBoost()
