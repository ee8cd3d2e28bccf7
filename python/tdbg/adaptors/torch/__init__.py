"""The PyTorch adaptor: finds a training's tensors and hands them to a run. What to keep is the plan's business.

Order of reading: attach.py (how it starts), session.py (events of a training, in order), steps.py (where steps end),
params.py, losses.py, modules.py, scaler.py, context.py (what is handed over), cuda.py and other_devices.py (tensors on
a device). Knows nothing about rules, files and plans' insides.
"""

from .attach import arm, attach

__all__ = ["arm", "attach"]
