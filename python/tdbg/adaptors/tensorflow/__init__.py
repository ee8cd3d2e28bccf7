"""TensorFlow without Keras' `fit`: tapes (tape.py) and sessions of TensorFlow 1 (sessions.py). The run, its steps and
names are the Keras adaptor's; it is imported, and Keras with it, when the first gradient is taken."""

from .attach import arm, attach, disarm

__all__ = ["arm", "attach", "disarm"]
