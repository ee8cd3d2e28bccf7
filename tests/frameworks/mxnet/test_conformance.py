from frameworks.conformance import Conformance
from frameworks.mxnet.framework import Mxnet


class TestMxnet(Conformance):
    framework = Mxnet()
