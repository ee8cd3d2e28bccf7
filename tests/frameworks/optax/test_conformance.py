from frameworks.conformance import Conformance
from frameworks.optax.framework import Optax


class TestOptax(Conformance):
    framework = Optax()
