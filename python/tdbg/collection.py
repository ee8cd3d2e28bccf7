"""Public names of tdbg.reading: a collection as a run has it."""

from .hook.collection import Collection
from .hook.reduction_config import ReductionConfig
from .hook.save_config import SaveConfig, SaveConfigMode
from .reading.collection import KnownCollections, collection_of

__all__ = ["Collection", "KnownCollections", "ReductionConfig", "SaveConfig", "SaveConfigMode", "collection_of"]
