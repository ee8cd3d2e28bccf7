from frameworks.conformance import Conformance
from frameworks.keras.framework import Keras


class TestKeras(Conformance):
    framework = Keras()
