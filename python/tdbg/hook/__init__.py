"""smdebug's hooks: what a training script creates itself to say what is saved. See README.md.

`tdbg.hook.torch.Hook` watches; the rest is configuration, in smdebug's words, and needs no framework.
"""

from .collection import Collection, CollectionKeys, CollectionManager
from .reduction_config import ReductionConfig
from .save_config import SaveConfig, SaveConfigMode

__all__ = ["Collection", "CollectionKeys", "CollectionManager", "ReductionConfig", "SaveConfig", "SaveConfigMode"]
