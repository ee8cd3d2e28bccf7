"""The Keras adaptor: what trains with Keras 3 on TensorFlow, PyTorch or JAX.

Order of reading: attach.py (how it starts), functions.py (the functions that Keras runs for a batch, with extra
outputs), collect.py (what a step is asked for while it is traced), ../values.py (from a framework's tensor to the run),
session.py (steps and the run), names.py. Knows nothing about rules, files and how statistics are computed.
"""

from .attach import arm, attach, stand_down, watching

__all__ = ["arm", "attach", "stand_down", "watching"]
