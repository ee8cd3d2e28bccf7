"""The MXNet Gluon adaptor: finds a training's tensors and hands them to a run. What to keep is the plan's business.

Order of reading: attach.py (how it starts), session.py (events of a training, in order), trainers.py (around a
Trainer's step), params.py, losses.py, blocks.py, graphs.py, context.py (what is handed over), arrays.py (where an
NDArray is). Names are smdebug's. Knows nothing about rules, files and plans' insides.
"""

from .attach import arm, attach

__all__ = ["arm", "attach"]
