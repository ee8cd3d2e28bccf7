"""The adaptor of JAX training loops: what is updated with optax, of flax (nnx, linen) or nobody's.

Order of reading: attach.py (how it starts), session.py (what is replaced, and what a step is), trees.py (names of what
is in a pytree). Knows nothing about rules, files and how statistics are computed.
"""

from .attach import arm, attach

__all__ = ["arm", "attach"]
